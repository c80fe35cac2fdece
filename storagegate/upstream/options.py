"""
What C{configureServiceDiscovery} takes: where the instances of services are.

What is said of a service that is elsewhere: its instances, methods, and how it is called.

The options of each provider: where it is, whom it is told that we are, and how often it is asked.

A secret is never an option, but a file's name: a file is read again whenever it is needed, so that
whoever exchanges it need not start anything anew, and its content is in no log and no list.

Which calls of a service that is elsewhere go to the same instance, wire by wire.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from attrs import Factory, evolve, field, frozen
from attrs.converters import optional

from storagegate.core.definitions import STREAMING
from storagegate.core.options import (
    MERGED,
    OptionError,
    changeOptions,
    groupField,
    makeOptions,
    readFieldName,
    readFlag,
    readNumber,
    readWord,
)
from storagegate.net.tls import ClientTLSOptions, InstanceTLSOptions, checkPair, readFile

AUTO = "auto-discover"
"""In the place of instances: the provider knows them."""

# More is a typing error, and the smooth order of so many would be long.
MAX_WEIGHT = 1_000

MAX_INSTANCES = 1_000
"""Of one service: each is asked for its health by everybody who balances over them."""

# What may stand in a URL: names, IPv4 and IPv6 addresses, those with a zone too.
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}(%[A-Za-z0-9_.-]{1,32})?")


def readHost(value: Any) -> str:
    """Read the name or address of a machine, without brackets."""
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise ValueError("is the name or address of a machine")
    return value


def readServedPort(value: Any) -> int:
    """Read the port where something is: there is none of number 0."""
    return readNumber(value, 1, 65535)


def readWeight(value: Any) -> int:
    """Read how many calls an instance takes for one that another of weight 1 takes."""
    return readNumber(value, 1, MAX_WEIGHT)


def _id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 300 or not value.isprintable():
        raise ValueError("is a name")
    return value


@frozen
class Instance:
    """
    One place where a service is.

    @ivar host: Its name or address.
    @ivar port: Where its gateway speaks HTTP.
    @ivar weight: How many calls it takes for one that an instance of weight 1 takes.
    @ivar id: What tells it from the others; without it its address as C{host:port}.
    @ivar tls: Whether it speaks TLS there; without it as is said of the service.
    """

    host: str = field(converter=readHost)
    port: int = field(converter=readServedPort)
    weight: int = field(default=1, converter=readWeight)
    id: str = field(
        default=Factory(lambda self: formatPlace(self.host, self.port), takes_self=True),
        converter=_id,
    )
    tls: bool | None = field(default=None, converter=optional(readFlag))


def formatPlace(host: str, port: int) -> str:
    """Write an address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def distinct(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Leave out those whose id was there before: several names may lead to one place."""
    known: dict[str, Instance] = {}
    for each in instances:
        known.setdefault(each.id, each)
    return tuple(known.values())


def readInstances(value: Any) -> tuple[Instance, ...] | None:
    """Read a list of instances; C{None} for those that the provider knows."""
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
    What a registry is told of one service.

    @ivar service: Its name there.
    @ivar id: What tells this entry from all others.
    @ivar tls: Whether others are to speak TLS there.
    """

    service: str
    id: str
    host: str
    port: int
    weight: int
    tls: bool
    tags: tuple[str, ...]


STRATEGIES = ("round_robin", "least_connections", "weighted")

# A day: whoever means "for ever" finds the call hanging in the list of calls the next morning.
_MAX_TIMEOUT_MS = 86_400_000

# An hour between two looks at an instance is no check of its health any more.
_MAX_INTERVAL_MS = 3_600_000

# Every one of them may be a call that failed slowly.
_MAX_RETRIES = 10

# In a row; more only tells that the interval is too short.
_MAX_CHECKS = 100

# Each is a connection with its buffers, or a request in memory.
_MAX_CALLS = 100_000


def readStrategy(value: Any) -> str:
    """Read how calls are spread over instances."""
    return readWord(value, STRATEGIES)


def readPath(value: Any) -> str:
    """Read the path of a URL, without a query."""
    isPath = isinstance(value, str) and value.startswith("/") and value.isprintable()
    if not isPath or not value.isascii() or any(character in value for character in " ?#"):
        raise ValueError('is a path such as "/health"')
    return str(value)


def _basePath(value: Any) -> str:
    return "" if value in ("", "/") else readPath(value).rstrip("/")


def _timeout(value: Any) -> int:
    return readNumber(value, 1, _MAX_TIMEOUT_MS, "milliseconds")


def _interval(value: Any) -> int:
    return readNumber(value, 10, _MAX_INTERVAL_MS, "milliseconds")


def _retries(value: Any) -> int:
    return readNumber(value, 0, _MAX_RETRIES)


def _checks(value: Any) -> int:
    return readNumber(value, 1, _MAX_CHECKS)


def _percent(value: Any) -> int:
    return readNumber(value, 0, 100)


def _calls(value: Any) -> int:
    return readNumber(value, 1, _MAX_CALLS)


def _streaming(value: Any) -> str:
    return readWord(value, STREAMING)


def readKnownAs(value: Any) -> str:
    """Read the name of a service at a provider."""
    # It becomes a part of paths, of queries and of names in DNS.
    isName = isinstance(value, str) and value.isascii() and value.isprintable()
    if not isName or not 0 < len(value) <= 253 or any(character in value for character in " /?#%&"):
        raise ValueError("is the name of a service")
    return str(value)


@frozen(kw_only=True)
class RemoteMethod:
    """
    One method of a service that is elsewhere.

    @ivar streaming: What is a stream: the requests, the responses, both or none.
    @ivar idempotent: Whether a call may be repeated when nobody knows what became of it.
    @ivar timeoutMs: How long an instance may take to answer; without it that of the service.
    """

    streaming: str = field(default="none", converter=_streaming)
    idempotent: bool = field(default=False, converter=readFlag)
    timeoutMs: int | None = field(default=None, converter=optional(_timeout))


def _methods(value: Any) -> Mapping[str, RemoteMethod]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of methods")
    return {name: _method(name, given) for name, given in value.items()}


def _method(name: str, given: Any) -> RemoteMethod:
    if isinstance(given, RemoteMethod):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"the option methods.{name} is a mapping of options")
    return makeOptions(RemoteMethod, given, f"methods.{name}.")


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
    @ivar methods: What is to be known of its methods, by name; one that is not named is unary.
    @ivar tls: How they are spoken to over TLS; C{None} unless it was given: then only those are
        that say so themselves.
    @ivar basePath: The path of the gateways of the instances.
    @ivar timeoutMs: How long an instance may take to answer a unary call; streams have the deadline
        of their caller alone.
    @ivar connectTimeoutMs: How long a connection to one may take.
    @ivar retries: How often a call may be tried again on another instance.
    @ivar retryPercent: How many of a hundred calls may be such tries, beside one a second and
        a reserve of a hundred.
    @ivar healthCheck: The path that an instance answers with 2xx if it is well, on the port of its
        gateway; without it nobody is asked.
    @ivar healthIntervalMs: How often it is asked.
    @ivar healthTimeoutMs: How long the answer may take.
    @ivar unhealthyAfter: Failed checks in a row after which it is not.
    @ivar healthyAfter: Good checks in a row after which it is again.
    @ivar ejectAfter: Failed calls in a row after which an instance gets none for a while.
    @ivar ejectMs: How long that is the first time; it doubles each time in a row,
        and then one call may try.
    @ivar maxEjectMs: How long at most.
    @ivar maxConnections: Calls in flight of one instance, streams included.
    @ivar maxQueue: Calls that wait until an instance may have another.
    """

    strategy: str = field(default="round_robin", converter=readStrategy)
    instances: tuple[Instance, ...] | None = field(default=None, converter=optional(readInstances))
    name: str | None = field(default=None, converter=optional(readKnownAs))
    methods: Mapping[str, RemoteMethod] = field(factory=dict, converter=_methods)
    tls: InstanceTLSOptions | None = field(
        default=None, converter=optional(_tls), metadata={MERGED: True}
    )
    basePath: str = field(default="/api", converter=_basePath)
    timeoutMs: int = field(default=30_000, converter=_timeout)
    # Instances are near; a third packet would be sent after three seconds.
    connectTimeoutMs: int = field(default=1_000, converter=_timeout)
    retries: int = field(default=2, converter=_retries)
    retryPercent: int = field(default=20, converter=_percent)
    healthCheck: str | None = field(default=None, converter=optional(readPath))
    healthIntervalMs: int = field(default=2_000, converter=_interval)
    healthTimeoutMs: int = field(default=1_000, converter=_timeout)
    unhealthyAfter: int = field(default=2, converter=_checks)
    healthyAfter: int = field(default=1, converter=_checks)
    ejectAfter: int = field(default=5, converter=_checks)
    ejectMs: int = field(default=1_000, converter=_interval)
    maxEjectMs: int = field(default=60_000, converter=_interval)
    # What one connection of a client may have in flight: many clients need more instances.
    maxConnections: int = field(default=128, converter=_calls)
    maxQueue: int = field(default=128, converter=_calls)


def readServices(value: Any) -> Mapping[str, DiscoveredService]:
    """Read a mapping of services by name."""
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services")
    return {name: _service(name, given) for name, given in value.items()}


def _service(name: str, given: Any) -> DiscoveredService:
    if isinstance(given, DiscoveredService):
        return given
    if given == AUTO:
        return DiscoveredService()
    if not isinstance(given, Mapping):
        raise OptionError(f"the option services.{name} is a mapping of options")
    tls = given.get("tls")
    if isinstance(tls, Mapping):
        # Here, where the whole name of a wrong option is known.
        tls = makeOptions(InstanceTLSOptions, tls, f"services.{name}.tls.")
        given = {**given, "tls": tls}
    return makeOptions(DiscoveredService, given, f"services.{name}.")


SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds who it is."""

# An address of an API; a path in front of it is for those behind a proxy.
_ADDRESS = re.compile(
    r"https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{1,5})?(/[!-~]*)?"
)

_RESOLVER = re.compile(r"([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?")

# A list of this many is a mistake, and each of them may be waited for.
_MAX_LISTED = 32


def _address(value: Any) -> str:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int((match[2] or ":1")[1:]) < 65536 or "?" in value or "#" in value:
        raise ValueError('is an address such as "http://127.0.0.1:8500"')
    return str(value).rstrip("/")


def _addresses(value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not 0 < len(given) <= _MAX_LISTED:
        raise ValueError('is a list of addresses such as "http://127.0.0.1:2379"')
    return tuple(_address(each) for each in given)


def _resolver(value: Any) -> tuple[str, int]:
    match = _RESOLVER.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or 53) < 65536:
        raise ValueError('is a list of addresses such as "127.0.0.1:53"')
    return match[1].strip("[]"), int(match[2] or 53)


def _resolvers(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_LISTED:
        raise ValueError('is a list of addresses such as "127.0.0.1:53"')
    return tuple(each if isinstance(each, tuple) else _resolver(each) for each in value)


def _word(value: Any) -> str:
    # One that can stand in a query and in a field of HTTP.
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ValueError("is a name")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_LISTED:
        raise ValueError("is a list of names")
    return tuple(_word(each) for each in value)


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not value.strip("/") or not value.isprintable():
        raise ValueError('is what keys begin with, such as "/storagegate/services"')
    return value.rstrip("/")


def _names(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services to names")
    return {str(service): readKnownAs(name) for service, name in value.items()}


def _providerTimeout(value: Any) -> int:
    # Longer than a minute nobody waits for an answer that is not there yet.
    return readNumber(value, 10, 60_000, "milliseconds")


def _wait(value: Any) -> int:
    # Consul waits ten minutes at most.
    return readNumber(value, 1_000, 600_000, "milliseconds")


def _ttl(value: Any) -> int:
    # Under a second a resolver is flooded; who moves once a day is still found the day after.
    return readNumber(value, 1_000, 86_400_000, "milliseconds")


def _ttlSeconds(value: Any) -> int:
    # Three signs of life fit into it, and a dead daemon is forgotten within the hour.
    return readNumber(value, 3, 3_600, "seconds")


@frozen(kw_only=True)
class DNSOptions:
    """
    The options of the provider C{dns}.

    @ivar resolvers: Whom to ask, C{address:port}; empty for those of C{/etc/resolv.conf}.
    @ivar port: Where a service is whose name has addresses and no SRV records.
    @ivar timeoutMs: For one question to one resolver.
    @ivar minTtlMs: The shortest time that an answer is used for, whatever it says itself.
    @ivar maxTtlMs: The longest.
    """

    resolvers: tuple[tuple[str, int], ...] = field(default=(), converter=_resolvers)
    port: int | None = field(default=None, converter=optional(readServedPort))
    timeoutMs: int = field(default=2_000, converter=_providerTimeout)
    minTtlMs: int = field(default=5_000, converter=_ttl)
    maxTtlMs: int = field(default=300_000, converter=_ttl)


@frozen(kw_only=True)
class ConsulOptions:
    """
    The options of the provider C{consul}.

    @ivar address: That of an agent.
    @ivar tokenFile: A file with the token.
    @ivar datacenter: Whose instances; without it those of the agent's own.
    @ivar namespace: The same, of Consul Enterprise.
    @ivar tags: An instance must have all of them.
    @ivar waitMs: How long a question waits for news.
    @ivar timeoutMs: How much longer an answer may take.
    @ivar tls: How an C{https} address is believed.
    """

    address: str = field(default="http://127.0.0.1:8500", converter=_address)
    tokenFile: str | None = field(default=None, converter=optional(readFile))
    datacenter: str | None = field(default=None, converter=optional(_word))
    namespace: str | None = field(default=None, converter=optional(_word))
    tags: tuple[str, ...] = field(default=(), converter=_words)
    waitMs: int = field(default=60_000, converter=_wait)
    timeoutMs: int = field(default=10_000, converter=_providerTimeout)
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class EtcdOptions:
    """
    The options of the provider C{etcd}.

    @ivar addresses: Those of the members of a cluster; the next one is asked when one fails.
    @ivar prefix: What the keys C{prefix/service/instance} begin with.
    @ivar username: Who we are, where authentication is on.
    @ivar passwordFile: A file with the password.
    @ivar timeoutMs: For one answer.
    @ivar tls: How an C{https} address is believed.
    """

    addresses: tuple[str, ...] = field(default=("http://127.0.0.1:2379",), converter=_addresses)
    prefix: str = field(default="/storagegate/services", converter=_prefix)
    username: str | None = field(default=None, converter=optional(_word))
    passwordFile: str | None = field(default=None, converter=optional(readFile))
    timeoutMs: int = field(default=10_000, converter=_providerTimeout)
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class KubernetesOptions:
    """
    The options of the provider C{kubernetes}; without any, those of the pod's service account.

    @ivar address: That of the API; without it what the pod's environment says.
    @ivar tokenFile: A file with the token.
    @ivar namespace: Where services are; without it in the pod's own.
    @ivar portName: Which port of a service is meant; without it the only one, or C{http}.
    @ivar timeoutMs: For one answer.
    @ivar tls: How the API is believed.
    """

    address: str | None = field(default=None, converter=optional(_address))
    tokenFile: str | None = field(default=None, converter=optional(readFile))
    namespace: str | None = field(default=None, converter=optional(readKnownAs))
    portName: str | None = field(default=None, converter=optional(_word))
    timeoutMs: int = field(default=10_000, converter=_providerTimeout)
    tls: ClientTLSOptions = groupField(ClientTLSOptions)


@frozen(kw_only=True)
class RegisterOptions:
    """
    How this daemon tells a registry of itself.

    @ivar services: Which services, and the name of each at the registry; without it all that are
        served here, by their own names.
    @ivar address: Where others find this machine; without it the HTTP listener's interface, which
        then must be one that others can name.
    @ivar port: The port there; without it the HTTP listener's.
    @ivar weight: How many calls it takes for one that an instance of weight 1 takes.
    @ivar tls: Whether others are to speak TLS there.
    @ivar tags: What else Consul is told of the instance.
    @ivar ttlSeconds: How long it is believed to be there without a sign of life.
    """

    services: Mapping[str, str] | None = field(default=None, converter=optional(_names))
    address: str | None = field(default=None, converter=optional(readHost))
    port: int | None = field(default=None, converter=optional(readServedPort))
    weight: int = field(default=1, converter=readWeight)
    tls: bool = field(default=False, converter=readFlag)
    tags: tuple[str, ...] = field(default=(), converter=_words)
    ttlSeconds: int = field(default=15, converter=_ttlSeconds)


def ownCluster() -> str:
    """
    Give the address of the API of the cluster that this process runs in; empty in none.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isascii() or not port.isdigit():
        return ""
    return f"https://{formatPlace(host, int(port))}"


def _secret(value: Any) -> str:
    # Whoever guesses it can choose an instance, no more; but then shorter ones are guessed.
    if not isinstance(value, str) or not 16 <= len(value) <= 1024:
        raise ValueError("is a text of 16 to 1024 characters")
    return value


@frozen(kw_only=True)
class HTTPRouting:
    """
    Which calls over HTTP stay together.

    @ivar sticky_sessions: Whether calls of one session go to one instance.
    @ivar session_header: The header field that names the session; calls without it are known by a
        cookie that the first answer sets.
    @ivar cookie_secret: What signs that cookie; where none is given, a secret of this process, and
        in the daemon that of the file C{affinity-secret} in the data directory.
    """

    sticky_sessions: bool = field(default=False, converter=readFlag)
    session_header: str = field(default="X-Session-ID", converter=readFieldName)
    cookie_secret: str | None = field(default=None, converter=optional(_secret), repr=False)


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

    load_balancing: str | None = field(default=None, converter=optional(readStrategy))


@frozen(kw_only=True)
class RoutingOptions:
    """
    Which calls belong together; those of UDP and TCP are each for themselves.

    @ivar http: Which of HTTP.
    @ivar websocket: Which of WebSocket.
    @ivar grpc: How those of gRPC are spread.
    """

    http: HTTPRouting = groupField(HTTPRouting)
    websocket: WebSocketRouting = groupField(WebSocketRouting)
    grpc: GRPCRouting = groupField(GRPCRouting)


PROVIDERS = ("static", "dns", "consul", "etcd", "kubernetes")

SECURED = ("consul", "etcd", "kubernetes")
"""The providers with a table C{tls}."""

REGISTRIES = ("consul", "etcd")
"""The providers that take note of instances which tell of themselves."""


def _provider(value: Any) -> str:
    return readWord(value, PROVIDERS)


@frozen(kw_only=True)
class DiscoveryOptions:
    """
    Where the instances of services are that are not here.

    @ivar provider: Who knows the instances of services that name none here.
    @ivar services: The services that are elsewhere, by name.
    @ivar routing: Which calls of them belong together.
    @ivar dns: The options of a provider.
    @ivar consul: The same.
    @ivar etcd: The same.
    @ivar kubernetes: The same.
    @ivar register: How this daemon tells of itself; C{None} unless it was given: then it does not.
    """

    provider: str | None = field(default=None, converter=optional(_provider))
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
    Change some options.

    @raise OptionError: If there is no such option, or its value is none.
    """
    if before.register is None and isinstance(changes.get("register"), Mapping):
        before = evolve(before, register=RegisterOptions())
    return changeOptions(before, changes)


def checkDiscovery(options: DiscoveryOptions) -> None:
    """
    Check what can only be told when all has been said.

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
    """Give the options of TLS that are used, by the name of their table."""
    tables: dict[str, ClientTLSOptions] = {
        f"services.{name}.tls": service.tls
        for name, service in options.services.items()
        if service.tls is not None
    }
    if options.provider in SECURED:
        tables[f"{options.provider}.tls"] = getattr(options, options.provider).tls
    return tables
