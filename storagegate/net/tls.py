"""
TLS for clients and listeners: options, client contexts made from their files, handshake errors, and
the files of listeners' certificates, which are reloaded when they change.

OpenSSL is imported when a context is made, as some processes only read options.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.files import PEMFileError, fileStamp, readPEM
from storagegate.core.options import OptionError, makeOptions, readFlag, readWord

if TYPE_CHECKING:
    from twisted.internet.ssl import Certificate

MAX_NAMES = 64
"""Maximum number of cached contexts of one service, by server name: each has a copy of the trust
roots, which takes 1 MB and 5 ms for the system's roots."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

_NAME = re.compile(rf"{_LABEL}(\.{_LABEL}){{0,126}}")

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_PROTOCOLS = [b"http/1.1"]

# Alerts of a server that rejects the client's certificate without reading a request.
_REFUSALS = ("certificate", "unknown ca", "access denied", "decrypt error")

_log = Logger()


class TLSFileError(OSError):
    """A file named in the options cannot be used; the text begins with the name of the option."""


def readFile(value: Any) -> str:
    """Validate the name of a file, which need not exist."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is the name of a file")
    return value


def _serverName(value: Any) -> str:
    # Certificates contain only DNS names and addresses (RFC 9525, section 2).
    isText = isinstance(value, str)
    if not isText or not (_NAME.fullmatch(value) or isIPAddress(value) or isIPv6Address(value)):
        raise ValueError("is a name or an address, as certificates have it")
    return str(value)


@frozen(kw_only=True)
class ClientTLSOptions:
    """
    The trust roots and the client certificate for connections to an C{https} address.

    @ivar caFile: Certificates of trusted authorities, PEM; C{None} for the system's.
    @ivar certFile: The client's certificate with its chain, PEM, for servers that require one.
    @ivar keyFile: The certificate's key, PEM, without a password.
    @ivar serverName: The name in the server's certificate; C{None} for the host of the address.
    """

    caFile: str | None = field(default=None, converter=optional(readFile))
    certFile: str | None = field(default=None, converter=optional(readFile))
    keyFile: str | None = field(default=None, converter=optional(readFile))
    serverName: str | None = field(default=None, converter=optional(_serverName))


@frozen(kw_only=True)
class InstanceTLSOptions(ClientTLSOptions):
    """
    TLS to the instances of a service, for instances without their own options.

    @ivar serverName: The name in their certificates; C{None} for the host of each instance, or the
        name looked up by DNS.
    @ivar verify: Whether certificates are verified; without verification, an attacker on the path
        can read and change everything.
    """

    verify: bool = field(default=True, converter=readFlag)


def _path(value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and path and "\0" not in path:
            return path
    raise ValueError("is the path of a file")


def _paths(value: Any) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and value:
        return tuple(map(_path, value))
    return (_path(value),)


def _clientAuth(value: Any) -> str:
    if value == "optional":
        raise ValueError(
            'is "none" or "require": to ask for a certificate without insisting on one is more '
            "than grpcio can do"
        )
    return readWord(value, ("none", "require"))


@frozen(kw_only=True)
class ServerTLSOptions:
    """
    The options of a listener under C{tls}; the files are PEM.

    @ivar cert: The path of the server's certificate chain, the server's own certificate first; or
        the paths of several chains whose keys have different algorithms. A client gets one that it
        supports, with an ECDSA key rather than an RSA key.
    @ivar key: The path of the certificate's key, without a password; or one path for each
        certificate.
    @ivar ca: The path of the certificates of authorities that sign clients' certificates.
    @ivar clientAuth: C{"require"} refuses clients without a certificate signed by C{ca}; C{"none"}
        requests none. By default, one is required if C{ca} is set.
    """

    cert: tuple[str, ...] = field(converter=_paths)
    key: tuple[str, ...] = field(converter=_paths)
    ca: str | None = field(default=None, converter=optional(_path))
    clientAuth: str | None = field(default=None, converter=optional(_clientAuth))

    def __attrs_post_init__(self) -> None:
        if self.clientAuth == "require" and self.ca is None:
            raise OptionError('the option tls.clientAuth "require" needs tls.ca')
        if len(self.cert) != len(self.key):
            raise OptionError("the options tls.cert and tls.key need one key for each certificate")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the path of each certificate with that of its key."""
        return list(zip(self.cert, self.key, strict=True))

    @property
    def files(self) -> list[str]:
        """Return the paths of the files."""
        return [*self.cert, *self.key, *([] if self.ca is None else [self.ca])]

    @property
    def requiresClient(self) -> bool:
        """Return whether a client needs a certificate."""
        return self.ca is not None and self.clientAuth != "none"


_Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class TLSOptionsDict(TypedDict, total=False):
    """The keywords of L{ServerTLSOptions}."""

    cert: Required[_Paths]
    key: Required[_Paths]
    ca: str | os.PathLike[str] | None
    clientAuth: Literal["none", "require"] | None


def readTLS(value: Any) -> ServerTLSOptions | None:
    """
    Read the option C{tls}: a mapping of its parts, or C{None} or C{False}.

    @raise ValueError: If it has another type, or a part is invalid.
    """
    if value is None or value is False:
        return None
    if isinstance(value, ServerTLSOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options, or None")
    return makeOptions(ServerTLSOptions, value, "tls.")


def checkPair(tls: ClientTLSOptions | None, table: str) -> None:
    """
    Check that a certificate and its key are given together.

    @param tls: The options; C{None} passes the check.
    @param table: The name of the options, for the error.
    @raise OptionError: If one of them is missing.
    """
    if tls is not None and (tls.certFile is None) != (tls.keyFile is None):
        raise OptionError(f"the options {table}.certFile and keyFile are given together")


def checkFiles(options: ClientTLSOptions, table: str) -> None:
    """
    Check that the files can be used now.

    @param options: The options; files that are C{None} are not read.
    @param table: The name of the options, for the error.
    @raise OptionError: If one of them cannot be used.
    """
    try:
        _load(options)
    except TLSFileError as error:
        raise OptionError(f"the option {table}.{error}") from None


def expectedName(options: ClientTLSOptions, host: str) -> str:
    """
    Return the name that the certificate of a server at a host must have.

    @param options: The options; C{serverName} takes precedence.
    @param host: A name or an IP address, without brackets; a zone and a final dot are dropped.
    """
    # A certificate contains neither the zone of an address nor the final dot of a name.
    return options.serverName or host.partition("%")[0].rstrip(".")


def makeContext(options: ClientTLSOptions, host: str) -> "ServerContext":
    """
    Make the context of a connection from the current files.

    @param host: A name or an IP address, without brackets.
    @raise TLSFileError: If a file cannot be used.
    @raise UnicodeError: If the name of the host cannot occur in a certificate.
    """
    return _verifying(expectedName(options, host), _load(options), None)


def contextFromPEM(
    name: str,
    roots: bytes | None,
    pair: tuple[bytes, bytes] | None,
    protocols: list[bytes] | None,
) -> "ServerContext":
    """
    Make the context of connections to servers with one name.

    @param name: The name or IP address that the certificate must have.
    @param roots: Certificates of trusted authorities, PEM; C{None} for the system's.
    @param pair: The client's certificate with its chain, and the key, PEM; C{None} without one.
    @param protocols: The protocols to offer by ALPN (RFC 7301); C{None} for no offer.
    @raise ValueError: If they cannot be used.
    @raise UnicodeError: If the name cannot occur in a certificate.
    """
    from twisted.internet.ssl import platformTrust, trustRootFromCertificates

    loaded: dict[str, Any] = {"trustRoot": platformTrust()}
    if roots is not None:
        loaded["trustRoot"] = trustRootFromCertificates(_parseCertificates(roots))
    if pair is not None:
        loaded.update(_parsePair(_parseCertificates(pair[0]), pair[1]))
    return _verifying(name, loaded, protocols)


class TLSContexts:
    """
    The contexts of connections to the instances of one service, by server name.

    The files are checked for each new connection and reloaded when they have changed. While they
    cannot be used, the former contents stay in use.
    """

    def __init__(
        self, table: str, options: InstanceTLSOptions, protocols: list[bytes] | None = _PROTOCOLS
    ) -> None:
        """
        @param table: The name of the options, for errors and the log.
        @param protocols: The protocols to offer by ALPN (RFC 7301); C{None} for no offer.
        """
        self._table = table
        self._protocols = protocols
        self._options = options
        self._creators: OrderedDict[str, ServerContext] = OrderedDict()
        self._loaded: Mapping[str, Any] | None = None
        self._stamp: Mapping[str, Any] = {}

    def check(self) -> None:
        """
        Read the files.

        @raise OptionError: If one of them cannot be used.
        """
        checkFiles(self._options, self._table)
        self._refresh()

    def creator(self, name: str) -> "ServerContext":
        """
        Return the context for a server name.

        @param name: The name or IP address that the certificate must have.
        @raise TLSFileError: If a file has never been usable.
        @raise UnicodeError: If the name cannot occur in a certificate.
        """
        loaded = self._refresh()
        if name in self._creators:
            self._creators.move_to_end(name)
            return self._creators[name]
        if self._options.verify:
            creator = _verifying(name, loaded, self._protocols)
        else:
            creator = _unverified(name, loaded, self._protocols)
        self._creators[name] = creator
        if len(self._creators) > MAX_NAMES:
            self._creators.popitem(last=False)
        return creator

    def _refresh(self) -> Mapping[str, Any]:
        options = self._options
        files = (options.caFile, options.certFile, options.keyFile)
        found = {file: fileStamp(file) for file in files if file is not None}
        if self._loaded is not None and found == self._stamp:
            return self._loaded
        try:
            loaded = _load(options, options.verify)
        except TLSFileError as error:
            if self._loaded is None:
                raise
            _log.error(
                "the option {table}.{error}; the previous files stay in use",
                table=self._table,
                error=error,
            )
        else:
            self._loaded = loaded
            self._creators.clear()
        # Updated even for unusable files, so that they are logged once until they change.
        self._stamp = found
        return self._loaded or {}


@implementer(IOpenSSLClientConnectionCreator)
@frozen
class ServerContext:
    """
    The context of connections to servers with one name.

    @ivar creator: Twisted's connection creator, which verifies certificates during the handshake.
    @ivar name: The name or the IP address of the server.
    @ivar isVerified: Whether its certificate is verified.
    """

    creator: Any
    name: str
    isVerified: bool = True

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the OpenSSL connection for a protocol."""
        connection = self.creator.clientConnectionForTLS(tlsProtocol)
        # An address is never sent as a server name (RFC 6066, section 3).
        if not self.isVerified and not self._isAddress:
            connection.set_tlsext_host_name(self.name.encode("ascii"))
        return connection

    def verifyName(self, connection: Any) -> None:
        """
        Verify the name of a server after the handshake; before that, nothing may be sent.

        During the handshake, Twisted treats unexpected errors of the library, such as the error for
        a certificate without names, as success.

        @param connection: The OpenSSL connection.
        @raise Exception: If the certificate is not for this name; the type varies.
        """
        from service_identity.pyopenssl import verify_hostname, verify_ip_address

        if self.isVerified:
            (verify_ip_address if self._isAddress else verify_hostname)(connection, self.name)

    @property
    def _isAddress(self) -> bool:
        return isIPAddress(self.name) or isIPv6Address(self.name)


def _unverified(
    name: str, loaded: Mapping[str, Any], protocols: list[bytes] | None
) -> ServerContext:
    from twisted.internet.ssl import CertificateOptions

    options = CertificateOptions(acceptableProtocols=protocols, **loaded)
    return ServerContext(options, name, isVerified=False)


def _verifying(
    name: str, loaded: Mapping[str, Any], protocols: list[bytes] | None
) -> ServerContext:
    from twisted.internet.ssl import optionsForClientTLS

    own = {**loaded}
    trust = own.pop("trustRoot")
    creator = optionsForClientTLS(
        name, trustRoot=trust, acceptableProtocols=protocols, extraCertificateOptions=own
    )
    return ServerContext(creator, name)


def _load(options: ClientTLSOptions, withTrust: bool = True) -> dict[str, Any]:
    """
    Read the files.

    @return: Arguments of Twisted's C{CertificateOptions}.
    @raise TLSFileError: If a file cannot be used, or the key does not match the certificate.
    """
    from twisted.internet.ssl import platformTrust, trustRootFromCertificates

    loaded: dict[str, Any] = {}
    if withTrust and options.caFile is not None:
        loaded["trustRoot"] = trustRootFromCertificates(readCertificates("caFile", options.caFile))
    elif withTrust:
        loaded["trustRoot"] = platformTrust()
    if options.certFile is not None and options.keyFile is not None:
        loaded.update(loadPair(options.certFile, options.keyFile))
    return loaded


def loadPair(
    certFile: str, keyFile: str, names: tuple[str, str] = ("certFile", "keyFile")
) -> dict[str, Any]:
    """
    Read a certificate with its chain and key.

    @param names: The names of the options, for errors.
    @return: Arguments of Twisted's C{CertificateOptions}.
    @raise TLSFileError: If a file cannot be used, or the key does not match the certificate.
    """
    certificates = readCertificates(names[0], certFile)
    try:
        return _parsePair(certificates, _content(names[1], keyFile), certFile)
    except ValueError as error:
        raise TLSFileError(f"{names[1]}: {keyFile} {error}") from None


def _parsePair(
    certificates: "list[Certificate]", wire: bytes, place: str = "of the client"
) -> dict[str, Any]:
    """
    Parse the key of a certificate.

    @param certificates: The certificate with its chain.
    @param wire: The key, PEM.
    @param place: Where the certificate comes from, for the error.
    @return: Arguments of Twisted's C{CertificateOptions}.
    @raise ValueError: If the key cannot be used with the certificate.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from OpenSSL.crypto import PKey

    own, *chain = (each.original for each in certificates)
    try:
        # No password, and no prompt for one.
        found: Any = load_pem_private_key(wire, None)
        key = PKey.from_cryptography_key(found)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is not a PEM key, or needs a password") from None
    if own.to_cryptography().public_key() != found.public_key():
        raise ValueError(f"does not belong to the certificate {place}")
    return {"certificate": own, "privateKey": key, "extraCertChain": chain or None}


def readCertificates(option: str, file: str) -> "list[Certificate]":
    """
    Read the certificates of a file.

    @param option: The name of the option, for errors.
    @raise TLSFileError: If the file has no certificate, or cannot be read.
    """
    try:
        return _parseCertificates(_content(option, file))
    except ValueError as error:
        raise TLSFileError(f"{option}: {file} {error}") from None


def _parseCertificates(wire: bytes) -> "list[Certificate]":
    from OpenSSL.crypto import Error as CryptoError
    from twisted.internet.ssl import Certificate

    try:
        found = [Certificate.loadPEM(each) for each in _PEM.findall(wire)]
    except (CryptoError, ValueError):
        found = []
    if not found:
        raise ValueError("contains no certificate")
    return found


def _content(option: str, file: str) -> bytes:
    try:
        return readPEM(file)
    except PEMFileError as error:
        raise TLSFileError(f"{option}: {error}") from None


CertificateEnds = Mapping[str, float]
"""The expiry of each certificate in seconds since 1970, by file."""


class CertificateFiles:
    """
    The files of a listener's certificates, and their last usable contents.

    Files that cannot be used or do not match have no effect, and are logged once. The methods may
    be called in any thread.

    @ivar content: The object made from the files.
    @ivar ends: The expiry times of the certificates in use.
    @ivar problem: The reason why the current files are not in use, or C{None}.
    """

    _log = Logger()

    def __init__(
        self,
        files: Callable[[], Iterable[str]],
        read: Callable[[], tuple[Any, CertificateEnds]],
    ) -> None:
        """
        @param files: Returns the paths of the files.
        @param read: Returns C{content} and C{ends}, or raises an error that names the file.
        """
        self._files = files
        self._read = read
        self._lock = Lock()
        self.problem: str | None = None
        self._seen = self._stamp()
        self.content, self.ends = read()

    def _stamp(self) -> list[tuple[int, ...]]:
        """Return the modification times and sizes of the files."""
        return [fileStamp(each) for each in self._files()]

    def refresh(self) -> None:
        """Reload the files if they have changed."""
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            try:
                content, ends = self._read()
            except Exception as error:
                # The parsers of endpoints, OpenSSL and the system raise different errors.
                if stamp == self._stamp():
                    # The files are not read or logged again until they change.
                    self._seen, self.problem = stamp, str(error) or type(error).__name__
                    self._log.error("the old TLS files stay in use: {error}", error=self.problem)
                return
            if stamp != self._stamp():
                # The files are being written, so the checked content may have changed.
                return
            self._seen, self.problem = stamp, None
            self.content, self.ends = content, ends
        self._log.info("new TLS files are in use: {files}", files=", ".join(ends))


def certificateEnd(file: str) -> float:
    """
    Return the expiry of the first certificate of a file, in seconds since 1970.

    @raise ValueError: If the file has no certificate, or cannot be read.
    """
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(readPEM(file)).not_valid_after_utc.timestamp()


def refusesCertificate(error: BaseException | None) -> bool:
    """
    Return whether an error is a server's alert that refuses the client's certificate.

    @param error: The reason for the loss of a connection; C{None} is not a refusal.
    """
    from OpenSSL.SSL import Error as TLSError

    text = describeError(error) if isinstance(error, TLSError) else ""
    return " alert " in text and any(words in text for words in _REFUSALS)


def describeError(error: BaseException | None) -> str:
    """Return the problem with a connection in one line."""
    from OpenSSL.SSL import Error as TLSError
    from twisted.internet.ssl import VerificationError

    if isinstance(error, VerificationError):
        return "the certificate has another name"
    if isinstance(error, TLSError) and error.args and error.args[0]:
        # OpenSSL's error queue: the library, the function and the problem of each error.
        return str(error.args[0][-1][-1])
    return f"{type(error).__name__}: {error!s:.200}"
