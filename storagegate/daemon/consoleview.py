"""The console's view of the daemon."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from storagegate.core.errors import codedError
from storagegate.daemon.config import Configuration
from storagegate.daemon.configkeys import KEYS
from storagegate.daemon.service import ReloadResult
from storagegate.net.endpoints import formatAddress

_HIDDEN = "***"

_SECRET = re.compile(
    r"secret|passw|token|key|credential|cookie|auth|salt|private|header", re.IGNORECASE
)
"""Names of table options whose strings may be secrets."""

_WITH_PASSWORD = re.compile(r"://[^/\s]*@|password", re.IGNORECASE)
"""Addresses and connection strings that contain a password."""

_LONGEST_TEXT = 200

_DOCTOR_SECONDS = 60.0
"""A doctor that waits longer for the network or a disk is killed."""

_MOST_OUTPUT = 4 * 1024 * 1024


class ConsoleView:
    """Implements L{storagegate.console.services.IDaemon} for one process."""

    def __init__(
        self,
        readiness: Callable[[], Any],
        addresses: Mapping[str, IAddress],
        gateway: Callable[[], Any],
        directory: str,
        *,
        reactor: Any,
        configurations: Callable[[], tuple[Configuration, Configuration]],
        flags: Mapping[str, Any],
        reload: Callable[[], ReloadResult],
        link: Any,
    ) -> None:
        """
        @param readiness: Returns the state of each part.
        @param addresses: The addresses of the open listeners, by name.
        @param gateway: Returns the gateway's service.
        @param directory: The data directory as an absolute path.
        @param reactor: The reactor, which starts the doctor.
        @param configurations: Returns the configurations of the start and of the last reload.
        @param flags: The flags of the command line, by key.
        @param reload: Reloads the configuration, in a process without workers.
        @param link: The connection of a worker to the other workers; C{None} without workers.
        """
        self.readiness = readiness
        self._addresses = addresses
        self._gateway = gateway
        self._directory = directory
        self._reactor = reactor
        self._configurations = configurations
        self._flags = flags
        self._reload = reload
        self._link = link
        self._isExamining = False

    def listeners(self) -> Mapping[str, str]:
        """Return the address of each open listener, by name."""
        return {name: formatAddress(each) for name, each in self._addresses.items()}

    @property
    def gateway(self) -> Any:
        """The gateway's service; C{None} without a gateway."""
        return self._gateway()

    @property
    def dataDirectory(self) -> str:
        """The data directory as an absolute path."""
        return self._directory

    def configuration(self) -> list[Mapping[str, Any]]:
        """Return each key of the configuration: C{key, value, origin, default, meaning, sighup}."""
        started, current = self._configurations()
        file = str(self._flags.get("config") or "")
        return describeConfiguration(started, current, self._link is not None, file)

    async def reload(self) -> Mapping[str, Any]:
        """
        Reload the configuration in all processes, as SIGHUP does.

        @return: The fields of L{ReloadResult}.
        """
        if self._link is None:
            return asdict(self._reload())
        replies = await self._link.askSupervisor("reload")
        return replies[0] if replies else asdict(ReloadResult(error="the daemon is stopping"))

    async def doctor(self) -> list[Mapping[str, str]]:
        """
        Run C{storagegate doctor} in a separate process, with the flags of this daemon.

        @return: Findings: C{level, check, text}.
        @raise ServiceError: C{RATE_LIMITED} if it is running already; C{UNAVAILABLE} if it returns
            no findings.
        """
        if self._isExamining:
            raise codedError("RATE_LIMITED", "The doctor is already running")
        self._isExamining = True
        try:
            ended = _Doctor()
            arguments = [sys.executable, "-m", "storagegate", "doctor", "--json"]
            for name, value in self._flags.items():
                for each in value if isinstance(value, list | tuple) else [value]:
                    if each is not None:
                        arguments.append(f"--{name}={each}")
            path = os.pathsep.join(filter(None, sys.path))
            environment = {**os.environ, "PYTHONPATH": path}
            process = self._reactor.spawnProcess(ended, sys.executable, arguments, environment)
            ended.end = self._reactor.callLater(_DOCTOR_SECONDS, process.signalProcess, "KILL")
            output = await ended.output
        finally:
            self._isExamining = False
        try:
            found: list[Mapping[str, str]] = json.loads(output)["findings"]
        except (ValueError, KeyError) as error:
            raise codedError("UNAVAILABLE", "The doctor ended without findings") from error
        return found


def describeConfiguration(
    started: Configuration, current: Configuration, hasWorkers: bool, file: str
) -> list[Mapping[str, Any]]:
    """
    Describe each key of a configuration, without secrets.

    @param started: The configuration of the start.
    @param current: The configuration of the last reload.
    @param hasWorkers: Whether a reload replaces workers.
    @param file: The path of the configuration file; empty without a file.
    @return: For each key C{key, value, origin, default, meaning, sighup}.
    """
    found: list[Mapping[str, Any]] = []
    for key in KEYS:
        isApplied = not key.isShared if hasWorkers else key.reloads
        # Keys that a reload does not apply keep their value from the start.
        configuration = current if isApplied else started
        value = configuration.values.get(key.name)
        found.append(
            {
                "key": key.name,
                "value": _HIDDEN if key.secret and value is not None else _plain(value),
                "origin": configuration.origins.get(key.name, ""),
                "default": key.default,
                "meaning": key.meaning,
                "sighup": isApplied,
            }
        )
    cluster = {} if started.cluster is None else asdict(started.cluster)
    vault = {} if started.vault is None else asdict(started.vault)
    for name, table, isApplied in (
        ("gateway", started.gateway, hasWorkers),
        ("cluster", cluster, False),
        ("vault", vault, False),
        ("signIn", (current if hasWorkers else started).signIn, hasWorkers),
    ):
        for path, value in tableOptions(name, table):
            found.append(
                {
                    "key": path,
                    "value": value,
                    "origin": f"file {file}" if file else "",
                    "default": "",
                    "meaning": f"an option of the table {name}",
                    "sighup": isApplied,
                }
            )
    return found


class _Doctor(ProcessProtocol):
    """
    The doctor's process.

    @ivar output: Fires with the standard output when the process has ended.
    @ivar end: The timer that kills the process if it takes too long.
    """

    def __init__(self) -> None:
        self.output: Deferred[bytes] = Deferred()
        self.end: Any = None
        self._pieces: list[bytes] = []
        self._size = 0

    def outReceived(self, data: bytes) -> None:
        """Keep the output up to a limit."""
        self._size += len(data)
        if self._size <= _MOST_OUTPUT:
            self._pieces.append(data)

    def errReceived(self, data: bytes) -> None:
        """Discard output that services print while they are imported."""

    def processEnded(self, reason: Failure) -> None:
        """Fire C{output}."""
        if self.end is not None and self.end.active():
            self.end.cancel()
        self.output.callback(b"".join(self._pieces))


def _plain(value: Any) -> Any:
    """Return a value in JSON types."""
    return list(value) if isinstance(value, tuple) else value


def tableOptions(path: str, value: Any, isSecret: bool = False) -> Iterator[tuple[str, Any]]:
    """
    Yield the options of a table as dotted paths and values.

    @param path: The path of C{value}.
    @param isSecret: Whether a parent's name marks strings as possible secrets, which are hidden.
    """
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from tableOptions(f"{path}.{name}", each, isSecret or bool(_SECRET.search(name)))
    elif isinstance(value, list | tuple):
        if any(isinstance(each, Mapping | list | tuple) for each in value):
            for number, each in enumerate(value):
                yield from tableOptions(f"{path}[{number}]", each, isSecret)
        else:
            yield path, [_shown(each, isSecret) for each in value]
    else:
        yield path, _shown(value, isSecret)


def _shown(value: Any, isSecret: bool) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    isHidden = isSecret or len(text) > _LONGEST_TEXT or _WITH_PASSWORD.search(text)
    return _HIDDEN if isHidden else text
