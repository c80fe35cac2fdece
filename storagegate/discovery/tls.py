"""Whom a client believes, and who it is, by the files that its options name."""

import re
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL.crypto import Error as CryptoError
from OpenSSL.crypto import PKey
from twisted.internet.ssl import (
    Certificate,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)

from storagegate.core.optionvalues import OptionError
from storagegate.core.smallfiles import PEMFileError, fileStamp, readPEM
from storagegate.discovery.tlsoptions import TLSOptions

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
