"""
TLS credentials of gRPC servers and clients, which follow changes of their files.

grpcio requests the certificate before each handshake, in a thread of its own. Usually nothing has
changed, which takes one C{stat} for each file. It is imported when a server needs it, as a client
may have another engine.
"""

import os
import ssl
from typing import TYPE_CHECKING, Any

from attrs import frozen

from storagegate.core.files import PEMFileError, readPEM
from storagegate.core.options import OptionError
from storagegate.net.tls import CertificateFiles, ServerTLSOptions, certificateEnd

if TYPE_CHECKING:
    import grpc


@frozen
class GRPCClientTLS:
    """
    The TLS settings of a client, in PEM.

    @ivar roots: The authorities that may sign the server's certificate; C{None} for grpcio's list.
    @ivar key: The client's key.
    @ivar chain: The client's certificate.
    @ivar serverName: The name in the server's certificate, if not the address.
    """

    roots: bytes | None = None
    key: bytes | None = None
    chain: bytes | None = None
    serverName: str | None = None


class GRPCCertificates(CertificateFiles):
    """
    The certificates of a gRPC listener.

    New files are used from the next handshake on, if they are valid. Open connections keep their
    certificate.
    """

    def __init__(self, tls: ServerTLSOptions) -> None:
        """
        @raise OptionError: If a file cannot be used; the message names it.
        """
        super().__init__(
            lambda: tls.files,
            lambda: (readConfiguration(tls), {each: certificateEnd(each) for each in tls.cert}),
        )
        self._fetched = self.content
        self._requiresClient = tls.requiresClient

    def credentials(self) -> "grpc.ServerCredentials":
        """Make the credentials of a server."""
        import grpc

        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            self.content, self.fetch, self._requiresClient
        )
        return credentials

    def fetch(self) -> Any:
        """
        Return the content of the files; C{None} if it has not changed or is invalid.

        grpcio calls this in a thread of its own, never in the reactor thread.
        """
        self.refresh()
        before, self._fetched = self._fetched, self.content
        return None if before is self._fetched else self._fetched


def readConfiguration(tls: ServerTLSOptions) -> Any:
    """
    Read the files, in any thread.

    @return: A C{grpc.ServerCertificateConfiguration}.
    @raise OptionError: If a file cannot be used; the message names it.
    """
    import grpc

    if len(tls.pairs) > 1:
        # grpcio chooses one of several by the server name alone.
        raise OptionError("the option tls.cert: grpcio serves one certificate")
    [(certFile, keyFile)] = tls.pairs
    certificate = readCertificates("the option tls.cert", certFile)
    key = readPEMOption("the option tls.key", keyFile)
    roots = None if tls.ca is None else readCertificates("the option tls.ca", tls.ca)
    _checkKey(certFile, keyFile)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], roots)


def readPEMOption(name: str, value: Any) -> bytes:
    """
    Return the content of a file, in any thread.

    @param name: The name of the option, for the error.
    @param value: The path, or the content itself as bytes.
    @raise OptionError: If the file cannot be used.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"{name} is the path of a PEM file, or its bytes")
    try:
        return readPEM(value)
    except PEMFileError as error:
        raise OptionError(f"{name}: {error}") from None


def readCertificates(name: str, value: Any) -> bytes:
    """
    Read certificates like L{readPEMOption}, and check them: grpcio would only fail handshakes.
    """
    content = readPEMOption(name, value)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            # Text around the certificates may contain any character.
            cadata=content.decode("ascii", "ignore")
        )
    except (ssl.SSLError, ValueError):
        place = "" if isinstance(value, bytes) else f": {value}"
        raise OptionError(f"{name}{place} is not a PEM certificate") from None
    return content


def _checkKey(certFile: str, keyFile: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An encrypted key would prompt for a password on the terminal.
        context.load_cert_chain(certFile, keyFile, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"does not belong to the certificate {certFile}"
        else:
            problem = "is not a PEM key, or needs a password"
        raise OptionError(f"the option tls.key: {keyFile} {problem}") from None
    except OSError as error:
        raise OptionError(f"the option tls.key: {keyFile}: {error.strerror}") from None
