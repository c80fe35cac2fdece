"""
Connections to the instances of a service, over TCP or TLS.

The TLS handshake completes before a call is sent: if it fails, no part of the call has left this
process.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.net.http.clientconnection import HTTPClientConnection, openConnection
from storagegate.net.tls import InstanceTLSOptions, TLSContexts, describeError, expectedName
from storagegate.upstream.options import DiscoveredService, Instance
from storagegate.upstream.provider import ProblemReporter

_log = Logger()


class TLSConnector:
    """Connects to the instances of one service over TLS."""

    def __init__(
        self,
        service: str,
        options: DiscoveredService,
        clock: IReactorTime,
        name: str | None = None,
    ) -> None:
        """
        @param name: The name that certificates of instances must have if the options set none;
            C{None} for the host of each instance.
        """
        tls = options.tls or InstanceTLSOptions()
        self._service = service
        self._isDefault = options.tls is not None
        self._options = tls
        self._name = name
        self._tls = TLSContexts(f"services.{service}.tls", tls)
        self._clock = clock
        self._problems = ProblemReporter("TLS to instances", clock.seconds)

    def check(self) -> None:
        """
        Read the files, if instances use TLS by default.

        @raise OptionError: If a file cannot be used.
        """
        if self._isDefault:
            self._tls.check()

    def warn(self) -> None:
        """Log a warning if certificates are not verified."""
        if not self._options.verify:
            _log.warn(
                "services.{service}.tls.verify is false: no certificate of its instances is "
                "checked, and an attacker on the path can read and change calls",
                service=self._service,
            )

    def isFor(self, instance: Instance) -> bool:
        """Return whether an instance uses TLS."""
        return self._isDefault if instance.tls is None else instance.tls

    def connect(
        self, endpoint: Any, instance: Instance, seconds: float
    ) -> Deferred[HTTPClientConnection]:
        """
        Connect, and complete the TLS handshake.

        @param endpoint: The endpoint of the instance, without TLS.
        @param seconds: Limit of the time for both.
        """

        def failed(error: Exception) -> None:
            # For the log: the caller never sees this error.
            self._problems.begin(self._service, f"{instance.id}: {describeError(error)}")

        try:
            context = self._tls.creator(expectedName(self._options, self._name or instance.host))
        except UnicodeError as error:
            failed(error)
            return fail(error)
        return Deferred.fromCoroutine(
            openConnection(endpoint, self._clock, seconds, context, failed)
        )


Connect = Callable[[Instance], Deferred[HTTPClientConnection]]
"""Connects to an instance; fails within a limited time."""


def connector(reactor: Any, seconds: float, tls: TLSConnector | None = None) -> Connect:
    """
    Return the function that connects to instances.

    @param seconds: Limit of the time to connect, including the TLS handshake.
    @param tls: Connects to the instances that use TLS; C{None} without such instances.
    """

    def connect(instance: Instance) -> Deferred[HTTPClientConnection]:
        endpoint = HostnameEndpoint(reactor, instance.host, instance.port, seconds)
        if tls is not None and tls.isFor(instance):
            return tls.connect(endpoint, instance, seconds)
        return Deferred.fromCoroutine(openConnection(endpoint, reactor, seconds))

    return connect
