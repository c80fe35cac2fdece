"""What is said of a service that is elsewhere: its instances, methods, and how it is called."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.definitions import STREAMING
from storagegate.core.optionvalues import (
    MERGED,
    OptionError,
    makeOptions,
    readFlag,
    readNumber,
    readWord,
)
from storagegate.discovery.instances import AUTO, Instance, readInstances
from storagegate.discovery.tlsoptions import InstanceTLSOptions

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
