"""The certificates and keys of listeners with TLS, and those that the gateway shows to others."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from storagegate.core.smallfiles import PEMFileError, readPEM
from storagegate.doctor.discovering import discoveryOptions
from storagegate.doctor.findings import Check, Finding
from storagegate.doctor.permissions import checkSecretFile
from storagegate.doctor.places import arguments

_check = Check("certificates")


def checkEndpoint(description: str, days: int) -> Iterator[Finding]:
    """
    Look at the certificate of an endpoint C{ssl:}, or at all of an endpoint C{tls:}.

    @param days: How long before its end a certificate is worth a warning.
    """
    kind = description.partition(":")[0]
    positional, named = arguments(description)
    if kind == "ssl":
        key = named.get("privateKey", "server.pem")
        yield from checkSecretFile(key, "the key")
        yield from checkFile(named.get("certKey", key), days)
    elif kind == "tls":
        yield from _checkDirectory(named.get("path") or positional[0], days)


def checkInstances(tables: Mapping[str, Any], days: int) -> Iterator[Finding]:
    """
    Look at what the gateway proves with who it is, to instances and to those who know them.

    @param tables: Those of the gateway. What is not right in them is found elsewhere.
    """
    options = discoveryOptions(tables)
    if options is None:
        return
    from storagegate.core.optionvalues import OptionError
    from storagegate.discovery.options import tlsTables
    from storagegate.discovery.tls import checkFiles

    for name, tls in tlsTables(options).items():
        try:
            checkFiles(tls, name)
        except OptionError as error:
            yield _check.problem(f"gateway.discovery: {error}")
            continue
        if tls.certFile is not None and tls.keyFile is not None:
            yield from checkSecretFile(tls.keyFile, "the key")
            yield from checkFile(tls.certFile, days)


def checkFile(path: str, days: int) -> Iterator[Finding]:
    """Look at the first certificate of a PEM file: the one that is shown to clients."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(readPEM(path))
    except PEMFileError as error:
        yield _check.problem(str(error))
        return
    except ValueError:
        yield _check.problem(f"{path} holds no certificate")
        return
    now = datetime.now(UTC)
    left = (certificate.not_valid_after_utc - now).days
    end = certificate.not_valid_after_utc.strftime("%Y-%m-%d")
    if certificate.not_valid_before_utc > now:
        begin = certificate.not_valid_before_utc.strftime("%Y-%m-%d")
        yield _check.problem(f"{path} is not valid before {begin}")
    elif left < 0:
        yield _check.problem(f"{path} has expired on {end}")
    elif left < days:
        yield _check.warning(f"{path} expires in {left} days, on {end}")
    else:
        yield _check.ok(f"{path} is valid until {end}")


def _checkDirectory(directory: str, days: int) -> Iterator[Finding]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".pem"))
    except OSError as error:
        yield _check.problem(f"{directory}: {error.strerror}")
        return
    if not names:
        yield _check.problem(f"{directory} holds no *.pem: no client can be answered")
    for name in names:
        path = os.path.join(directory, name)
        yield from checkSecretFile(path, "the key in")
        yield from checkFile(path, days)
