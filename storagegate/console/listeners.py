"""The open listeners of the daemon's own gateway, and the console's calls to them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from attrs import frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from storagegate.console.services import ConsoleServices
from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.client.transports import TRACE_FIELDS, ClientTarget
from storagegate.gateway.transports.registry import (
    GRPC,
    WEBSOCKET,
    findTransport,
    loadReference,
    transportNames,
)
from storagegate.net.endpoints import formatAddress
from storagegate.net.tls import InstanceTLSOptions, ServerTLSOptions

MAX_BYTES = 1 << 20
"""Bytes of all answers of a call: more than a person reads, and little for the daemon to hold."""

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Loopback addresses for listeners on all addresses."""


@frozen
class GatewayListener:
    """
    A listener of this process.

    @ivar wire: The name of its transport.
    @ivar path: The path of the services, for HTTP and WebSocket.
    @ivar isSecure: Whether it uses TLS.
    @ivar tls: The TLS options, if it was configured with certificate files.
    @ivar apiKeyHeader: The header field of API keys.
    @ivar methods: The gRPC methods by service and name, each an
        L{RPCMethod<storagegate.rpc.protos.RPCMethod>}.
    """

    reactor: Any
    wire: str
    address: Any
    path: str
    isSecure: bool
    tls: ServerTLSOptions | None
    apiKeyHeader: str
    methods: Mapping[tuple[str, str], Any]

    @property
    def shownAddress(self) -> str:
        """The address, formatted."""
        return formatAddress(self.address)

    def target(self, metadata: Mapping[str, str]) -> ClientTarget:
        """
        Return the target of a client on this machine.

        @param metadata: The metadata of the call, which WebSocket carries in its handshake.
        @raise ServiceError: C{UNAVAILABLE}: the address is of an unknown kind.
        """
        address = self.address
        host, port, unix = "localhost", 0, None
        if isinstance(address, IPv4Address | IPv6Address):
            host, port = _ANYWHERE.get(address.host, address.host), address.port
        elif isinstance(address, UNIXAddress) and address.name is not None:
            unix = address
        else:
            raise codedError("UNAVAILABLE", "The listener has an unknown kind of address")
        headers = _withTrace(metadata, False) if self.wire == WEBSOCKET.name else {}
        return ClientTarget(
            self.reactor,
            host,
            port,
            self.path,
            self._clientTLS(),
            MAX_BYTES,
            headers,
            userAgent="storagegate-console",
            unixAddress=unix,
            methods=self.methods,
        )

    def callMetadata(self, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Return the metadata that each call carries itself, see L{target}."""
        return _withTrace(metadata, True) if self.wire == WEBSOCKET.name else metadata

    def _clientTLS(self) -> InstanceTLSOptions | None:
        """
        Return the options of TLS; C{None} without TLS.

        The certificate carries the public names of the daemon, and the connection does not leave
        this machine, so it is not verified. gRPC always verifies, and trusts only the certificate
        of the listener itself, by a name in it. If the listener requires a client certificate, the
        client presents the listener's own.
        """
        own: dict[str, Any] = {}
        if self.tls is not None and self.tls.requiresClient:
            own = dict(zip(("certFile", "keyFile"), self.tls.pairs[0], strict=True))
        if self.wire != GRPC.name:
            return InstanceTLSOptions(verify=False, **own) if self.isSecure else None
        if self.tls is None:
            return None
        # A gRPC listener has one certificate.
        [certFile] = self.tls.cert
        return InstanceTLSOptions(caFile=certFile, serverName=_readName(certFile), **own)


def _withTrace(metadata: Mapping[str, str], isTrace: bool) -> dict[str, str]:
    """Return the metadata that belongs to the trace, or the rest."""
    return {
        name: value for name, value in metadata.items() if (name.lower() in TRACE_FIELDS) is isTrace
    }


def _readName(file: str) -> str | None:
    from cryptography.x509 import load_pem_x509_certificate

    with open(file, "rb") as source:
        return certificateName(load_pem_x509_certificate(source.read()))


def certificateName(certificate: Any) -> str | None:
    """Return a name in a certificate; C{None} if it has none."""
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName
    from cryptography.x509.oid import NameOID

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else None
    for name in names.get_values_for_type(DNSName):
        return str(name).replace("*", "console")
    return next((str(each) for each in names.get_values_for_type(IPAddress)), None)


def findListener(services: ConsoleServices, wire: str) -> GatewayListener:
    """
    Find the listener of a wire.

    @raise ServiceError: C{NOT_FOUND}: the listener is not open; C{INVALID_ARGUMENT}: the wire does
        not exist.
    """
    if wire not in transportNames():
        raise codedError("INVALID_ARGUMENT", f"wire must be one of {', '.join(transportNames())}")
    daemon = services.daemon.gateway
    row = findTransport(wire)
    port = None if daemon is None else daemon.ports.get(row.shares or wire)
    if port is None or wire not in daemon.gateway.settings.enabled:
        raise codedError("NOT_FOUND", f"The {row.title} listener is not enabled")
    gateway = daemon.gateway
    options = gateway.settings.of(wire)
    apiKeys = gateway.authentication.providers.get("apikey")
    methods: Mapping[tuple[str, str], Any] = {}
    if wire == GRPC.name:
        methods = gateway.start().get(wire).methods
    return GatewayListener(
        services.reactor,
        wire,
        port.getHost(),
        getattr(options, "basePath", getattr(options, "path", "")),
        getattr(port, "certificates", None) is not None,
        getattr(gateway.settings.of(row.shares or wire), "tls", None),
        getattr(apiKeys, "header", "X-API-Key"),
        methods,
    )


def openListeners(services: ConsoleServices) -> dict[str, GatewayListener]:
    """Return the open listeners by wire."""
    found = {}
    for wire in transportNames():
        with suppress(ServiceError):
            found[wire] = findListener(services, wire)
    return found


def loadClients(wires: Iterable[str]) -> None:
    """Import the clients of transports. May run in any thread: it takes a third of a second."""
    for wire in wires:
        client = findTransport(wire).client
        if client is not None:
            loadReference(client)
