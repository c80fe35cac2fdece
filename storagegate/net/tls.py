"""
Whom a client believes, and who it is, by the files that its options name.

The options of TLS: whom we believe, and who we are.

What the connections to instances of a service are secured with: its files, and TLS by name.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL.crypto import Error as CryptoError
from OpenSSL.crypto import PKey
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.files import PEMFileError, fileStamp, readPEM
from storagegate.core.options import OptionError, readFlag

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

_NAME = re.compile(rf"{_LABEL}(\.{_LABEL}){{0,126}}")


def readFile(value: Any) -> str:
    """Read the name of a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is the name of a file")
    return value


def _serverName(value: Any) -> str:
    # Certificates have no other names than those of the Domain Name System (RFC 9525, section 2).
    isText = isinstance(value, str)
    if not isText or not (_NAME.fullmatch(value) or isIPAddress(value) or isIPv6Address(value)):
        raise ValueError("is a name or an address, as certificates have it")
    return str(value)


@frozen(kw_only=True)
class TLSOptions:
    """
    How an C{https} address is believed.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for a server that asks for one.
    @ivar keyFile: Its key, PEM, without a password.
    @ivar serverName: The name that the server's certificate has; without it the host of the
        address.
    """

    caFile: str | None = field(default=None, converter=optional(readFile))
    certFile: str | None = field(default=None, converter=optional(readFile))
    keyFile: str | None = field(default=None, converter=optional(readFile))
    serverName: str | None = field(default=None, converter=optional(_serverName))


@frozen(kw_only=True)
class InstanceTLSOptions(TLSOptions):
    """
    How instances are spoken to over TLS: if this table is there, all are that say nothing else.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for instances that ask for one.
    @ivar keyFile: Its key, PEM, without a password.
    @ivar serverName: The name that their certificates have; without it the host of each instance,
        and by DNS the name that was asked for.
    @ivar verify: Whether certificates are checked; C{false} lets anybody on the way read and
        change everything.
    """

    verify: bool = field(default=True, converter=readFlag)


def checkPair(tls: TLSOptions | None, table: str) -> None:
    """
    Check that a certificate has its key.

    @param table: The name of the options.
    @raise OptionError: If one of them is alone.
    """
    if tls is not None and (tls.certFile is None) != (tls.keyFile is None):
        raise OptionError(f"the options {table}.certFile and keyFile are given together")


_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class TLSFileError(OSError):
    """A file of the options cannot be used; the text begins with the name of the option."""


def clientContext(options: TLSOptions, host: str) -> Any:
    """
    Make what secures a connection.

    The files are read for every one of them: they are small, connections are few, and whoever
    exchanges them need not start anything anew.

    @param host: Where the server is.
    @raise TLSFileError: If a file cannot be used.
    @raise UnicodeError: If its name can be none.
    """
    return makeCreator(expectedName(options, host), loadMaterial(options))


def expectedName(options: TLSOptions, host: str) -> str:
    """Give whom a server must prove to be that is found at a host."""
    # Neither the zone of an address nor the dot that ends a name is in a certificate.
    return options.serverName or host.partition("%")[0].rstrip(".")


def makeCreator(
    name: str, material: Mapping[str, Any], protocols: list[bytes] | None = None
) -> Any:
    """
    Make what secures connections with whoever proves to be of a name.

    @param material: What L{loadMaterial} gives.
    @param protocols: What is spoken, as TLS names it; C{None} to say nothing of it.
    @return: An C{IOpenSSLClientConnectionCreator}.
    @raise UnicodeError: If the name can be none.
    """
    own = {**material}
    return optionsForClientTLS(
        name,
        trustRoot=own.pop("trustRoot"),
        acceptableProtocols=protocols,
        extraCertificateOptions=own,
    )


def loadMaterial(options: TLSOptions) -> dict[str, Any]:
    """
    Read whom to believe, and who we are.

    @return: What Twisted's C{CertificateOptions} take.
    @raise TLSFileError: If a file cannot be used.
    """
    trust = loadTrust(options) or platformTrust()
    return {**loadOwn(options), "trustRoot": trust}


def loadTrust(options: TLSOptions) -> Any:
    """
    Read whom to believe.

    @return: C{None} where no file says.
    @raise TLSFileError: If the file cannot be used.
    """
    if options.caFile is None:
        return None
    return trustRootFromCertificates(_certificates("caFile", options.caFile))


def loadOwn(options: TLSOptions) -> dict[str, Any]:
    """
    Read who we are.

    @return: What Twisted's C{CertificateOptions} take; nothing where there are no files.
    @raise TLSFileError: If a file cannot be used, or the two do not belong together.
    """
    if options.certFile is None or options.keyFile is None:
        return {}
    own, *chain = (each.original for each in _certificates("certFile", options.certFile))
    try:
        # Without a password, and without asking for one: nobody is at the terminal.
        found: Any = load_pem_private_key(_content("keyFile", options.keyFile), None)
        key = PKey.from_cryptography_key(found)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = f"{options.keyFile} is no PEM key, or needs a password"
        raise TLSFileError(f"keyFile: {problem}") from None
    if own.to_cryptography().public_key() != found.public_key():
        problem = f"{options.keyFile} does not belong to the certificate {options.certFile}"
        raise TLSFileError(f"keyFile: {problem}")
    return {"certificate": own, "privateKey": key, "extraCertChain": chain or None}


def checkFiles(options: TLSOptions, table: str) -> None:
    """
    Check that the files can be used as they are now.

    @param table: The name of the options.
    @raise OptionError: If one cannot.
    """
    try:
        loadMaterial(options)
    except TLSFileError as error:
        raise OptionError(f"the option {table}.{error}") from None


def stamp(options: TLSOptions) -> Mapping[str, Any]:
    """Give what is another when a file has changed."""
    return {
        file: fileStamp(file)
        for file in (options.caFile, options.certFile, options.keyFile)
        if file is not None
    }


def _certificates(option: str, file: str) -> list[Certificate]:
    found = _PEM.findall(_content(option, file))
    try:
        certificates = [Certificate.loadPEM(each) for each in found]
    except (CryptoError, ValueError):
        certificates = []
    if not certificates:
        raise TLSFileError(f"{option}: there is no certificate in {file}")
    return certificates


def _content(option: str, file: str) -> bytes:
    try:
        return readPEM(file)
    except PEMFileError as error:
        raise TLSFileError(f"{option}: {error}") from None


MAX_NAMES = 64
"""Names of one service whose TLS is kept ready: each has its own copy of whom to believe, which is
a megabyte and five milliseconds where that is all that the system believes."""

_PROTOCOLS = [b"http/1.1"]

_log = Logger()


class ClientTLS:
    """
    The TLS of one service.

    The files are looked at with each new connection, and read again when they have changed; while
    they cannot be used, what was read before holds.
    """

    def __init__(self, service: str, options: InstanceTLSOptions) -> None:
        self._table = f"services.{service}.tls"
        self._options = options
        self._creators: OrderedDict[str, Any] = OrderedDict()
        self._material: Mapping[str, Any] | None = None
        self._stamp: Mapping[str, Any] = {}

    def check(self) -> None:
        """
        Read the files.

        @raise OptionError: If one of them cannot be used.
        """
        checkFiles(self._options, self._table)
        self._refresh()

    def creator(self, name: str) -> Any:
        """
        Give what makes the TLS of a connection.

        @param name: Whom the other end must prove to be.
        @return: An C{IOpenSSLClientConnectionCreator}.
        @raise TLSFileError: If there are files that could never be used.
        @raise UnicodeError: If the name can be none.
        """
        material = self._refresh()
        if name in self._creators:
            self._creators.move_to_end(name)
            return self._creators[name]
        creator = self._make(name, material)
        self._creators[name] = creator
        if len(self._creators) > MAX_NAMES:
            self._creators.popitem(last=False)
        return creator

    def _make(self, name: str, material: Mapping[str, Any]) -> Any:
        if self._options.verify:
            return makeCreator(name, material, _PROTOCOLS)
        # No address is ever sent as a name (RFC 6066, section 3).
        isAddress = isIPAddress(name) or isIPv6Address(name)
        options = CertificateOptions(acceptableProtocols=_PROTOCOLS, **material)
        return _Unverified(options, None if isAddress else name.encode("ascii"))

    def _refresh(self) -> Mapping[str, Any]:
        """Read the files, unless they are as they were."""
        found = stamp(self._options)
        if self._material is not None and found == self._stamp:
            return self._material
        try:
            material = self._read()
        except TLSFileError as error:
            if self._material is None:
                raise
            _log.error(
                "the option {table}.{error}; what it was before holds",
                table=self._table,
                error=error,
            )
        else:
            self._material = material
            self._creators.clear()
        # Also of those that cannot be used: nobody is told again before they change.
        self._stamp = found
        return self._material or {}

    def _read(self) -> Mapping[str, Any]:
        return loadMaterial(self._options) if self._options.verify else loadOwn(self._options)


@implementer(IOpenSSLClientConnectionCreator)
@frozen
class _Unverified:
    """Makes connections with whomever, and says whom they are meant for."""

    options: Any
    name: bytes | None

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the TLS of a connection."""
        connection = self.options.clientConnectionForTLS(tlsProtocol)
        if self.name is not None:
            connection.set_tlsext_host_name(self.name)
        return connection
