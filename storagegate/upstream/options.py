"""
The options of C{configureServiceDiscovery}: services, their instances, providers and routing.

Options never hold a secret; they name the file that holds it. The file is read at each use, so a
secret can be replaced without a restart, and its content never appears in logs or listings.
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
    readEach,
    readFieldName,
    readFlag,
    readNumber,
    readWord,
)
from storagegate.net.tls import ClientTLSOptions, InstanceTLSOptions, checkPair, readFile

T = TypeVar("T", bound=AttrsInstance)

AUTO = "auto-discover"
"""Takes the place of a list of instances: the provider finds them."""

# A larger weight is a typing error, and would make the cycle of the weighted strategy long.
MAX_WEIGHT = 1_000

MAX_INSTANCES = 1_000
"""Limit of the instances of one service: every gateway health-checks each of them."""

STRATEGIES = ("round_robin", "least_connections", "weighted")

PROVIDERS = ("static", "dns", "consul", "etcd", "kubernetes")

SECURED = ("consul", "etcd", "kubernetes")
"""The providers with a table C{tls}."""

REGISTRIES = ("consul", "etcd")
"""The providers with which instances can register themselves."""

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The directory of a pod's credentials."""

# A day: a call that should have no limit still shows up in the list of calls the next morning.
_MAX_TIMEOUT_MS = 86_400_000

# With one check an hour, health checks have no effect.
_MAX_INTERVAL_MS = 3_600_000

# Each retry may follow an attempt that failed slowly.
_MAX_RETRIES = 10

# Checks in a row. A larger number only means that the interval is too short.
_MAX_CHECKS = 100

# Each one is a connection with its buffers, or a request in memory.
_MAX_CALLS = 100_000

# A longer list is a mistake, and each of its entries may cost a wait.
_MAX_LISTED = 32


def _matching(pattern: str, problem: str) -> Callable[[Any], str]:
    """Return a reader of strings that match a pattern; C{problem} is the text of its errors."""
    matches = re.compile(pattern).fullmatch

    def read(value: Any) -> str:
        if not isinstance(value, str) or matches(value) is None:
            raise ValueError(problem)
        return value

    return read


# Characters allowed in a URL: names, IPv4 and IPv6 addresses, also with a zone.
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}(%[A-Za-z0-9_.-]{1,32})?")


def readHost(value: Any) -> str:
    """Read a host name or an IP address without brackets."""
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise ValueError("is the name or address of a host")
    return value


readPath = _matching(r'/[!"$->@-~]*', 'is a path such as "/health"')
"""Reads the path of a URL, without a query."""

# The name becomes part of paths, queries and DNS names.
_readKnownAs = _matching(r"""[!"$'-.0->@-~]{1,253}""", "is the name of a service")

# The word appears in a query or a header field.
_readWord = _matching(r"[ -~]+", "is a name")

# The URL of an API; it has a path if the API is behind a proxy.
_ADDRESS = re.compile(
    r"""https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?(/[!"$->@-~]*)?"""
)

_RESOLVER = re.compile(r"([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?")


def _readSecret(value: Any) -> str:
    # A guessed secret only lets a client choose an instance; a shorter one could be guessed.
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
        raise ValueError('is a prefix of keys, such as "/storagegate/services"')
    return value.rstrip("/")


def _readNames(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services to names")
    return {str(service): _readKnownAs(name) for service, name in value.items()}


def _timeoutField() -> Any:
    # An API that has not responded within a minute will not respond.
    return optionField(10_000, readNumber, 10, 60_000, "milliseconds")


@frozen
class Instance:
    """
    The address of an instance of a service.

    @ivar host: The host name or IP address.
    @ivar port: The port of its HTTP gateway.
    @ivar weight: The number of its calls for one call of an instance of weight 1.
    @ivar id: Its identifier among the instances of the service; the default is C{host:port}.
    @ivar tls: Whether it uses TLS; the default is the setting of the service.
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
    Return an address in the form that URLs use.

    @param host: A name or an IP address; an IPv6 address is put in brackets.
    @param port: The port, 0 to 65535.
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def distinct(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """
    Remove instances whose id is repeated: several names may resolve to one address.

    @param instances: The instances in order; the first one with each id stays.
    """
    known: dict[str, Instance] = {}
    for each in instances:
        known.setdefault(each.id, each)
    return tuple(known.values())


def readInstances(value: Any) -> tuple[Instance, ...] | None:
    """
    Read a list of instances; return C{None} if the provider finds them.

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
    The registry entry of one service of this daemon.

    @ivar service: The name of the service at the registry.
    @ivar id: The identifier of the entry, unique at the registry.
    @ivar tls: Whether clients must use TLS.
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

    @ivar streaming: The kind of streaming: requests, responses, both or none.
    @ivar idempotent: Whether a call may be repeated when its outcome is unknown.
    @ivar timeoutMs: Limit of the response time of an instance; the default is the timeout of the
        service.
    """

    streaming: str = optionField("none", readWord, STREAMING)
    idempotent: bool = field(default=False, converter=readFlag)
    timeoutMs: int | None = optionField(None, readNumber, 1, _MAX_TIMEOUT_MS, "milliseconds")


def _readMethods(value: Any) -> Mapping[str, RemoteMethod]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of methods")
    return readEach(value, lambda name, given: _readEntry(RemoteMethod, given, f"methods.{name}"))


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
    The instances of one remote service, and how they are called.

    @ivar strategy: The load-balancing strategy.
    @ivar instances: The instances; without them, or with C{auto-discover}, the provider finds them.
    @ivar name: Its name at the provider; the default is its own name.
    @ivar methods: Its methods by name; a method that is not listed is unary.
    @ivar tls: The TLS options for its instances; without them, only instances that are listed with
        TLS use it.
    @ivar basePath: The path of the gateways of the instances.
    @ivar timeoutMs: Limit of the response time of an instance in a unary call; streams have only
        the deadline of their caller.
    @ivar connectTimeoutMs: Limit of the time to connect to an instance.
    @ivar retries: The most retries of a call on other instances.
    @ivar retryPercent: The most retries in a hundred calls, in addition to one a second and a
        reserve of a hundred.
    @ivar healthCheck: The path at which a healthy instance responds with 2xx, on the port of its
        gateway; without it instances are not checked.
    @ivar healthIntervalMs: The interval between two checks.
    @ivar healthTimeoutMs: Limit of the response time of a check.
    @ivar unhealthyAfter: Failed checks in a row that make an instance unhealthy.
    @ivar healthyAfter: Successful checks in a row that make it healthy again.
    @ivar ejectAfter: Failed calls in a row that eject an instance.
    @ivar ejectMs: Duration of the first ejection; it doubles with each ejection in a row. After it,
        one call may try the instance.
    @ivar maxEjectMs: The longest ejection.
    @ivar maxConnections: The most calls in flight at one instance, streams included.
    @ivar maxQueue: The most calls that wait for an instance with capacity.
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
    # Instances are near; a third SYN would be sent after three seconds.
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
    # The calls that one client connection may have in flight: many clients need more instances.
    maxConnections: int = optionField(128, readNumber, 1, _MAX_CALLS)
    maxQueue: int = optionField(128, readNumber, 1, _MAX_CALLS)


def readServices(value: Any) -> Mapping[str, DiscoveredService]:
    """Read a mapping of services by name."""
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services")
    return readEach(value, _service)


def _service(name: str, given: Any) -> DiscoveredService:
    if given == AUTO:
        return DiscoveredService()
    if isinstance(given, Mapping) and isinstance(given.get("tls"), Mapping):
        # Read here, where the full name of an invalid option is known.
        tls = makeOptions(InstanceTLSOptions, given["tls"], f"services.{name}.tls.")
        given = {**given, "tls": tls}
    return _readEntry(DiscoveredService, given, f"services.{name}")


@frozen(kw_only=True)
class DNSOptions:
    """
    The options of the provider C{dns}.

    @ivar resolvers: The servers, C{address:port}; empty to use C{/etc/resolv.conf}.
    @ivar port: The port of a service whose name has addresses but no SRV records.
    @ivar timeoutMs: Timeout of one query to one resolver.
    @ivar minTtlMs: Lower bound of the time that a reply is used, even if its TTL is shorter.
    @ivar maxTtlMs: Upper bound of the time that a reply is used.
    """

    resolvers: tuple[tuple[str, int], ...] = field(default=(), converter=_readResolvers)
    port: int | None = optionField(None, _readServedPort)
    timeoutMs: int = optionField(2_000, readNumber, 10, 60_000, "milliseconds")
    # Below a second the queries would flood a resolver; a daily change is found within a day.
    minTtlMs: int = optionField(5_000, readNumber, 1_000, 86_400_000, "milliseconds")
    maxTtlMs: int = optionField(300_000, readNumber, 1_000, 86_400_000, "milliseconds")


@frozen(kw_only=True)
class ConsulOptions:
    """
    The options of the provider C{consul}.

    @ivar address: The address of an agent.
    @ivar tokenFile: A file with the token.
    @ivar datacenter: The data center of the instances; the default is the agent's own.
    @ivar namespace: The namespace of the instances, in Consul Enterprise.
    @ivar tags: Tags that an instance must all have.
    @ivar waitMs: The time that a blocking query waits for a change.
    @ivar timeoutMs: The additional time that a response may take.
    @ivar tls: The verification of the certificate of an C{https} address.
    """

    address: str = field(default="http://127.0.0.1:8500", converter=_readAddress)
    tokenFile: str | None = optionField(None, readFile)
    datacenter: str | None = optionField(None, _readWord)
    namespace: str | None = optionField(None, _readWord)
    tags: tuple[str, ...] = field(default=(), converter=_readWords)
    # Consul waits at most ten minutes.
    waitMs: int = optionField(60_000, readNumber, 1_000, 600_000, "milliseconds")
    timeoutMs: int = _timeoutField()
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class EtcdOptions:
    """
    The options of the provider C{etcd}.

    @ivar addresses: The addresses of the members of a cluster; when one fails, the next one is
        used.
    @ivar prefix: The prefix of the keys C{prefix/service/instance}.
    @ivar username: The user name, if authentication is enabled.
    @ivar passwordFile: A file with the password.
    @ivar timeoutMs: Timeout of one response.
    @ivar tls: The verification of the certificate of an C{https} address.
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
    The options of the provider C{kubernetes}; the pod's service account supplies the defaults.

    @ivar address: The address of the API; the default is in the pod's environment.
    @ivar tokenFile: A file with the token.
    @ivar namespace: The namespace of the services; the default is the pod's own.
    @ivar portName: The name of the port of a service; the default is its only port, or C{http}.
    @ivar timeoutMs: Timeout of one response.
    @ivar tls: The verification of the certificate of the API.
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

    @ivar services: The services to register, with the name of each at the registry; the default is
        all services of this daemon, under their own names.
    @ivar address: The address at which other machines reach this one; the default is the interface
        of the HTTP listener, which must then be reachable.
    @ivar port: The port at that address; the default is the port of the HTTP listener.
    @ivar weight: The number of its calls for one call of an instance of weight 1.
    @ivar tls: Whether clients must use TLS.
    @ivar tags: The tags of the instance in Consul.
    @ivar ttlSeconds: The time to live of an entry that is not renewed.
    """

    services: Mapping[str, str] | None = optionField(None, _readNames)
    address: str | None = optionField(None, readHost)
    port: int | None = optionField(None, _readServedPort)
    weight: int = field(default=1, converter=_readWeight)
    tls: bool = field(default=False, converter=readFlag)
    tags: tuple[str, ...] = field(default=(), converter=_readWords)
    # Long enough for three renewals; a dead daemon is removed within the hour.
    ttlSeconds: int = optionField(15, readNumber, 3, 3_600, "seconds")


def ownCluster() -> str:
    """Return the API's URL of the surrounding Kubernetes cluster; empty outside of one."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isascii() or not port.isdigit():
        return ""
    return f"https://{formatAddress(host, int(port))}"


@frozen(kw_only=True)
class HTTPRouting:
    """
    The affinity of HTTP calls.

    @ivar sticky_sessions: Whether calls of one session go to one instance.
    @ivar session_header: The header field that names the session; calls without it are identified
        by a cookie that the first response sets.
    @ivar cookie_secret: The key that signs that cookie. The default is a secret of this process;
        the daemon reads it from the file C{affinity-secret} in the data directory.
    """

    sticky_sessions: bool = field(default=False, converter=readFlag)
    session_header: str = field(default="X-Session-ID", converter=readFieldName)
    cookie_secret: str | None = field(default=None, converter=optional(_readSecret), repr=False)


@frozen(kw_only=True)
class WebSocketRouting:
    """
    The affinity of WebSocket calls.

    @ivar connection_affinity: Whether the calls of one connection go to one instance.
    """

    connection_affinity: bool = field(default=False, converter=readFlag)


@frozen(kw_only=True)
class GRPCRouting:
    """
    The load balancing of gRPC calls.

    @ivar load_balancing: The strategy of these calls; it replaces the strategy of the service.
    """

    load_balancing: str | None = optionField(None, readWord, STRATEGIES)


@frozen(kw_only=True)
class RoutingOptions:
    """
    The affinity of calls; calls over UDP and TCP have none.

    @ivar http: The affinity of HTTP calls.
    @ivar websocket: The affinity of WebSocket calls.
    @ivar grpc: The load balancing of gRPC calls.
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
    @ivar routing: The affinity of their calls.
    @ivar dns: The options of the provider C{dns}.
    @ivar consul: The options of the provider C{consul}.
    @ivar etcd: The options of the provider C{etcd}.
    @ivar kubernetes: The options of the provider C{kubernetes}.
    @ivar register: How this daemon registers itself; without these options it does not.
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
    Return a copy of options with changes.

    @param before: The current options.
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
    @raise OptionError: If options contradict each other.
    """
    if options.provider in (None, "static"):
        for name, service in options.services.items():
            if service.instances is None:
                raise OptionError(
                    f'the option services.{name}.instances is "{AUTO}": that needs a provider, '
                    f"one of {', '.join(PROVIDERS[1:])}"
                )
    if options.provider == "kubernetes" and not (options.kubernetes.address or ownCluster()):
        raise OptionError(
            "the option kubernetes.address is missing: this process does not run in a pod"
        )
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
    Return the TLS options in use, by the name of their table.

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
