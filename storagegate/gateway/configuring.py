"""
What a gateway can be told before it serves: every C{configure} takes a mapping or keywords, in any
order.
"""

from collections.abc import Mapping
from typing import Any, Self

from storagegate.core.authentication import DEFAULT_RULES, Authentication
from storagegate.core.definitions import readRateLimit
from storagegate.core.invocation import Invoker
from storagegate.core.optionvalues import OptionError, makeOptions
from storagegate.gateway.errorhandling import ErrorOptions
from storagegate.gateway.host import ErrorHook
from storagegate.gateway.options import GatewayOptions, readOptions


class Configurable:
    """
    The configuration of a gateway.

    @ivar settings: The options of the wires.
    @ivar invoker: Calls the methods.
    @ivar authentication: Who knows whom.
    """

    invoker: Invoker

    def __init__(self, options: Mapping[str, Any]) -> None:
        """
        @raise OptionError: If there is no such option, or its value is none.
        """
        self.settings = readOptions(GatewayOptions(), options)
        self.authentication = Authentication({}, DEFAULT_RULES)
        # Their options are not even loaded unless somebody configures them.
        self.monitoring: Any = None
        self.discovery: Any = None
        self.transformError: ErrorHook | None = None

    def _checkIdle(self) -> None:
        """
        Refuse to be configured while serving.

        @raise RuntimeError: If the gateway serves.
        """
        raise NotImplementedError

    def configureHTTP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure HTTP, see L{HTTPOptions<storagegate.gateway.options.HTTPOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("http", config, more)

    def configureWebSocket(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure WebSocket, see L{WebSocketOptions<storagegate.gateway.options.WebSocketOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("websocket", config, more)

    def configureGRPC(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure gRPC, see L{GRPCOptions<storagegate.gateway.options.GRPCOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("grpc", config, more)

    def configureUDP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure UDP, see L{UDPOptions<storagegate.gateway.options.UDPOptions>}; C{protocol} may
        hold C{parseMessage} and C{formatResponse}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        given = {**(config or {}), **more}
        protocol = given.pop("protocol", {})
        if not isinstance(protocol, Mapping):
            raise OptionError("the option udp.protocol is a mapping of functions")
        return self._change("udp", given, protocol)

    def configureTCP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure TCP, see L{TCPOptions<storagegate.gateway.options.TCPOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("tcp", config, more)

    def configureAuthentication(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure who is known: C{providers} and C{rules}, see L{storagegate.core.authentication}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        # What tokens need is a good deal, and nobody needs it who configures none.
        from storagegate.gateway.oauth import readProviders

        self._checkIdle()
        ownKeys = self.authentication.ownKeys
        self.authentication = readProviders({**(config or {}), **more})
        self.authentication.ownKeys.update(ownKeys)
        return self

    def configureErrorHandling(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure what clients see of errors, see
        L{ErrorOptions<storagegate.gateway.errorhandling.ErrorOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        self._checkIdle()
        options = makeOptions(ErrorOptions, {**(config or {}), **more})
        self.transformError = options.transformError
        return self

    def configureMonitoring(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure what is counted, traced and logged, see
        L{MonitoringOptions<storagegate.gateway.monitoring.MonitoringOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        from storagegate.gateway.monitoring import MonitoringOptions, readMonitoring

        self._checkIdle()
        before = self.monitoring or MonitoringOptions()
        self.monitoring = readMonitoring(before, {**(config or {}), **more})
        return self

    def configureServiceDiscovery(
        self, config: Mapping[str, Any] | None = None, **more: Any
    ) -> Self:
        """
        Configure where services are that are not here, see
        L{DiscoveryOptions<storagegate.discovery.options.DiscoveryOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        from storagegate.discovery.options import DiscoveryOptions, readDiscovery

        self._checkIdle()
        before = self.discovery or DiscoveryOptions()
        self.discovery = readDiscovery(before, {**(config or {}), **more})
        return self

    def configureRateLimit(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Limit every method that has no limit of its own: C{requests} in a C{window} of milliseconds.

        @raise DefinitionError: If it is none.
        """
        self._checkIdle()
        self.invoker.limitAll(readRateLimit("the gateway", {**(config or {}), **more}))
        return self

    def _change(
        self, group: str, config: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> Self:
        self._checkIdle()
        self.settings = readOptions(self.settings, {group: {**(config or {}), **more}})
        return self
