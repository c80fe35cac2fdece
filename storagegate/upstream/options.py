"""
The options of C{configureServiceDiscovery}: services, their instances, providers and routing.

A secret is never an option, but the name of a file: it is read again at each use, so that it can be
replaced without a restart, and its content is in no log and no list.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict, TypeVar

from attrs import AttrsInstance, Factory, evolve, field, frozen
from attrs.converters import optional

from storagegate.core.definitions import STREAMING
from storagegate.core.options import (
    MERGED,
    OptionError,
    changeOptions,
    groupField,
    makeOptions,
    optionField,
    readFieldName,
    readFlag,
    readNumber,
    readWord,
)
from storagegate.net.tls import ClientTLSOptions, InstanceTLSOptions, checkPair, readFile

T = TypeVar("T", bound=AttrsInstance)

AUTO = "auto-discover"
"""In the place of instances: the provider knows them."""

# More is a typing error, and the cycle of the weighted strategy would be long.
MAX_WEIGHT = 1_000

MAX_INSTANCES = 1_000
"""Instances of one service: every gateway checks the health of each of them."""

STRATEGIES = ("round_robin", "least_connections", "weighted")

PROVIDERS = ("static", "dns", "consul", "etcd", "kubernetes")

SECURED = ("consul", "etcd", "kubernetes")
"""The providers with a table C{tls}."""

REGISTRIES = ("consul", "etcd")
"""The providers with which instances can register themselves."""

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The directory of a pod's credentials."""

# A day: a call that is to have no limit is found in the list of calls the next morning.
_MAX_TIMEOUT_MS = 86_400_000

# At one check an hour, health checks have no effect any more.
_MAX_INTERVAL_MS = 3_600_000

# Each of them may be a call that failed slowly.
_MAX_RETRIES = 10

# In a row; more only show that the interval is too short.
_MAX_CHECKS = 100

# Each is a connection with its buffers, or a request in memory.
_MAX_CALLS = 100_000

# A longer list is a mistake, and there may be a wait for each of its entries.
_MAX_LISTED = 32


def _matching(pattern: str, problem: str) -> Callable[[Any], str]:
    """Make the reader of texts that a pattern matches; its name in errors is C{problem}."""
    matches = re.compile(pattern).fullmatch

    def read(value: Any) -> str:
        if not isinstance(value, str) or matches(value) is None:
            raise ValueError(problem)
        return value

    return read


# What may stand in a URL: names, IPv4 and IPv6 addresses, those with a zone too.
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}(%[A-Za-z0-9_.-]{1,32})?")


def readHost(value: Any) -> str:
    """Read the name or address of a machine, without brackets."""
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise ValueError("is the name or address of a machine")
    return value


readPath = _matching(r'/[!"$->@-~]*', 'is a path such as "/health"')
"""Reads the path of a URL, without a query."""

# It becomes a part of paths, of queries and of names in DNS.
_readKnownAs = _matching(r"""[!"$'-.0->@-~]{1,253}""", "is the name of a service")

# It stands in a query or in a header field.
_readWord = _matching(r"[ -~]+", "is a name")

# The URL of an API; one behind a proxy has a path.
_ADDRESS = re.compile(
    r"""https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?(/[!"$->@-~]*)?"""
)

_RESOLVER = re.compile(r"([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?")


def _readSecret(value: Any) -> str:
    # A guessed secret only lets a client choose an instance; shorter ones would be guessed.
    if not isinstance(value, str) or not 16 <= len(value) <= 1024:
        raise ValueError("is a text of 16 to 1024 characters")
    return value


def _readID(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 300 or not value.isprintable():
        raise ValueError("is a name")
    return value


def _readServedPort(value: Any) -> int:
    return readNumber(value, 1, 65535)


def _readWeight(value: Any) -> int:
    return readNumber(value, 1, MAX_WEIGHT)


def _readBasePath(value: Any) -> str:
    return "" if value == "" else readPath(value).rstrip("/")


def _readAddress(value: Any) -> str:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or 1) < 65536:
        raise ValueError('is an address such as "http://127.0.0.1:8500"')
    return match[0].rstrip("/")


def _readList(value: Any, read: Callable[[Any], Any], problem: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_LISTED:
        raise ValueError(problem)
    return tuple(map(read, value))


def _readAddresses(value: Any) -> tuple[str, ...]:
    problem = 'is a list of addresses such as "http://127.0.0.1:2379"'
    if not value:
        raise ValueError(problem)
    return _readList([value] if isinstance(value, str) else value, _readAddress, problem)


def _readResolvers(value: Any) -> tuple[tuple[str, int], ...]:
    problem = 'is a list of addresses such as "127.0.0.1:53"'

    def read(each: Any) -> tuple[str, int]:
        if isinstance(each, tuple):
            return each
        match = _RESOLVER.fullmatch(each) if isinstance(each, str) else None
        if match is None or not 0 < int(match[2] or 53) < 65536:
            raise ValueError(problem)
        return match[1].strip("[]"), int(match[2] or 53)

    return _readList(value, read, problem)


def _readWords(value: Any) -> tuple[str, ...]:
    return _readList(value, _readWord, "is a list of names")


def _readPrefix(value: Any) -> str:
    if not isinstance(value, str) or not value.strip("/") or not value.isprintable():
        raise ValueError('is what keys begin with, such as "/storagegate/services"')
    return value.rstrip("/")


def _readNames(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services to names")
    return {str(service): _readKnownAs(name) for service, name in value.items()}


def _timeoutField() -> Any:
    # An API that has not responded after a minute will not do so.
    return optionField(10_000, readNumber, 10, 60_000, "milliseconds")


@frozen
class Instance:
    """
    The address of an instance of a service.

    @ivar host: Its name or address.
    @ivar port: The port of its HTTP gateway.
    @ivar weight: The number of its calls for one call of an instance of weight 1.
    @ivar id: Its identifier among the instances of the service; the default is C{host:port}.
    @ivar tls: Whether it uses TLS; C{None} for the setting of the service.
    """

    host: str = field(converter=readHost)
    port: int = field(converter=_readServedPort)
    weight: int = field(default=1, converter=_readWeight)
    id: str = field(
        default=Factory(lambda self: formatAddress(self.host, self.port), takes_self=True),
        converter=_readID,
    )
    tls: bool | None = optionField(None, readFlag)


def formatAddress(host: str, port: int) -> str:
    """
    Return an address as it stands in a URL.

    @param host: A name or an IP address; an IPv6 address is put in brackets.
    @param port: The port, 0 to 65535.
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def distinct(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """
    Return the instances without those of a repeated id: several names may have one address.

    @param instances: In order; the first of each id stays.
    """
    known: dict[str, Instance] = {}
    for each in instances:
        known.setdefault(each.id, each)
    return tuple(known.values())


def readInstances(value: Any) -> tuple[Instance, ...] | None:
    """
    Read a list of instances; C{None} for those that the provider knows.

    @param value: A list of at most L{MAX_INSTANCES} instances or tables of their options, or
        C{"auto"}.
    """
    if value == AUTO:
        return None
    isList = isinstance(value, list | tuple)
    if not isList or not all(isinstance(each, Mapping | Instance) for each in value):
        raise ValueError(f'is a list of instances, or "{AUTO}"')
    if len(value) > MAX_INSTANCES:
        raise ValueError(f"has more than {MAX_INSTANCES} instances")
    return distinct(
        each if isinstance(each, Instance) else makeOptions(Instance, each, f"instances[{index}].")
        for index, each in enumerate(value)
    )


@frozen
class Entry:
    """
    One service of this daemon, as it is registered.

    @ivar service: Its name at the registry.
    @ivar id: The identifier of the entry, unique at the registry.
    @ivar tls: Whether clients have to use TLS.
    """

    service: str
    id: str
    host: str
    port: int
    weight: int
    tls: bool
    tags: tuple[str, ...]


@frozen(kw_only=True)
class RemoteMethod:
    """
    One method of a remote service.

    @ivar streaming: Which are streams: the requests, the responses, both or none.
    @ivar idempotent: Whether a call may be repeated when its outcome is unknown.
    @ivar timeoutMs: How long an instance may take to respond; without it that of the service.
    """

    streaming: str = optionField("none", readWord, STREAMING)
    idempotent: bool = field(default=False, converter=readFlag)
    timeoutMs: int | None = optionField(None, readNumber, 1, _MAX_TIMEOUT_MS, "milliseconds")


def _readMethods(value: Any) -> Mapping[str, RemoteMethod]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of methods")
    return {
        name: _readEntry(RemoteMethod, given, f"methods.{name}") for name, given in value.items()
    }


def _readEntry(kind: type[T], given: Any, name: str) -> T:
    """Read the options of one entry of a mapping."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping of options")
    return makeOptions(kind, given, f"{name}.")


def _tls(value: Any) -> InstanceTLSOptions:
    if not isinstance(value, InstanceTLSOptions):
        raise ValueError("is a mapping of options")
    return value


@frozen(kw_only=True)
class DiscoveredService:
    """
    Where one service is, and how it is called there.

    @ivar strategy: How calls are spread over instances.
    @ivar instances: Where they are; without it, or with C{auto-discover}, the provider knows.
    @ivar name: Its name at the provider; without it its own.
    @ivar methods: Its methods by name; one that is not named is unary.
    @ivar tls: How they are called over TLS; C{None} unless it was given: then TLS is used only for
        instances that are listed with it.
    @ivar basePath: The path of the gateways of the instances.
    @ivar timeoutMs: How long an instance may take to respond to a unary call; streams have the
        deadline of their caller alone.
    @ivar connectTimeoutMs: How long a connection to one may take.
    @ivar retries: How often a call may be tried again on another instance.
    @ivar retryPercent: How many of a hundred calls may be such tries, beside one a second and
        a reserve of a hundred.
    @ivar healthCheck: The path at which an instance responds with 2xx if it is healthy, on the port
        of its gateway; without it there are no checks.
    @ivar healthIntervalMs: The time between two checks.
    @ivar healthTimeoutMs: How long the response may take.
    @ivar unhealthyAfter: Failed checks in a row after which it is not.
    @ivar healthyAfter: Good checks in a row after which it is again.
    @ivar ejectAfter: Failed calls in a row after which an instance gets none for a while.
    @ivar ejectMs: How long that is the first time; it doubles each time in a row,
        and then one call may try.
    @ivar maxEjectMs: How long at most.
    @ivar maxConnections: Calls in flight of one instance, streams included.
    @ivar maxQueue: Calls that wait until an instance may have another.
    """

    strategy: str = optionField("round_robin", readWord, STRATEGIES)
    instances: tuple[Instance, ...] | None = optionField(None, readInstances)
    name: str | None = optionField(None, _readKnownAs)
    methods: Mapping[str, RemoteMethod] = field(factory=dict, converter=_readMethods)
    tls: InstanceTLSOptions | None = field(
        default=None, converter=optional(_tls), metadata={MERGED: True}
    )
    basePath: str = field(default="/api", converter=_readBasePath)
    timeoutMs: int = optionField(30_000, readNumber, 1, _MAX_TIMEOUT_MS, "milliseconds")
    # Instances are near; a third packet would be sent after three seconds.
    connectTimeoutMs: int = optionField(1_000, readNumber, 1, _MAX_TIMEOUT_MS, "milliseconds")
    retries: int = optionField(2, readNumber, 0, _MAX_RETRIES)
    retryPercent: int = optionField(20, readNumber, 0, 100)
    healthCheck: str | None = optionField(None, readPath)
    healthIntervalMs: int = optionField(2_000, readNumber, 10, _MAX_INTERVAL_MS, "milliseconds")
    healthTimeoutMs: int = optionField(1_000, readNumber, 1, _MAX_TIMEOUT_MS, "milliseconds")
    unhealthyAfter: int = optionField(2, readNumber, 1, _MAX_CHECKS)
    healthyAfter: int = optionField(1, readNumber, 1, _MAX_CHECKS)
    ejectAfter: int = optionField(5, readNumber, 1, _MAX_CHECKS)
    ejectMs: int = optionField(1_000, readNumber, 10, _MAX_INTERVAL_MS, "milliseconds")
    maxEjectMs: int = optionField(60_000, readNumber, 10, _MAX_INTERVAL_MS, "milliseconds")
    # What one connection of a client may have in flight: many clients need more instances.
    maxConnections: int = optionField(128, readNumber, 1, _MAX_CALLS)
    maxQueue: int = optionField(128, readNumber, 1, _MAX_CALLS)


def readServices(value: Any) -> Mapping[str, DiscoveredService]:
    """Read a mapping of services by name."""
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services")
    return {name: _service(name, given) for name, given in value.items()}


def _service(name: str, given: Any) -> DiscoveredService:
    if given == AUTO:
        return DiscoveredService()
    if isinstance(given, Mapping) and isinstance(given.get("tls"), Mapping):
        # Here, where the whole name of a wrong option is known.
        tls = makeOptions(InstanceTLSOptions, given["tls"], f"services.{name}.tls.")
        given = {**given, "tls": tls}
    return _readEntry(DiscoveredService, given, f"services.{name}")


@frozen(kw_only=True)
class DNSOptions:
    """
    The options of the provider C{dns}.

    @ivar resolvers: The servers, C{address:port}; empty for those of C{/etc/resolv.conf}.
    @ivar port: Where a service is whose name has addresses and no SRV records.
    @ivar timeoutMs: For one query to one resolver.
    @ivar minTtlMs: The shortest time that a reply is used for, also if its own TTL is shorter.
    @ivar maxTtlMs: The longest.
    """

    resolvers: tuple[tuple[str, int], ...] = field(default=(), converter=_readResolvers)
    port: int | None = optionField(None, _readServedPort)
    timeoutMs: int = optionField(2_000, readNumber, 10, 60_000, "milliseconds")
    # Under a second a resolver is flooded; a daily change is still found the day after.
    minTtlMs: int = optionField(5_000, readNumber, 1_000, 86_400_000, "milliseconds")
    maxTtlMs: int = optionField(300_000, readNumber, 1_000, 86_400_000, "milliseconds")


@frozen(kw_only=True)
class ConsulOptions:
    """
    The options of the provider C{consul}.

    @ivar address: That of an agent.
    @ivar tokenFile: A file with the token.
    @ivar datacenter: Whose instances; without it those of the agent's own.
    @ivar namespace: The same, of Consul Enterprise.
    @ivar tags: An instance must have all of them.
    @ivar waitMs: How long a blocking query waits for a change.
    @ivar timeoutMs: How much longer a response may take.
    @ivar tls: How the certificate of an C{https} address is verified.
    """

    address: str = field(default="http://127.0.0.1:8500", converter=_readAddress)
    tokenFile: str | None = optionField(None, readFile)
    datacenter: str | None = optionField(None, _readWord)
    namespace: str | None = optionField(None, _readWord)
    tags: tuple[str, ...] = field(default=(), converter=_readWords)
    # Consul waits ten minutes at most.
    waitMs: int = optionField(60_000, readNumber, 1_000, 600_000, "milliseconds")
    timeoutMs: int = _timeoutField()
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class EtcdOptions:
    """
    The options of the provider C{etcd}.

    @ivar addresses: Those of the members of a cluster; when one fails, the next one is used.
    @ivar prefix: What the keys C{prefix/service/instance} begin with.
    @ivar username: The user, where authentication is on.
    @ivar passwordFile: A file with the password.
    @ivar timeoutMs: For one response.
    @ivar tls: How the certificate of an C{https} address is verified.
    """

    addresses: tuple[str, ...] = field(default=("http://127.0.0.1:2379",), converter=_readAddresses)
    prefix: str = field(default="/storagegate/services", converter=_readPrefix)
    username: str | None = optionField(None, _readWord)
    passwordFile: str | None = optionField(None, readFile)
    timeoutMs: int = _timeoutField()
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class KubernetesOptions:
    """
    The options of the provider C{kubernetes}; the defaults are those of the pod's service account.

    @ivar address: That of the API; without it that of the pod's environment.
    @ivar tokenFile: A file with the token.
    @ivar namespace: Where services are; without it in the pod's own.
    @ivar portName: Which port of a service is meant; without it the only one, or C{http}.
    @ivar timeoutMs: For one response.
    @ivar tls: How the certificate of the API is verified.
    """

    address: str | None = optionField(None, _readAddress)
    tokenFile: str | None = optionField(None, readFile)
    namespace: str | None = optionField(None, _readKnownAs)
    portName: str | None = optionField(None, _readWord)
    timeoutMs: int = _timeoutField()
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class RegisterOptions:
    """
    How this daemon registers itself.

    @ivar services: Which services, and the name of each at the registry; without it all that are
        served here, by their own names.
    @ivar address: The address of this machine for others; without it the HTTP listener's interface,
        which then must be one that others can reach.
    @ivar port: The port there; without it the HTTP listener's.
    @ivar weight: The number of its calls for one call of an instance of weight 1.
    @ivar tls: Whether clients have to use TLS.
    @ivar tags: The tags of the instance in Consul.
    @ivar ttlSeconds: How long an entry is kept without being renewed.
    """

    services: Mapping[str, str] | None = optionField(None, _readNames)
    address: str | None = optionField(None, readHost)
    port: int | None = optionField(None, _readServedPort)
    weight: int = field(default=1, converter=_readWeight)
    tls: bool = field(default=False, converter=readFlag)
    tags: tuple[str, ...] = field(default=(), converter=_readWords)
    # Three renewals fit into it, and a dead daemon is forgotten within the hour.
    ttlSeconds: int = optionField(15, readNumber, 3, 3_600, "seconds")


def ownCluster() -> str:
    """Return the URL of the API of the cluster that this process runs in; empty in none."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isascii() or not port.isdigit():
        return ""
    return f"https://{formatAddress(host, int(port))}"


@frozen(kw_only=True)
class HTTPRouting:
    """
    Which calls over HTTP stay together.

    @ivar sticky_sessions: Whether calls of one session go to one instance.
    @ivar session_header: The header field that names the session; calls without it are known by a
        cookie that the first response sets.
    @ivar cookie_secret: The key that signs that cookie; where none is given, a secret of this
        process, and in the daemon that of the file C{affinity-secret} in the data directory.
    """

    sticky_sessions: bool = field(default=False, converter=readFlag)
    session_header: str = field(default="X-Session-ID", converter=readFieldName)
    cookie_secret: str | None = field(default=None, converter=optional(_readSecret), repr=False)


@frozen(kw_only=True)
class WebSocketRouting:
    """
    Which calls over WebSocket stay together.

    @ivar connection_affinity: Whether the calls of one connection go to one instance.
    """

    connection_affinity: bool = field(default=False, converter=readFlag)


@frozen(kw_only=True)
class GRPCRouting:
    """
    How calls over gRPC are spread.

    @ivar load_balancing: The strategy of these calls, in place of that of the service.
    """

    load_balancing: str | None = optionField(None, readWord, STRATEGIES)


@frozen(kw_only=True)
class RoutingOptions:
    """
    Which calls stay together; those of UDP and TCP are each for themselves.

    @ivar http: Which of HTTP.
    @ivar websocket: Which of WebSocket.
    @ivar grpc: How those of gRPC are spread.
    """

    http: HTTPRouting = groupField(HTTPRouting)
    websocket: WebSocketRouting = groupField(WebSocketRouting)
    grpc: GRPCRouting = groupField(GRPCRouting)


@frozen(kw_only=True)
class DiscoveryOptions:
    """
    The remote services, and the providers of their instances.

    @ivar provider: The provider of the instances of services that list none here.
    @ivar services: The remote services, by name.
    @ivar routing: Which of their calls stay together.
    @ivar dns: The options of a provider.
    @ivar consul: The same.
    @ivar etcd: The same.
    @ivar kubernetes: The same.
    @ivar register: How this daemon registers itself; C{None} unless it was given: then it does not.
    """

    provider: str | None = optionField(None, readWord, PROVIDERS)
    services: Mapping[str, DiscoveredService] = field(factory=dict, converter=readServices)
    routing: RoutingOptions = groupField(RoutingOptions)
    dns: DNSOptions = groupField(DNSOptions)
    consul: ConsulOptions = groupField(ConsulOptions)
    etcd: EtcdOptions = groupField(EtcdOptions)
    kubernetes: KubernetesOptions = groupField(KubernetesOptions)
    register: RegisterOptions | None = groupField()


class DiscoveryOptionsDict(TypedDict, total=False):
    """The keywords of L{DiscoveryOptions}."""

    provider: Literal["static", "dns", "consul", "etcd", "kubernetes"] | None
    services: Mapping[str, Any]
    routing: Mapping[str, Any] | RoutingOptions
    dns: Mapping[str, Any] | DNSOptions
    consul: Mapping[str, Any] | ConsulOptions
    etcd: Mapping[str, Any] | EtcdOptions
    kubernetes: Mapping[str, Any] | KubernetesOptions
    register: Mapping[str, Any] | RegisterOptions | None


def readDiscovery(before: DiscoveryOptions, changes: Mapping[str, Any]) -> DiscoveryOptions:
    """
    Return options with some changes.

    @param before: The options that stay where C{changes} has no value.
    @param changes: New values by name; groups of options are merged.
    @raise OptionError: If there is no such option, or its value is invalid.
    """
    if before.register is None and isinstance(changes.get("register"), Mapping):
        before = evolve(before, register=RegisterOptions())
    return changeOptions(before, changes)


def checkDiscovery(options: DiscoveryOptions) -> None:
    """
    Check the options that depend on each other.

    @param options: Options that were read one by one.
    @raise OptionError: If an option does not fit the others.
    """
    if options.provider in (None, "static"):
        for name, service in options.services.items():
            if service.instances is None:
                raise OptionError(
                    f'the option services.{name}.instances is "{AUTO}": that needs a provider, '
                    f"one of {', '.join(PROVIDERS[1:])}"
                )
    if options.provider == "kubernetes" and not (options.kubernetes.address or ownCluster()):
        raise OptionError("the option kubernetes.address is missing: this is no pod of a cluster")
    if options.register is not None and options.provider not in REGISTRIES:
        raise OptionError(f"the option register needs a provider, {' or '.join(REGISTRIES)}")
    if (options.etcd.username is None) != (options.etcd.passwordFile is None):
        raise OptionError("the options etcd.username and etcd.passwordFile are given together")
    for group in SECURED:
        checkPair(getattr(options, group).tls, f"{group}.tls")
    for name, service in options.services.items():
        checkPair(service.tls, f"services.{name}.tls")


def tlsTables(options: DiscoveryOptions) -> dict[str, ClientTLSOptions]:
    """
    Return the options of TLS that are used, by the name of their table.

    @param options: Services without TLS, and providers that are not chosen, are left out.
    """
    tables: dict[str, ClientTLSOptions] = {
        f"services.{name}.tls": service.tls
        for name, service in options.services.items()
        if service.tls is not None
    }
    if options.provider in SECURED:
        tables[f"{options.provider}.tls"] = getattr(options, options.provider).tls
    return tables
