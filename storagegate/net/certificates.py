"""
The certificates of listeners served by Twisted. They follow their files: a renewed certificate is
used from the next handshake on, without a restart.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL.SSL import Connection
from twisted.internet.endpoints import SSL4ServerEndpoint
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, trustRootFromCertificates
from zope.interface import implementer

from storagegate.core.files import readPEM
from storagegate.core.options import OptionError
from storagegate.net.tls import (
    CertificateEnds,
    CertificateFiles,
    ServerTLSOptions,
    TLSFileError,
    certificateEnd,
    describeError,
    loadPair,
    readCertificates,
)

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)


@implementer(IOpenSSLServerConnectionCreator)
class ListenerCertificates(CertificateFiles):
    """The certificates of a listener served by Twisted."""

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the OpenSSL connection for a protocol."""
        self.refresh()
        make = getattr(self.content, "serverConnectionForTLS", None)
        return Connection(self.content.getContext(), None) if make is None else make(tlsProtocol)


def follow(endpoint: Any, parse: Callable[[], Any], named: Mapping[str, str]) -> Any:
    """
    Make an C{ssl:} or C{tls:} endpoint follow its files.

    @param endpoint: The endpoint that Twisted made from its description.
    @param parse: Makes the endpoint again from the current files.
    @param named: The arguments of the description that name files, or the C{path} of a directory.
    @return: The L{ListenerCertificates} of the endpoint.
    @raise ValueError: If a key does not match its certificate.
    """
    made = [endpoint]
    attribute = (
        "_sslContextFactory" if isinstance(endpoint, SSL4ServerEndpoint) else "connectionCreator"
    )

    def read() -> tuple[Any, CertificateEnds]:
        try:
            content = getattr(made.pop() if made else parse(), attribute)
            if "path" in named:
                return content, _folderEnds(named["path"])
            # This checks that the key matches the certificate.
            content.getContext()
            return content, {named["certKey"]: certificateEnd(named["certKey"])}
        except Exception as error:
            # The parsers of endpoints and OpenSSL raise different errors, without file names.
            raise ValueError(f"{', '.join(named.values())}: {describeError(error)}") from error

    files = (lambda: _pemFiles(named["path"])) if "path" in named else named.values
    certificates = ListenerCertificates(files, read)
    setattr(endpoint, attribute, certificates)
    return certificates


def withOptions(tls: ServerTLSOptions) -> ListenerCertificates:
    """
    Make the certificates of a listener from the option C{tls}.

    @raise OptionError: If a file cannot be used.
    """

    def read() -> tuple[Any, CertificateEnds]:
        try:
            own = loadPair(tls.cert, tls.key, ("cert", "key"))
            if tls.ca is not None and tls.requiresClient:
                # With a trust root, a client needs a certificate.
                own["trustRoot"] = trustRootFromCertificates(readCertificates("ca", tls.ca))
        except TLSFileError as error:
            raise OptionError(f"the option tls.{error}") from None
        return CertificateOptions(**own), {tls.cert: certificateEnd(tls.cert)}

    return ListenerCertificates(lambda: tls.files, read)


def _pemFiles(folder: str) -> list[str]:
    return sorted(str(each) for each in Path(folder).rglob("*.pem"))


def _folderEnds(folder: str) -> CertificateEnds:
    """
    Return the expiry times of the certificates in a directory that have their keys there.

    @raise ValueError: If a file has a key that does not match its certificate.
    """
    contents = {file: readPEM(file) for file in _pemFiles(folder)}
    keys = {file: _keys(content) for file, content in contents.items()}
    known = {each for found in keys.values() for each in found}
    ends: dict[str, float] = {}
    for file, content in contents.items():
        found = load_pem_x509_certificates(content) if _CERTIFICATE in content else []
        own = [each for each in found if _identity(each.public_key()) in known]
        if own:
            ends[file] = own[0].not_valid_after_utc.timestamp()
        elif found and keys[file]:
            raise ValueError(f"the key in {file} belongs to no certificate")
    return ends


def _keys(content: bytes) -> list[bytes]:
    found = (load_pem_private_key(each[0], None) for each in _KEY.finditer(content))
    return [_identity(each.public_key()) for each in found]


def _identity(key: Any) -> bytes:
    identity: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return identity
