"""
The tables C{[gateway.*]} of the configuration file, given to a gateway::

    [gateway.websocket]
    allowedOrigins = ["https://app.example.com"]

    [gateway.authentication.providers.apikey]
    validate = "mymodule:validate"

A function is C{"module:name"}. Ports and interfaces are the listeners' own keys.

Things of the user's that are named as C{module:name}.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from storagegate.core.definitions import DefinitionError
from storagegate.core.options import OptionError
from storagegate.daemon.config import ConfigurationError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.transports.registry import transportNames


class NamingError(ValueError):
    """There is no such thing; the text is one line that names it."""


def loadObject(name: str) -> Any:
    """
    Find what a name of the configuration stands for.

    @param name: C{module:name}; the name may have dots.
    @raise NamingError: If the module cannot be imported, or has no such name.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise NamingError(f"{name}: cannot import {module}: {kind}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NamingError(f"{name}: {module} has no {path}") from None
    return found


_FUNCTIONS = frozenset(
    {
        "transformRequest",
        "transformResponse",
        "routeMessage",
        "formatResponse",
        "parseMessage",
        "transformError",
        "spanAttributes",
        "validate",
        "extractToken",
    }
)
"""Keys whose values are functions; the last one may be a table of them by protocol."""

PLACES = frozenset({"port", "hostname", "address"})
"""Options that the file does not have: where a wire is, the key of its listener says."""


def configureGateway(gateway: ProtocolGateway, tables: Mapping[str, Any]) -> None:
    """
    Give a gateway what the file says.

    @raise ConfigurationError: If a table or a key is not known, or a value is not right.
    """
    configure: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        **{name: partial(gateway.configure, name) for name in transportNames()},
        "authentication": gateway.configureAuthentication,
        "errorHandling": gateway.configureErrorHandling,
        "rateLimit": gateway.configureRateLimit,
        "monitoring": gateway.configureMonitoring,
        "discovery": gateway.configureServiceDiscovery,
    }
    for name, table in tables.items():
        if name not in configure:
            raise ConfigurationError(
                f"gateway.{name}: unknown key; there are {', '.join(sorted(configure))}"
            )
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"gateway.{name}: expected a table")
        for key in PLACES & set(table):
            raise ConfigurationError(f"gateway.{name}.{key}: the listener's own key says where")
        try:
            configure[name](_resolved(table))
        except (OptionError, DefinitionError, NamingError) as error:
            raise ConfigurationError(f"gateway.{name}: {error}") from error


def readMonitoringTable(tables: Mapping[str, Any]) -> Any:
    """
    Read what the file says of monitoring, which holds for other rooms than the gateway as well.

    @return: The C{MonitoringOptions}; C{None} if it says nothing.
    @raise ConfigurationError: If a key is not known, or a value is not right.
    """
    from storagegate.gateway.options import MonitoringOptions, readMonitoring

    table = tables.get("monitoring")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise ConfigurationError("gateway.monitoring: expected a table")
    try:
        return readMonitoring(MonitoringOptions(), _resolved(table))
    except (OptionError, NamingError) as error:
        raise ConfigurationError(f"gateway.monitoring: {error}") from error


def _resolved(table: Mapping[str, Any]) -> dict[str, Any]:
    """Put functions in the places of their names."""
    resolved: dict[str, Any] = {}
    for key, value in table.items():
        if key in _FUNCTIONS and isinstance(value, str):
            value = loadObject(value)
        elif key in _FUNCTIONS and isinstance(value, Mapping):
            value = {
                name: loadObject(each) if isinstance(each, str) else each
                for name, each in value.items()
            }
        elif key == "handleStreaming" and isinstance(value, Mapping):
            value = {name: loadObject(each) for name, each in value.items()}
        elif isinstance(value, Mapping):
            value = _resolved(value)
        resolved[key] = value
    return resolved
