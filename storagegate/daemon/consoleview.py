"""The daemon, as the console sees it."""

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
from storagegate.daemon.config import KEYS, Configuration
from storagegate.daemon.service import ReloadResult
from storagegate.net.endpoints import formatAddress

_HIDDEN = "***"

_SECRET = re.compile(
    r"secret|passw|token|key|credential|cookie|auth|salt|private|header", re.IGNORECASE
)
"""Names of options of the tables whose texts may be secrets."""

_WITH_PASSWORD = re.compile(r"://[^/\s]*@|password", re.IGNORECASE)
"""Addresses and connections that carry one."""

_LONGEST_TEXT = 200

_DOCTOR_SECONDS = 60.0
"""A doctor that waits longer, for the network or a disk, is ended."""

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
        @param addresses: Of the listeners that are open, by name.
        @param gateway: Returns the service of the gateway.
        @param directory: The data directory, an absolute path.
        @param reactor: Starts the doctor.
        @param configurations: Returns that of the start, and that of the last reload.
        @param flags: Those of the command line, by key.
        @param reload: Reads the configuration again, in a process without workers.
        @param link: The connection of a worker to the others; L{None} without workers.
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
        """Return the address of each listener that is open, by its name."""
        return {name: formatAddress(each) for name, each in self._addresses.items()}

    @property
    def gateway(self) -> Any:
        """The service of the gateway; L{None} without one."""
        return self._gateway()

    @property
    def dataDirectory(self) -> str:
        """An absolute path."""
        return self._directory

    def configuration(self) -> list[Mapping[str, Any]]:
        """Return each key of the configuration: C{key, value, origin, default, meaning, sighup}."""
        started, current = self._configurations()
        file = str(self._flags.get("config") or "")
        return describeConfiguration(started, current, self._link is not None, file)

    async def reload(self) -> Mapping[str, Any]:
        """
        Read the configuration again, as SIGHUP does, in all processes.

        @return: The fields of L{ReloadResult}.
        """
        if self._link is None:
            return asdict(self._reload())
        replies = await self._link.askSupervisor("reload")
        return replies[0] if replies else asdict(ReloadResult(error="the daemon is stopping"))

    async def doctor(self) -> list[Mapping[str, str]]:
        """
        Run C{storagegate doctor} in a process of its own, with the flags of this daemon.

        @return: Findings: C{level, check, text}.
        @raise ServiceError: C{RATE_LIMITED}: It is at work. C{UNAVAILABLE}: It has no findings.
        """
        if self._isExamining:
            raise codedError("RATE_LIMITED", "The doctor is at work already")
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
            raise codedError("UNAVAILABLE", "The doctor has ended without findings") from error
        return found


def describeConfiguration(
    started: Configuration, current: Configuration, hasWorkers: bool, file: str
) -> list[Mapping[str, Any]]:
    """
    Describe each key of a configuration, without its secrets.

    @param started: That of the start.
    @param current: That of the last reload.
    @param hasWorkers: Whether a reload replaces workers.
    @param file: The path of the file; empty without one.
    @return: For each key C{key, value, origin, default, meaning, sighup}.
    """
    found: list[Mapping[str, Any]] = []
    for key in KEYS:
        isApplied = not key.isShared if hasWorkers else key.reloads
        # What a reload does not apply is as it was at the start.
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
    for name, table, isApplied in (
        ("gateway", started.gateway, hasWorkers),
        ("cluster", cluster, False),
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

    @ivar output: Its standard output, when it has ended.
    @ivar end: Ends it, if it takes too long.
    """

    def __init__(self) -> None:
        self.output: Deferred[bytes] = Deferred()
        self.end: Any = None
        self._pieces: list[bytes] = []
        self._size = 0

    def outReceived(self, data: bytes) -> None:
        """Keep what a list of findings may be."""
        self._size += len(data)
        if self._size <= _MOST_OUTPUT:
            self._pieces.append(data)

    def errReceived(self, data: bytes) -> None:
        """Drop what services print while they are imported."""

    def processEnded(self, reason: Failure) -> None:
        """Hand the output over."""
        if self.end is not None and self.end.active():
            self.end.cancel()
        self.output.callback(b"".join(self._pieces))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def tableOptions(path: str, value: Any, isSecret: bool = False) -> Iterator[tuple[str, Any]]:
    """
    Walk through the options of a table: paths with dots, and values.

    @param path: Of C{value}.
    @param isSecret: Whether a name above says that texts may be secrets, which are hidden.
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
