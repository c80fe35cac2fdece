"""The state that all calls of a server share, and the clients of its connections."""

from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address

from storagegate.core.heldbytes import HeldBytes
from storagegate.rpc.engine.native.resources import MessageLimits, RPCResources
from storagegate.rpc.interfaces import MessageByteCounter


class CallService(RPCResources):
    """
    The calls of a server.

    @ivar accepted: Called with each call.
    """

    def __init__(
        self, limits: MessageLimits, clock: Any, traffic: MessageByteCounter, budget: HeldBytes
    ) -> None:
        super().__init__(limits, clock, traffic, budget)
        self.accepted: Callable[[Any], object] = _ignore

    def encodingFor(self, accepts: tuple[str, ...]) -> str | None:
        """
        Choose the encoding of the responses of a call.

        @param accepts: The encodings that the client accepts.
        """
        preferred = self.limits.compression
        if preferred is None or not accepts:
            return None
        return preferred if preferred in accepts else accepts[0]


def _ignore(call: Any) -> None:
    """Ignore a call that comes before the server accepts calls."""


class CallPeer:
    """
    The client of a connection.

    @ivar name: Its address, as L{IServerCall.peer<storagegate.rpc.interfaces.IServerCall>}.
    """

    __slots__ = ("_context", "_transport", "name")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._context: dict[str, list[bytes]] | None = None
        address = transport.getPeer()
        if isinstance(address, IPv6Address):
            self.name = f"ipv6:[{address.host}]:{address.port}"
        elif isinstance(address, IPv4Address):
            self.name = f"ipv4:{address.host}:{address.port}"
        else:
            own = getattr(transport.getHost(), "name", None) or b""
            self.name = f"unix:{own.decode('utf-8', 'backslashreplace')}"

    def authContext(self) -> dict[str, list[bytes]]:
        """
        Return what TLS knows of the client, under the names of grpc core; empty without TLS.

        The certificate was verified if there is one.
        """
        if self._context is None:
            self._context = _readContext(self._transport)
        return self._context


def _readContext(transport: Any) -> dict[str, list[bytes]]:
    if getattr(transport, "getPeerCertificate", None) is None:
        return {}
    context = {
        "transport_security_type": [b"ssl"],
        "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"],
    }
    found = transport.getPeerCertificate()
    if found is None:
        return context
    # Imported late: a server without client certificates does not need it.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    certificate = found.to_cryptography()
    context["x509_pem_cert"] = [certificate.public_bytes(Encoding.PEM)]
    context["x509_subject"] = [certificate.subject.rfc4514_string().encode()]
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    context["x509_common_name"] = [str(each.value).encode() for each in names]
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        return context
    for kind, key in (
        (x509.DNSName, "peer_dns"),
        (x509.UniformResourceIdentifier, "peer_uri"),
        (x509.RFC822Name, "peer_email"),
        (x509.IPAddress, "peer_ip"),
    ):
        values = [str(each).encode() for each in extension.value.get_values_for_type(kind)]
        if values:
            context[key] = values
            context.setdefault("x509_subject_alternative_name", []).extend(values)
    return context
