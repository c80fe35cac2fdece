"""
Connects to instances of a service, over TCP or TLS.

TLS to the instances of a service. The handshake ends before a call is sent: after a failed one
nothing of the call has left this process.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.net.http.clientconnection import HTTPClientConnection, openConnection
from storagegate.net.tls import InstanceTLSOptions, TLSContexts, describeError, expectedName
from storagegate.upstream.options import DiscoveredService, Instance
from storagegate.upstream.provider import ProblemReporter

_log = Logger()


class TLSConnector:
    """Secures the connections to the instances of one service."""

    def __init__(
        self,
        service: str,
        options: DiscoveredService,
        clock: IReactorTime,
        name: str | None = None,
    ) -> None:
        """
        @param name: Whom instances must prove to be where the options do not say; C{None} for the
            host of each.
        """
        tls = options.tls or InstanceTLSOptions()
        self._service = service
        self._isMeant = options.tls is not None
        self._options = tls
        self._name = name
        self._tls = TLSContexts(f"services.{service}.tls", tls)
        self._clock = clock
        self._trouble = ProblemReporter("TLS to instances", clock.seconds)

    def check(self) -> None:
        """
        Read the files, if they are to be used.

        @raise OptionError: If one of them cannot be.
        """
        if self._isMeant:
            self._tls.check()

    def warn(self) -> None:
        """Say so if certificates are not checked."""
        if not self._options.verify:
            _log.warn(
                "services.{service}.tls.verify is false: no certificate of its instances is "
                "checked, and anybody on the way can read and change calls",
                service=self._service,
            )

    def isFor(self, instance: Instance) -> bool:
        """Tell whether an instance is to be spoken to over TLS."""
        return self._isMeant if instance.tls is None else instance.tls

    def connect(
        self, endpoint: Any, instance: Instance, seconds: float
    ) -> Deferred[HTTPClientConnection]:
        """
        Connect, and shake hands.

        @param endpoint: The way to the instance, without TLS.
        @param seconds: How long both may take together.
        """
        return Deferred.fromCoroutine(self._connect(endpoint, instance, seconds))

    async def _connect(
        self, endpoint: Any, instance: Instance, seconds: float
    ) -> HTTPClientConnection:
        def failed(error: Exception) -> None:
            # For the operator: the caller does not see it.
            self._trouble.begin(self._service, f"{instance.id}: {describeError(error)}")

        try:
            context = self._tls.creator(expectedName(self._options, self._name or instance.host))
        except UnicodeError as error:
            failed(error)
            raise
        return await openConnection(endpoint, self._clock, seconds, context, failed)


Connect = Callable[[Instance], Deferred[HTTPClientConnection]]
"""Connects to an instance; fails within a limited time."""


def connector(reactor: Any, seconds: float, securing: TLSConnector | None = None) -> Connect:
    """
    Make the function that connects to instances.

    @param seconds: Limit of the time to connect, with the handshake of TLS.
    @param securing: Connects to the instances that use TLS; C{None} if none does.
    """

    def connect(instance: Instance) -> Deferred[HTTPClientConnection]:
        endpoint = HostnameEndpoint(reactor, instance.host, instance.port, seconds)
        if securing is not None and securing.isFor(instance):
            return securing.connect(endpoint, instance, seconds)
        return Deferred.fromCoroutine(openConnection(endpoint, reactor, seconds))

    return connect
