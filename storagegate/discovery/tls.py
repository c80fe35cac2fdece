"""Whom a client believes, and who it is, by the files that its options name."""

import re
from pathlib import Path
from typing import Any

from twisted.internet.ssl import (
    Certificate,
    KeyPair,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)

from storagegate.discovery.provideroptions import TLSOptions

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def clientContext(options: TLSOptions, host: str) -> Any:
    """
    Make what secures a connection.

    The files are read for every one of them: they are small, connections are few, and whoever
    exchanges them need not start anything anew.

    @param host: Whom the server must prove to be.
    @raise OSError: If a file cannot be read, or has no certificate.
    """
    trust: Any = platformTrust()
    if options.caFile is not None:
        trust = trustRootFromCertificates(_certificates(options.caFile))
    more: dict[str, Any] = {}
    if options.certFile is not None and options.keyFile is not None:
        own, *chain = (each.original for each in _certificates(options.certFile))
        key = KeyPair.load(Path(options.keyFile).read_bytes(), _pemFormat()).original
        more = {"certificate": own, "privateKey": key, "extraCertChain": chain or None}
    return optionsForClientTLS(host, trustRoot=trust, extraCertificateOptions=more)


def _certificates(file: str) -> list[Certificate]:
    found = _PEM.findall(Path(file).read_bytes())
    if not found:
        raise OSError(f"there is no certificate in {file}")
    return [Certificate.loadPEM(each) for each in found]


def _pemFormat() -> int:
    from OpenSSL.crypto import FILETYPE_PEM

    return FILETYPE_PEM
