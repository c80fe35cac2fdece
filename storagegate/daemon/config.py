"""
The configuration: flags win over variables, variables over the file, the file over defaults.

An unknown key or an invalid value stops the start: L{ConfigurationError} is one line with the key
and its origin. The keys themselves are in L{storagegate.daemon.configkeys}.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from storagegate.core.files import readSmallFile
from storagegate.daemon.configkeys import KEYS, PREFIX, Key
from storagegate.daemon.rootcredentials import RootCredentials
from storagegate.gateway.transports.registry import listenerTransports

CONFIG_VARIABLE = PREFIX + "CONFIG"

_GATEWAY = "gateway"

# A file of two dozen keys; what is larger is another file.
_FILE_LIMIT = 1 << 20

# Kubernetes gives every container variables that are made from the names of services; where one
# is called storagegate, these are not ours.
_FOREIGN_VARIABLE = re.compile(PREFIX + r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\w+)?)")


class ConfigurationError(ValueError):
    """The configuration cannot be used; the text is one line for the operator."""


@frozen
class ListenerOptions:
    """
    Where each listener is; L{None} is off.

    @ivar transports: Those of the gateway, by the name of the transport.
    """

    s3: str | None
    admin: str | None
    transports: Mapping[str, str | None]

    def of(self, name: str) -> str | None:
        """Return the address of a transport of the gateway."""
        return self.transports.get(name)


@frozen
class StoreOptions:
    """Options of the store."""

    directory: str
    durability: str
    verifyReads: bool


@frozen
class S3Options:
    """
    Options of the S3 listener.

    @ivar root: The configured root key pair; L{None}: the one in the data directory.
    @ivar requireSignedPayload: Whether a body must be signed for where there is no TLS.
    """

    region: str
    domain: str | None
    root: RootCredentials | None
    requireSignedPayload: bool


@frozen
class Configuration:
    """
    All options of the daemon.

    @ivar gateway: The table of that name in the file; the gateway validates it.
    @ivar values: The same by key.
    """

    listeners: ListenerOptions
    store: StoreOptions
    s3: S3Options
    services: tuple[str, ...]
    gateway: Mapping[str, Any] = field(repr=False)
    workers: int
    shutdownGraceSeconds: int
    logFormat: str
    logLevel: str
    values: Mapping[str, Any] = field(repr=False)


@frozen
class _Found:
    """A value before it is parsed, and its origin."""

    key: Key
    raw: object
    origin: str


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> Configuration:
    """
    Read the configuration from flags, variables and the file.

    @param flags: The given flags, by key; C{config} is the path of the file.
    @param environment: The process's variables.
    @raise ConfigurationError: If a key is unknown or a value is invalid.
    """
    gateway: Mapping[str, Any] = {}
    found = {key.name: _Found(key, key.default, "default") for key in KEYS if key.default}
    if environment.get("STATE_DIRECTORY"):
        # systemd gives a list with colons where a unit asks for several.
        directory = environment["STATE_DIRECTORY"].split(":")[0]
        found["data"] = _Found(found["data"].key, directory, "variable STATE_DIRECTORY")
    if flags.get("config"):
        table = _readFile(str(flags["config"]))
        gateway = _takeTable(table, str(flags["config"]))
        found.update((item.key.name, item) for item in _fromTable(table, f"file {flags['config']}"))
    found.update((item.key.name, item) for item in _fromVariables(environment))
    found.update((item.key.name, item) for item in _fromFlags(flags))
    _checkPair(found)
    return _assemble({name: _read(item) for name, item in found.items()}, gateway)


def everyError(flags: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """Return the lines of all errors, where L{load} stops at the first."""
    path = str(flags.get("config") or "")
    table: dict[str, Any] = {}
    found: list[str] = []
    if path:
        try:
            table = _readFile(path)
            _takeTable(table, path)
        except ConfigurationError as error:
            found.append(str(error))
    for readings in (
        *(_fromTable({name: raw}, f"file {path}") for name, raw in table.items()),
        *(_fromVariables({name: raw}) for name, raw in environment.items()),
        *(_fromFlags({name: raw}) for name, raw in flags.items()),
    ):
        try:
            for item in readings:
                _read(item)
        except ConfigurationError as error:
            found.append(str(error))
    try:
        load(flags, environment)
    except ConfigurationError as error:
        # Errors that concern several keys.
        if str(error) not in found:
            found.append(str(error))
    return found


def restore(values: Mapping[str, Any], gateway: Mapping[str, Any]) -> Configuration:
    """Make a configuration of the C{values} and the C{gateway} of another process."""
    return _assemble({**values, "service": tuple(values.get("service", ()))}, gateway)


def needRestart(old: Configuration, new: Configuration) -> list[str]:
    """Return the keys that differ and that a running daemon cannot apply."""
    names = [
        key.name
        for key in KEYS
        if not key.reloads and old.values.get(key.name) != new.values.get(key.name)
    ]
    return names if old.gateway == new.gateway else [*names, _GATEWAY]


def _readFile(path: str) -> dict[str, Any]:
    origin = f"file {path}"
    try:
        return tomllib.loads(readSmallFile(path, _FILE_LIMIT).decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"config ({origin}): {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"config ({origin}): {reason}") from error


def _takeTable(table: dict[str, Any], path: str) -> Mapping[str, Any]:
    """Remove the gateway's part from a file: it has tables of its own, and no flag or variable."""
    part = table.pop(_GATEWAY, {})
    if not isinstance(part, dict):
        raise ConfigurationError(f"{_GATEWAY} (file {path}): expected a table")
    return part


def _fromTable(table: Mapping[str, Any], origin: str) -> Iterator[_Found]:
    known = {key.name: key for key in KEYS}
    for name, raw in table.items():
        if name not in known:
            raise ConfigurationError(f"{name!r} ({origin}): unknown key")
        yield _Found(known[name], raw, origin)


def _fromVariables(environment: Mapping[str, str]) -> Iterator[_Found]:
    known = {key.variable: key for key in KEYS}
    for variable, raw in environment.items():
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable not in known:
            if _FOREIGN_VARIABLE.fullmatch(variable):
                continue
            raise ConfigurationError(f"{variable} (variable): unknown key")
        # An empty variable is how many tools say that there is none.
        if raw:
            yield _Found(known[variable], raw, f"variable {variable}")


def _fromFlags(flags: Mapping[str, object]) -> Iterator[_Found]:
    for key in KEYS:
        if flags.get(key.name) is not None:
            yield _Found(key, flags[key.name], f"flag --{key.name}")


def _checkPair(found: Mapping[str, _Found]) -> None:
    for present, absent in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        if present in found and absent not in found:
            origin = found[present].origin
            raise ConfigurationError(f"{absent}: missing, though {present} is set ({origin})")


def _read(item: _Found) -> Any:
    try:
        return item.key.read(item.raw)
    except ValueError as error:
        # The line for the operator must not contain long or secret values.
        got = "" if item.key.secret else f", not {item.raw!r:.80}"
        raise ConfigurationError(f"{item.key.name} ({item.origin}): {error}{got}") from error


def _assemble(values: Mapping[str, Any], gateway: Mapping[str, Any]) -> Configuration:
    root = None
    if "accessKey" in values:
        root = RootCredentials(values["accessKey"], values["secretKey"])
    return Configuration(
        listeners=ListenerOptions(
            values["s3"],
            values["admin"],
            {row.name: values[row.name] for row in listenerTransports()},
        ),
        store=StoreOptions(values["data"], values["durability"], values["verifyReads"]),
        s3=S3Options(
            values["region"], values.get("s3Domain"), root, values["requireSignedPayload"]
        ),
        services=values.get("service", ()),
        gateway=gateway,
        workers=values["workers"],
        shutdownGraceSeconds=values["shutdownGraceSeconds"],
        logFormat=values["logFormat"],
        logLevel=values["logLevel"],
        values=values,
    )
