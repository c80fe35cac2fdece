"""
The certificates of listeners served by Twisted. They follow their files: a renewed certificate is
used from the next handshake on, without a restart.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    Certificate,
    DNSName,
    ExtensionNotFound,
    SubjectAlternativeName,
    load_pem_x509_certificates,
)
from OpenSSL.crypto import X509, PKey
from OpenSSL.SSL import TLS_METHOD
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import trustRootFromCertificates
from zope.interface import implementer

from storagegate.core.files import fileStamp, readPEM
from storagegate.core.options import OptionError
from storagegate.net.servercontexts import ServerCertificate, ServerContexts
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

# Longer than a step of the time of a directory on any file system.
_STEP_NS = 2_000_000_000

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)


@implementer(IOpenSSLServerConnectionCreator)
class ListenerCertificates(CertificateFiles):
    """
    The certificates of a listener served by Twisted.

    @ivar content: The L{ServerContexts}.
    """

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the OpenSSL connection for a protocol."""
        self.refresh()
        return self.content.serverConnectionForTLS(tlsProtocol)


def follow(
    parse: Callable[[], Any],
    named: Mapping[str, str],
    seconds: Callable[[], float] = time.monotonic,
) -> ListenerCertificates:
    """
    Make the certificates of an C{ssl:} endpoint.

    @param parse: Returns Twisted's C{CertificateOptions}, made from the current files.
    @param named: The arguments of the description that name files.
    @param seconds: Returns the monotonic time.
    @raise ValueError: If a key does not match its certificate.
    """

    def read() -> tuple[ServerContexts, CertificateEnds]:
        try:
            found = parse()
            own = ServerCertificate(found.certificate, found.privateKey, found.extraCertChain)
            more = {"dhParameters": found.dhParameters}
            if found.method != TLS_METHOD:
                more["method"] = found.method
            # This checks that the key matches the certificate.
            contexts = ServerContexts([own], {}, more, seconds)
            return contexts, {named["certKey"]: certificateEnd(named["certKey"])}
        except Exception as error:
            # The parsers of endpoints and OpenSSL raise different errors, without file names.
            raise ValueError(f"{', '.join(named.values())}: {describeError(error)}") from error

    return ListenerCertificates(named.values, read)


def followDirectory(
    path: str, seconds: Callable[[], float] = time.monotonic
) -> ListenerCertificates:
    """
    Make the certificates of a C{tls:} endpoint.

    @param path: The directory of its C{.pem} files.
    @param seconds: Returns the monotonic time.
    @raise ValueError: If a file cannot be used.
    """

    def read() -> tuple[ServerContexts, CertificateEnds]:
        try:
            directory = _CertificateDirectory(path)
            contexts = ServerContexts(directory.default, directory.named, {}, seconds)
        except Exception as error:
            raise ValueError(f"{path}: {describeError(error)}") from error
        return contexts, directory.ends

    return ListenerCertificates(_PEMFiles(path), read)


def withOptions(
    tls: ServerTLSOptions, seconds: Callable[[], float] = time.monotonic
) -> ListenerCertificates:
    """
    Make the certificates of a listener from the option C{tls}.

    @param seconds: Returns the monotonic time.
    @raise OptionError: If a file cannot be used.
    """

    def read() -> tuple[ServerContexts, CertificateEnds]:
        more: dict[str, Any] = {}
        try:
            found = [loadPair(cert, key, ("cert", "key")) for cert, key in tls.pairs]
            if tls.ca is not None and tls.requiresClient:
                # With a trust root, a client needs a certificate.
                more["trustRoot"] = trustRootFromCertificates(readCertificates("ca", tls.ca))
        except TLSFileError as error:
            raise OptionError(f"the option tls.{error}") from None
        own = [
            ServerCertificate(each["certificate"], each["privateKey"], each["extraCertChain"] or ())
            for each in found
        ]
        if len({each.algorithm for each in own}) < len(own):
            raise OptionError(
                "the option tls.key: several certificates need keys of different algorithms, "
                "such as RSA and ECDSA"
            )
        contexts = ServerContexts(own, {}, more, seconds)
        return contexts, {file: certificateEnd(file) for file in tls.cert}

    return ListenerCertificates(lambda: tls.files, read)


class _PEMFiles:
    """
    The C{.pem} files of a directory, for each new connection.

    A listing takes six times as long as the C{stat} of its files, so a new one is made only after a
    directory has changed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[str] = []
        self._stamps: dict[str, tuple[int, ...]] = {}

    def __call__(self) -> list[str]:
        """Return the sorted paths."""
        stamps = {each: fileStamp(each) for each in self._stamps}
        # The time of a directory advances in steps of a few milliseconds, so a change right after
        # the listing may not show.
        latest = max((stamp[0] for stamp in stamps.values() if stamp), default=0)
        if not stamps or stamps != self._stamps or time.time_ns() - latest < _STEP_NS:
            self._found, self._stamps = [], {}
            for folder, _, names in os.walk(self._path):
                self._stamps[folder] = fileStamp(folder)
                own = (each for each in names if each.endswith(".pem"))
                self._found += [os.path.join(folder, each) for each in own]
            self._found.sort()
        return self._found


class _CertificateDirectory:
    """
    The certificates in a directory that have their keys there.

    @ivar default: The certificates for a client that names no server, or an unknown one.
    @ivar named: The certificates by server name; several have keys of different algorithms.
    @ivar ends: The expiry times by file.
    """

    def __init__(self, path: str) -> None:
        """
        @raise ValueError: If a file has a key that does not match its certificate.
        """
        if not Path(path).is_dir():
            raise ValueError("is not a directory")
        contents = {file: readPEM(file) for file in _PEMFiles(path)()}
        keys = {file: _keys(content) for file, content in contents.items()}
        certificates = {
            file: load_pem_x509_certificates(content) if _CERTIFICATE in content else []
            for file, content in contents.items()
        }
        known = {identity: key for found in keys.values() for identity, key in found.items()}
        every = [each for found in certificates.values() for each in found]
        others = [each for each in every if _identity(each.public_key()) not in known]
        self.ends: dict[str, float] = {}
        self.named: dict[str, list[ServerCertificate]] = {}
        self.default: list[ServerCertificate] = []
        best: dict[tuple[str, str], float] = {}
        for file, found in certificates.items():
            own = [each for each in found if _identity(each.public_key()) in known]
            if own:
                self.ends[file] = own[0].not_valid_after_utc.timestamp()
            elif found and keys[file]:
                raise ValueError(f"the key in {file} belongs to no certificate")
            for each in own:
                self._add(each, known[_identity(each.public_key())], others, best)

    def _add(
        self,
        certificate: Certificate,
        key: Any,
        others: Sequence[Certificate],
        best: dict[tuple[str, str], float],
    ) -> None:
        """
        Add a certificate with its key.

        @param others: The certificates without keys, some of them intermediate ones.
        @param best: The expiry of the best certificate by name and algorithm.
        """
        chain = [X509.from_cryptography(each) for each in _chain(certificate, others)]
        own = ServerCertificate(
            X509.from_cryptography(certificate), PKey.from_cryptography_key(key), chain
        )
        end = certificate.not_valid_after_utc.timestamp()
        for name in _names(certificate):
            # Of two certificates that only differ in their times, the renewed one is used.
            if end > best.get((name, own.algorithm), 0.0):
                best[name, own.algorithm] = end
                same = self.named.setdefault(name, [])
                same[:] = [*(each for each in same if each.algorithm != own.algorithm), own]
                self.default = self.default or same


def _chain(certificate: Certificate, others: Sequence[Certificate]) -> Iterable[Certificate]:
    """Return the intermediate certificates up to the root, which clients have themselves."""
    left = list(others)
    while (issuer := next((each for each in left if _isIssued(certificate, each)), None)) and (
        issuer.subject != issuer.issuer
    ):
        yield issuer
        left.remove(issuer)
        certificate = issuer


def _isIssued(certificate: Certificate, issuer: Certificate) -> bool:
    if certificate.issuer != issuer.subject:
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: Certificate) -> Iterable[str]:
    """Return the names of servers in a certificate, in lower case."""
    try:
        found = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return []
    return [each.lower() for each in found.get_values_for_type(DNSName)]


def _keys(content: bytes) -> dict[bytes, Any]:
    """Return the keys in a file by their public parts."""
    found = [load_pem_private_key(each[0], None) for each in _KEY.finditer(content)]
    return {_identity(each.public_key()): each for each in found}


def _identity(key: Any) -> bytes:
    identity: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return identity
