"""
The OpenSSL contexts of a listener, with tickets for clients that connect again.

A client that returns a ticket resumes its session (RFC 8446, section 2.2; RFC 5077): the handshake
needs neither the certificate's key nor the client's certificate. OpenSSL encrypts tickets with
random keys of the context, which pyOpenSSL can neither read nor set. So a ticket is valid in the
process that issued it, and until its context is replaced: by one with new files, or after
L{TICKET_SECONDS}.

Contexts share neither keys nor the session ID context, which Twisted makes at random, so a session
is never resumed on another listener, whose rules for clients' certificates may differ. It may be
resumed under another name of its listener (RFC 8446, section 4.6.1), as the rules are the same.
Early data (RFC 8446, section 2.3), which can be replayed, is never accepted, as OpenSSL's limit for
it stays 0.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from OpenSSL.crypto import FILETYPE_PEM, X509, PKey, dump_certificate
from OpenSSL.SSL import NO_OVERLAPPING_PROTOCOLS, Connection, Context, Error
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.ssl import CertificateOptions
from twisted.logger import Logger

from storagegate.net.tls import describeError

TICKET_SECONDS = 3600
"""
Lifetime of a ticket, and of the key that encrypts it.

An attacker who has the key can read the sessions of TLS 1.2 that it protects, so it is short-lived.
A client's certificate is checked again after this time at the latest. A client that connects all
the time makes one full handshake an hour, which costs it 1 ms.
"""


@frozen
class ServerCertificate:
    """
    A certificate of a server with its key.

    @ivar chain: The intermediate certificates, without the root.
    """

    certificate: X509
    key: PKey
    chain: Sequence[X509]

    @property
    def algorithm(self) -> str:
        """Return the name of the key's algorithm: a context has one certificate of each."""
        return type(self.key.to_cryptography_key()).__name__


class ServerContexts:
    """The contexts of a listener, by server name."""

    _log = Logger()

    def __init__(
        self,
        default: Sequence[ServerCertificate],
        named: Mapping[str, Sequence[ServerCertificate]],
        more: Mapping[str, Any],
        seconds: Callable[[], float],
    ) -> None:
        """
        @param default: The certificates for a client that names no server, or an unknown one. Their
            keys have different algorithms; OpenSSL uses one that the client supports, an ECDSA key
            rather than an RSA key.
        @param named: The certificates by server name in lower case, such as C{a.example} or
            C{*.example}; empty if all clients get the same.
        @param more: More arguments of Twisted's C{CertificateOptions}.
        @param seconds: Returns the monotonic time.
        @raise OpenSSL.SSL.Error: If a key does not match its certificate.
        """
        self._default = default
        self._named = named
        self._more = more
        self._seconds = seconds
        self._contexts: dict[str, Context] = {}
        self._renew()

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the OpenSSL connection for a protocol."""
        if self._seconds() >= self._end:
            try:
                self._renew()
            except Exception as error:
                # The file of Diffie-Hellman parameters is read again, and may be gone. OpenSSL and
                # the system raise different errors.
                self._log.error(
                    "the keys of TLS tickets stay in use: {error}", error=describeError(error)
                )
        return Connection(self._context)

    def _renew(self) -> None:
        """Replace the contexts; the tickets of the former ones are no longer accepted."""
        self._end = self._seconds() + TICKET_SECONDS
        self._context = self._make(self._default)
        self._contexts.clear()

    def _make(self, certificates: Sequence[ServerCertificate]) -> Context:
        own: dict[str, Any] = {}
        if len(certificates) == 1:
            [only] = certificates
            own = {"certificate": only.certificate, "privateKey": only.key}
            own["extraCertChain"] = [*only.chain]
        if self._named:
            own["contextForServerName"] = self._select
        options = CertificateOptions(enableSessionTickets=True, **own, **self._more)
        context: Context = options.getContext()
        context.set_alpn_select_callback(_selectProtocol)
        if len(certificates) > 1:
            for each in certificates:
                _addCertificate(context, each)
        context.set_timeout(TICKET_SECONDS)
        return context

    def _select(self, serverName: bytes | None) -> Context | None:
        """Return the context for the name that a client sent; C{None} for the default."""
        name = (serverName or b"").decode("ascii", "replace").lower()
        if name not in self._named:
            name = f"*.{name.partition('.')[2]}"
            if name not in self._named:
                return None
        if name not in self._contexts:
            self._contexts[name] = self._make(self._named[name])
        return self._contexts[name]


class NoApplicationProtocol(Error):
    """The client offers by ALPN only protocols that the listener does not have."""

    def __init__(self) -> None:
        # In the form of OpenSSL's own errors.
        super().__init__([("SSL routines", "", "no application protocol")])


def _selectProtocol(connection: Connection, offered: Sequence[bytes]) -> Any:
    """
    Select the listener's preferred protocol of those that the client offers (RFC 7301).

    A listener that knows no ALPN ignores the offer. Twisted's own function would end the handshake
    with the alert C{internal_error} in both cases without a protocol.

    @raise NoApplicationProtocol: If there is none. OpenSSL then sends C{no_application_protocol},
        as section 3.2 demands.
    """
    factory = IProtocolNegotiationFactory(connection.get_app_data().factory.wrappedFactory, None)
    if factory is None:
        return NO_OVERLAPPING_PROTOCOLS
    for protocol in factory.acceptableProtocols():
        if protocol in offered:
            return protocol
    raise NoApplicationProtocol()


def _addCertificate(context: Context, certificate: ServerCertificate) -> None:
    """
    Add a certificate to a context that has others.

    The certificates of C{extraCertChain} would be sent with all of them; only a file gives one of
    them its own chain.

    @raise OpenSSL.SSL.Error: If the key does not match the certificate.
    """
    with open(os.memfd_create("certificates"), "wb", buffering=0) as file:
        for each in (certificate.certificate, *certificate.chain):
            file.write(dump_certificate(FILETYPE_PEM, each))
        context.use_certificate_chain_file(f"/proc/self/fd/{file.fileno()}")
    context.use_privatekey(certificate.key)
