"""What C{configureServiceDiscovery} takes: where the instances of services are."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import (
    OptionError,
    changeOptions,
    makeOptions,
    readFlag,
    readHostname,
    readNumber,
    readWord,
)

PROVIDERS = ("static", "dns", "consul", "etcd", "kubernetes")

STRATEGIES = ("round_robin", "least_connections", "weighted")

AUTO = "auto-discover"
"""In the place of instances: the provider knows them."""

# More is a typing error, and the smooth order of so many would be long.
_MAX_WEIGHT = 1_000


def _port(value: Any) -> int:
    return readNumber(value, 1, 65535)


def _weight(value: Any) -> int:
    return readNumber(value, 1, _MAX_WEIGHT)


def _provider(value: Any) -> str:
    return readWord(value, PROVIDERS)


def _strategy(value: Any) -> str:
    return readWord(value, STRATEGIES)


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError('is a path such as "/health"')
    return value


@frozen(kw_only=True)
class Instance:
    """One place where a service is."""

    host: str = field(converter=readHostname)
    port: int = field(converter=_port)
    weight: int = field(default=1, converter=_weight)


def _instances(value: Any) -> tuple[Instance, ...] | None:
    if value == AUTO:
        return None
    isList = isinstance(value, list | tuple)
    if not isList or not all(isinstance(each, Mapping | Instance) for each in value):
        raise ValueError(f'is a list of instances, or "{AUTO}"')
    return tuple(
        each if isinstance(each, Instance) else makeOptions(Instance, each, f"instances[{index}].")
        for index, each in enumerate(value)
    )


@frozen(kw_only=True)
class DiscoveredService:
    """
    Where one service is.

    @ivar healthCheck: The path that tells whether an instance is well.
    @ivar instances: C{None} for those that the provider knows.
    """

    strategy: str = field(default="round_robin", converter=_strategy)
    healthCheck: str | None = field(default=None, converter=optional(_path))
    instances: tuple[Instance, ...] | None = field(default=None, converter=optional(_instances))


def _services(value: Any) -> Mapping[str, DiscoveredService]:
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
    return makeOptions(DiscoveredService, given, f"services.{name}.")


_ROUTING: Mapping[str, Mapping[str, Any]] = {
    "http": {"sticky_sessions": readFlag, "session_header": readHostname},
    "websocket": {"connection_affinity": readFlag},
    "grpc": {"load_balancing": _strategy},
}


def _routing(value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of protocols")
    for protocol, given in value.items():
        known = _ROUTING.get(protocol, {})
        if not known or not isinstance(given, Mapping):
            raise OptionError(f"there is no option routing.{protocol}")
        for name, each in given.items():
            if name not in known:
                raise OptionError(f"there is no option routing.{protocol}.{name}")
            try:
                known[name](each)
            except ValueError as error:
                raise OptionError(f"the option routing.{protocol}.{name} {error}") from None
    return dict(value)


@frozen(kw_only=True)
class DiscoveryOptions:
    """Every option of C{configureServiceDiscovery}."""

    provider: str | None = field(default=None, converter=optional(_provider))
    services: Mapping[str, DiscoveredService] = field(factory=dict, converter=_services)
    routing: Mapping[str, Mapping[str, Any]] = field(factory=dict, converter=_routing)


def readDiscovery(before: DiscoveryOptions, changes: Mapping[str, Any]) -> DiscoveryOptions:
    """
    Change some options.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return changeOptions(before, changes)
