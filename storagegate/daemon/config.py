"""
The configuration: flags override environment variables, variables override the file, and the file
overrides the defaults.

Unknown keys and invalid values stop the start: L{ConfigurationError} has one line for each mistake,
with the key and its origin.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import asdict, evolve, field, frozen
from msgspec import Struct
from msgspec.structs import replace

from storagegate.core.extras import missingExtra
from storagegate.core.files import readSmallFile
from storagegate.core.options import OptionError, makeOptions
from storagegate.daemon.configkeys import DAY_SECONDS, KEYS, PREFIX, Key
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.forwarded import compileTrust
from storagegate.objects.issuedkeys import KeyPair

if TYPE_CHECKING:
    from storagegate.cluster.options import ClusterOptions
    from storagegate.objects.encryption.masterkeys.options import VaultOptions

CONFIG_VARIABLE = PREFIX + "CONFIG"

_GATEWAY = "gateway"
_CLUSTER = "cluster"
_VAULT = "vault"
_SIGN_IN = "signIn"

CLUSTER_VARIABLES = {
    f"{PREFIX}CLUSTER_{words}": name
    for words, name in (
        ("CATALOG", "catalog"),
        ("BLOBS", "blobs"),
        ("COUNTS", "counts"),
        ("LEASE_SECONDS", "leaseSeconds"),
        ("CONNECT_WAIT", "connectWait"),
        ("INLINE_LIMIT", "inlineLimit"),
        ("SYNCHRONOUS", "synchronous"),
        ("ETCD", "etcd"),
    )
}
"""The variables for the options of the table C{cluster}: they override the file."""

VAULT_VARIABLES = {
    f"{PREFIX}VAULT_{words}": name
    for words, name in (
        ("ADDRESS", "address"),
        ("MOUNT", "mount"),
        ("DEFAULT_KEY", "defaultKey"),
        ("NAMESPACE", "namespace"),
        ("TOKEN_FILE", "tokenFile"),
        ("TOKEN", "token"),
        ("SECRET_ID", "appRole.secretId"),
        ("CA_FILE", "caFile"),
        ("TIMEOUT_SECONDS", "timeoutSeconds"),
    )
}
"""The variables for the options of the table C{vault}: they override the file."""

# The file has two dozen keys; a larger file is not a configuration.
_FILE_LIMIT = 1 << 20

# Kubernetes injects variables derived from service names into every container; if a service is
# called storagegate, these variables are not part of the configuration.
_FOREIGN_VARIABLE = re.compile(PREFIX + r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\w+)?)")

T = TypeVar("T")


class ConfigurationError(ValueError):
    """
    The configuration cannot be used; the text is one line for the operator.

    @ivar errors: One line for each mistake.
    """

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


@contextmanager
def collectErrors(errors: list[str]) -> Iterator[None]:
    """Append the mistakes of a L{ConfigurationError} to a list, so that further ones are found."""
    try:
        yield
    except ConfigurationError as error:
        errors += error.errors


def raiseErrors(errors: list[str]) -> None:
    """
    Raise an error with all mistakes of a list, if there are any.

    @raise ConfigurationError: The list is not empty.
    """
    if errors:
        raise ConfigurationError(*dict.fromkeys(errors))


class ListenerOptions(Struct, frozen=True):
    """
    The address of each listener; C{None} disables it.

    @ivar transports: The addresses of the gateway's listeners, by the name of the transport.
    @ivar http2: Whether clients of the S3 and admin listeners may speak HTTP/2.
    @ivar http2MaxStreams: The maximum number of open streams of their connections of HTTP/2.
    @ivar gatewayOnS3: Whether the S3 listener also serves the gateway.
    """

    s3: str | None
    admin: str | None
    transports: Mapping[str, str | None]
    http2: bool = True
    http2MaxStreams: int = 100
    gatewayOnS3: bool = False

    @property
    def addresses(self) -> Mapping[str, str | None]:
        """Return the address of each listener by name."""
        return {"s3": self.s3, "admin": self.admin, **self.transports}

    def at(self, addresses: Mapping[str, str | None]) -> "ListenerOptions":
        """
        Return the same options with other addresses.

        @param addresses: The addresses by listener; the others are disabled.
        """
        transports = {name: addresses.get(name) for name in self.transports}
        return replace(
            self, s3=addresses.get("s3"), admin=addresses.get("admin"), transports=transports
        )

    def of(self, name: str) -> str | None:
        """Return the address of a gateway transport."""
        return self.transports.get(name)

    def servesGateway(self, name: str) -> bool:
        """Return whether calls can be made over a listener."""
        return self.of(name) is not None or (name == "s3" and self.gatewayOnS3)


class StoreOptions(Struct, frozen=True):
    """
    Options of the store.

    @ivar masterKeys: The file of the master keys; empty for the one in the data directory.
    @ivar encryptAll: Whether all new objects are encrypted.
    @ivar keyCacheSeconds: How long a bucket key stays open in memory.
    @ivar vault: The provider of the master keys; C{None} for their file.
    @ivar blockCustomerKeys: Whether new buckets block the encryption keys of clients.
    """

    directory: str
    durability: str
    verifyReads: bool
    lifecycleDaySeconds: int = DAY_SECONDS
    bucketMetrics: bool = False
    masterKeys: str = ""
    encryptAll: bool = False
    keyCacheSeconds: int = 300
    vault: Any = None
    blockCustomerKeys: bool = False


class S3Options(Struct, frozen=True):
    """
    Options of the S3 listener.

    @ivar root: The configured root key pair; C{None} uses the pair in the data directory.
    @ivar requireSignedPayload: Whether the signature must cover the body on connections without
        TLS.
    @ivar lifecycleDaySeconds: Length of a day in lifecycle rules, in seconds.
    @ivar ownership: The default object ownership of new buckets; empty for no default.
    @ivar trustedProxies: The proxies whose C{X-Forwarded-For} is trusted, as in the gateway's
        table.
    @ivar customerKeysOverHTTP: Whether other machines may send encryption keys without TLS.
    """

    region: str
    domain: str | None
    root: KeyPair | None
    requireSignedPayload: bool
    lifecycleDaySeconds: int = DAY_SECONDS
    ownership: str = ""
    trustedProxies: Any = False
    customerKeysOverHTTP: bool = False


@frozen
class Configuration:
    """
    All options of the daemon.

    @ivar gateway: The table C{gateway} of the file; the gateway validates it.
    @ivar accessLog: The file of the access log; C{None} writes the lines to the log.
    @ivar values: The values by key.
    @ivar cluster: The table C{cluster}; C{None} if the store is embedded.
    @ivar origins: The origin of each value, by key.
    @ivar signIn: The table C{signIn}: the options of the issuers of the console by their names.
    """

    listeners: ListenerOptions
    store: StoreOptions
    s3: S3Options
    services: tuple[str, ...]
    gateway: Mapping[str, Any] = field(repr=False)
    workers: int
    shutdownGraceSeconds: int
    heldBytes: int
    reactor: str
    logFormat: str
    logLevel: str
    accessLog: str | None
    values: Mapping[str, Any] = field(repr=False)
    cluster: "ClusterOptions | None" = None
    origins: Mapping[str, str] = field(factory=dict, repr=False, eq=False)
    signIn: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def vault(self) -> "VaultOptions | None":
        """The table C{vault}; C{None} if the master keys are in a file."""
        found: VaultOptions | None = self.store.vault
        return found

    def endpoint(self, name: str) -> str | None:
        """Return the address of a listener; C{None} if it is disabled."""
        endpoint: str | None = self.values[name]
        return endpoint

    def tlsTable(self, name: str) -> Mapping[str, Any]:
        """Return the TLS options of a listener from the gateway's tables."""
        table = self.gateway.get(name)
        tls = table.get("tls") if isinstance(table, Mapping) else None
        return tls if isinstance(tls, Mapping) else {}

    def requiresClient(self, name: str) -> bool:
        """Return whether a listener requires client certificates from its authorities."""
        table = self.tlsTable(name)
        return bool(table.get("ca")) and table.get("clientAuth") != "none"


class _Found(Struct, frozen=True):
    """An unparsed value and its origin."""

    key: Key
    raw: object
    origin: str


@frozen
class Reading:
    """
    The valid part of a configuration.

    @ivar values: The values by key.
    @ivar origins: The origin of each value, by key.
    @ivar gateway: The table C{gateway} of the file.
    @ivar cluster: The table C{cluster}; C{None} if the store is embedded.
    @ivar vault: The table C{vault}; C{None} if the master keys are in a file.
    @ivar signIn: The table C{signIn}.
    @ivar errors: The mistakes; without any, the other attributes are the whole configuration.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    gateway: Mapping[str, Any]
    cluster: "ClusterOptions | None"
    vault: "VaultOptions | None"
    signIn: Mapping[str, Any]
    errors: list[str]


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> Configuration:
    """
    Read the configuration from flags, variables and the file.

    @param flags: The given flags, by key; C{config} is the path of the file.
    @param environment: The environment variables of the process.
    @raise ConfigurationError: If keys are unknown or values are invalid; with all mistakes.
    """
    reading = readAll(flags, environment)
    raiseErrors(reading.errors)
    configuration = _assemble(reading.values, reading.gateway, reading.cluster, reading.vault)
    return evolve(configuration, origins=reading.origins, signIn=reading.signIn)


def loadAgain(flags: Mapping[str, object], environment: Mapping[str, str]) -> Configuration:
    """
    Read the configuration for a reload, see L{load}.

    @raise ConfigurationError: Also if the file is a pipe: it would be empty when it is read again,
        so that a reload would replace each of its values by the default.
    """
    path = str(flags.get("config") or "")
    # Other files that cannot be read are reported by load().
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ConfigurationError(
            f"config (file {path}): not a regular file, so it is read only once"
        )
    return load(flags, environment)


def overriddenErrors(flags: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """Return the mistakes of all values, though a later source may override them."""
    found: list[str] = []
    path = str(flags.get("config") or "")
    table: dict[str, Any] = {}
    if path:
        with collectErrors(found):
            table = _readFile(path)
    for name in (_GATEWAY, _CLUSTER, _VAULT, _SIGN_IN):
        table.pop(name, None)
    for item in (
        *_fromTable(table, f"file {path}", found),
        *_fromVariables(environment, found),
        *_fromFlags(flags),
    ):
        with collectErrors(found):
            _read(item)
    return found


def readAll(flags: Mapping[str, object], environment: Mapping[str, str]) -> Reading:
    """Read the valid part of a configuration, see L{load}."""
    errors: list[str] = []
    table: dict[str, Any] = {}
    gateway: Mapping[str, Any] = {}
    cluster: Mapping[str, Any] | None = None
    vault: Mapping[str, Any] | None = None
    signIn: Mapping[str, Any] = {}
    found = {key.name: _Found(key, key.default, "default") for key in KEYS if key.default}
    if environment.get("STATE_DIRECTORY"):
        # systemd separates the directories with colons if a unit has several.
        directory = environment["STATE_DIRECTORY"].split(":")[0]
        found["data"] = _Found(found["data"].key, directory, "variable STATE_DIRECTORY")
    path = str(flags.get("config") or "")
    if path:
        with collectErrors(errors):
            table = _readFile(path)
        with collectErrors(errors):
            gateway = _takeTable(table, _GATEWAY, path) or {}
        with collectErrors(errors):
            cluster = _takeTable(table, _CLUSTER, path)
        with collectErrors(errors):
            vault = _takeTable(table, _VAULT, path)
        with collectErrors(errors):
            signIn = _takeTable(table, _SIGN_IN, path) or {}
    for source in (
        _fromTable(table, f"file {path}", errors),
        _fromVariables(environment, errors),
        _fromFlags(flags),
    ):
        found.update((item.key.name, item) for item in source)
    for present, absent in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        if present in found and absent not in found:
            origin = found[present].origin
            errors.append(f"{absent}: missing, though {present} is set ({origin})")
    options = providers = None
    with collectErrors(errors):
        options = _readCluster(cluster, environment, path)
    with collectErrors(errors):
        providers = _readVault(vault, environment, path)
    if providers is not None and "masterKeys" in found:
        errors.append("masterKeys: set, though [vault] has the master keys; remove one of them")
    with collectErrors(errors):
        _checkSignIn(signIn, path)
    values = {}
    for name, item in found.items():
        with collectErrors(errors):
            values[name] = _read(item)
    if values.get("gatewayOnS3") and values.get("s3", "") is None:
        errors.append("gatewayOnS3: true, though the S3 listener is off")
    with collectErrors(errors):
        _trustedProxies(gateway)
    origins = {name: item.origin for name, item in found.items()}
    return Reading(values, origins, gateway, options, providers, signIn, errors)


def restore(options: Mapping[str, Any]) -> Configuration:
    """Make a configuration from the result of L{portable} in another process."""
    values, cluster, vault = options["values"], options["cluster"], options["vault"]
    restored = _assemble(
        {**values, "service": tuple(values.get("service", ()))},
        options["gateway"],
        _readCluster(cluster, {}, ""),
        _readVault(vault, {}, ""),
    )
    return evolve(restored, origins=options["origins"], signIn=options["signIn"])


def portable(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration in JSON types, for another process."""
    cluster, vault = configuration.cluster, configuration.vault
    return {
        "values": configuration.values,
        "gateway": configuration.gateway,
        "cluster": None if cluster is None else asdict(cluster),
        "vault": None if vault is None else asdict(vault),
        "origins": configuration.origins,
        "signIn": configuration.signIn,
    }


def needRestart(old: Configuration, new: Configuration) -> list[str]:
    """Return the changed keys that a running daemon cannot apply."""
    names = [
        key.name
        for key in KEYS
        if not key.reloads and old.values.get(key.name) != new.values.get(key.name)
    ]
    tables = (
        (_GATEWAY, old.gateway, new.gateway),
        (_CLUSTER, old.cluster, new.cluster),
        (_VAULT, old.vault, new.vault),
        (_SIGN_IN, old.signIn, new.signIn),
    )
    return [*names, *(name for name, before, after in tables if before != after)]


def withoutRestart(started: Configuration, loaded: Configuration) -> Configuration:
    """
    Return the configuration that a running daemon serves with after a reload.

    @param started: The configuration at the start; L{needRestart} names what differs.
    @param loaded: The configuration of the reload, for the keys that a reload applies.
    """
    reloads = {key.name for key in KEYS if key.reloads}
    values = {name: value for name, value in started.values.items() if name not in reloads}
    values |= {name: value for name, value in loaded.values.items() if name in reloads}
    served = _assemble(values, started.gateway, started.cluster, started.vault)
    return evolve(
        served,
        # A supervisor has set the addresses and the root key pair of its workers.
        listeners=started.listeners,
        s3=replace(served.s3, root=loaded.s3.root),
        origins=started.origins,
        signIn=started.signIn,
    )


def applied(old: Configuration, new: Configuration, *, isReplacing: bool) -> list[str]:
    """
    Return the changed keys that a reload applies.

    @param isReplacing: Whether the workers are replaced, which applies all keys that are not
        shared.
    """
    names = [
        key.name
        for key in KEYS
        if (key.reloads or (isReplacing and not key.isShared))
        and old.values.get(key.name) != new.values.get(key.name)
    ]
    if not isReplacing:
        return names
    tables = ((_GATEWAY, old.gateway, new.gateway), (_SIGN_IN, old.signIn, new.signIn))
    return [*names, *(name for name, before, after in tables if before != after)]


def _readFile(path: str) -> dict[str, Any]:
    # Imported late: it takes 0.1 MB.
    import tomllib

    origin = f"file {path}"
    try:
        return tomllib.loads(readSmallFile(path, _FILE_LIMIT).decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"config ({origin}): {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"config ({origin}): {reason}") from error


def _takeTable(table: dict[str, Any], name: str, path: str) -> Mapping[str, Any] | None:
    """Remove a table of options from a file: its options are not keys."""
    part = table.pop(name, None)
    if part is not None and not isinstance(part, dict):
        raise ConfigurationError(f"{name} (file {path}): expected a table")
    return part


def _readCluster(
    table: Mapping[str, Any] | None, environment: Mapping[str, str], path: str
) -> "ClusterOptions | None":
    """Read the table of the cluster, see L{_readOptions}."""

    def read(given: Mapping[str, Any]) -> "ClusterOptions":
        from storagegate.cluster.options import ClusterOptions

        return makeOptions(ClusterOptions, given, f"{_CLUSTER}.")

    return _readOptions(_CLUSTER, read, CLUSTER_VARIABLES, table, environment, path)


def _readVault(
    table: Mapping[str, Any] | None, environment: Mapping[str, str], path: str
) -> "VaultOptions | None":
    """Read the table of Vault, see L{_readOptions}."""

    def read(given: Mapping[str, Any]) -> "VaultOptions":
        from storagegate.objects.encryption.masterkeys.options import readVault

        return readVault(given)

    return _readOptions(_VAULT, read, VAULT_VARIABLES, table, environment, path)


def _readOptions(
    title: str,
    read: Callable[[Mapping[str, Any]], T],
    variables: Mapping[str, str],
    table: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    path: str,
) -> T | None:
    """
    Read a table of options, and the variables that override it.

    @param title: The name of the table.
    @param table: The table of the file; L{None} for none. An empty table is incomplete: without it,
        the daemon would start with another store or other keys.
    @param read: Reads the options.
    @param variables: The variables, with the option of each; C{a.b} is option C{b} of table C{a}.
    @param path: The path of the file, for errors.
    @return: The options; C{None} if none are set.
    @raise ConfigurationError: If an option is invalid. The text does not contain its value.
    """
    given = dict(table or {})
    origins = dict.fromkeys(given, f"file {path}")
    for variable, option in variables.items():
        if environment.get(variable):
            name, _, inner = option.partition(".")
            value: Any = environment[variable]
            if inner:
                outer = given.get(name)
                value = {**(outer if isinstance(outer, Mapping) else {}), inner: value}
            given[name], origins[name] = value, f"variable {variable}"
    if not given and table is None:
        return None
    origins = origins or {title: f"file {path}"}
    try:
        return read(given)
    except ImportError as error:
        reason = missingExtra(error)
        if reason is None:
            raise
        raise ConfigurationError(f"{title}: {reason}") from error
    except OptionError as error:
        raise ConfigurationError(
            *(_optionError(title, each, origins) for each in error.errors)
        ) from error


def _checkSignIn(table: Mapping[str, Any], path: str) -> None:
    """
    Check the tables of the issuers of the console.

    @param path: The path of the file, for errors.
    @raise ConfigurationError: If an option is invalid. The text does not contain its value.
    """
    if not table:
        return
    try:
        # PyJWT and the client of issuers take megabytes, so they are imported only if needed.
        from storagegate.console.issueroptions import readIssuers

        readIssuers(table)
    except OptionError as error:
        raise ConfigurationError(
            *(
                f"{_SIGN_IN} (file {path}): {each.removeprefix('the option ')}"
                for each in error.errors
            )
        ) from error


def _optionError(title: str, error: str, origins: Mapping[str, str]) -> str:
    """Add the origin of the option to an error of a table."""
    wrong = [name for name in origins if f" {title}.{name} " in f"{error} ".replace(";", " ")]
    origin = origins[wrong[0]] if wrong else ", ".join(sorted(set(origins.values())))
    return f"{title} ({origin}): {error.removeprefix('the option ')}"


def _fromTable(table: Mapping[str, Any], origin: str, errors: list[str]) -> Iterator[_Found]:
    """Yield the values of the file; append the unknown keys to the errors."""
    known = {key.name: key for key in KEYS}
    for name, raw in table.items():
        if name in known:
            yield _Found(known[name], raw, origin)
        else:
            errors.append(f"{name!r} ({origin}): unknown key")


def _fromVariables(environment: Mapping[str, str], errors: list[str]) -> Iterator[_Found]:
    """Yield the values of variables; append the unknown keys to the errors."""
    known = {key.variable: key for key in KEYS}
    for variable, raw in environment.items():
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable not in known:
            if variable in CLUSTER_VARIABLES or variable in VAULT_VARIABLES:
                continue
            if _FOREIGN_VARIABLE.fullmatch(variable):
                continue
            errors.append(f"{variable} (variable): unknown key")
            continue
        # Many tools set an empty variable to mean that it is not set.
        if raw:
            yield _Found(known[variable], raw, f"variable {variable}")


def _fromFlags(flags: Mapping[str, object]) -> Iterator[_Found]:
    for key in KEYS:
        if flags.get(key.name) is not None:
            yield _Found(key, flags[key.name], f"flag --{key.name}")


def _read(item: _Found) -> Any:
    try:
        return item.key.read(item.raw)
    except ValueError as error:
        # The operator's line must not contain long or secret values.
        got = "" if item.key.secret else f", not {item.raw!r:.80}"
        raise ConfigurationError(f"{item.key.name} ({item.origin}): {error}{got}") from error


def _trustedProxies(gateway: Mapping[str, Any]) -> Any:
    """Return the gateway's option, which the S3 listener shares."""
    value = gateway.get("trustedProxies", False)
    try:
        compileTrust(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"gateway.trustedProxies: {error}") from error
    return value


def _assemble(
    values: Mapping[str, Any],
    gateway: Mapping[str, Any],
    cluster: "ClusterOptions | None",
    vault: "VaultOptions | None",
) -> Configuration:
    root = None
    if "accessKey" in values:
        root = KeyPair(values["accessKey"], values["secretKey"])
    monitoring = gateway.get("monitoring", {})
    if values.get("accessLog") is not None and isinstance(monitoring, Mapping):
        # An access log file implies that requests are logged.
        gateway = {**gateway, "monitoring": {"logging": {}, **monitoring}}
    return Configuration(
        listeners=ListenerOptions(
            values["s3"],
            values["admin"],
            {row.name: values[row.name] for row in listenerTransports()},
            values["http2"],
            values["http2MaxStreams"],
            values["gatewayOnS3"],
        ),
        store=StoreOptions(
            values["data"],
            values["durability"],
            values["verifyReads"],
            values["lifecycleDaySeconds"],
            values["bucketMetrics"],
            values.get("masterKeys", ""),
            values["encryptAll"],
            values["keyCacheSeconds"],
            vault,
            values["blockCustomerKeys"],
        ),
        s3=S3Options(
            values["region"],
            values.get("s3Domain"),
            root,
            values["requireSignedPayload"],
            values["lifecycleDaySeconds"],
            values.get("objectOwnership", ""),
            _trustedProxies(gateway),
            values["customerKeysOverHTTP"],
        ),
        services=values.get("service", ()),
        gateway=gateway,
        workers=values["workers"],
        shutdownGraceSeconds=values["shutdownGraceSeconds"],
        heldBytes=values["heldBytes"],
        reactor=values["reactor"],
        logFormat=values["logFormat"],
        logLevel=values["logLevel"],
        accessLog=values.get("accessLog"),
        values=values,
        cluster=cluster,
    )
