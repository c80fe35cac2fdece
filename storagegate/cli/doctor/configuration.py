"""
Checks of the installation and its configuration: all errors that a start would report one by one,
services, certificates and keys, the header of the catalog's file, and the versions of Python,
SQLite and the required packages. Files are only read; C{storagegate fsck} checks the whole catalog.
"""

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from importlib import metadata
from struct import Struct
from typing import TYPE_CHECKING, Any

from storagegate.cli.doctor import Check, Finding
from storagegate.cli.doctor.network import discoveryOptions
from storagegate.cli.doctor.system import checkSecretFile
from storagegate.core.files import PEMFileError, readPEM
from storagegate.daemon.config import Configuration, ConfigurationError, StoreOptions, load
from storagegate.daemon.configkeys import OWN_SERVICES
from storagegate.net.endpoints import ENCRYPTED, certificateFiles, chooseReactor
from storagegate.objects.encryption.masterkeys.keyfile import KeyFileError, readKeyFile
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files, readFailStop
from storagegate.storage.identity import refuseLostCatalog, storeId
from storagegate.storage.layout import MASTER_KEYS, BlobLayout
from storagegate.storage.sqlite import CatalogUnusable

if TYPE_CHECKING:
    from storagegate.cluster.options import ClusterOptions

_CONFIGURATION = Check("configuration")


def read(
    flags: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Configuration | None, list[Finding]]:
    """
    Read the configuration as the daemon does.

    @param flags: Flags by name; C{config} is the path of the file.
    @param environment: The environment variables of the process.
    @return: The configuration, L{None} if it is invalid, and the findings.
    """
    try:
        configuration = load(flags, environment)
    except ConfigurationError:
        from storagegate.daemon.configcheck import everyError

        return None, [_CONFIGURATION.problem(line) for line in everyError(flags, environment)]
    origin = f"in {flags['config']}" if flags.get("config") else "without a file"
    # L{checkGateway} checks these tables.
    keys = "keys outside the tables of the gateway" if configuration.gateway else "keys"
    return configuration, [_CONFIGURATION.ok(f"all {keys} are valid, {origin}")]


def checkGateway(configuration: Configuration) -> Iterator[Finding]:
    """Import the services and apply each gateway table, as the daemon does."""
    from storagegate.core.definitions import DefinitionError
    from storagegate.daemon.gatewayservice import NamingError, configureGateway, loadObject
    from storagegate.daemon.s3guest import guestErrors
    from storagegate.gateway.gateway import ProtocolGateway

    services = Check("services")
    gateway = ProtocolGateway()
    for name in configuration.services:
        if name in OWN_SERVICES:
            continue
        try:
            gateway.addService(loadObject(name))
        except (NamingError, DefinitionError) as error:
            yield services.problem(f"{name}: {error}")
        else:
            yield services.ok(f"{name} can be imported")
    for name, table in configuration.gateway.items():
        try:
            configureGateway(ProtocolGateway(), {name: table})
        except ConfigurationError as error:
            yield from map(_CONFIGURATION.problem, error.errors)
        else:
            yield _CONFIGURATION.ok(f"gateway.{name} is valid")
    if configuration.listeners.gatewayOnS3:
        guest = ProtocolGateway()
        with suppress(ConfigurationError):
            configureGateway(guest, configuration.gateway)
            yield from map(_CONFIGURATION.problem, guestErrors(guest.settings))


_EXPOSURE = Check("exposure")


def checkExposure(configuration: Configuration, exposed: Sequence[str]) -> Iterator[Finding]:
    """
    Warn of clear text and anonymous methods on addresses that other machines can reach.

    @param exposed: The names of listeners on such addresses. Another check reports errors in
        services.
    """
    from storagegate.core.definitions import DefinitionError, readService
    from storagegate.daemon.gatewayservice import (
        ANONYMOUS,
        NamingError,
        anonymousMethods,
        loadObject,
    )

    for name in exposed:
        isEncrypted = (configuration.endpoint(name) or "").startswith(ENCRYPTED)
        if not (isEncrypted or configuration.tlsTable(name)):
            yield _EXPOSURE.warning(f"{name}: reachable from other machines without TLS")
    listeners = [
        name
        for name in exposed
        if configuration.listeners.servesGateway(name) and not configuration.requiresClient(name)
    ]
    methods = []
    for name in configuration.services:
        if name == "UserService":
            methods.append("UserService.*")
        elif name not in OWN_SERVICES:
            with suppress(NamingError, DefinitionError):
                methods += anonymousMethods([readService(loadObject(name))])
    if methods and listeners:
        text = ANONYMOUS.format(methods=", ".join(methods), listeners=", ".join(listeners))
        yield _EXPOSURE.warning(text)


_CERTIFICATES = Check("certificates")


def checkEndpoint(description: str, days: int) -> Iterator[Finding]:
    """
    Check the certificate of an C{ssl:} endpoint, or all certificates of a C{tls:} endpoint.

    @param description: The endpoint; other types have no certificates to check.
    @param days: A certificate that expires within this time is a warning.
    """
    files = certificateFiles(description)
    if "path" in files:
        yield from _checkDirectory(files["path"], days)
    elif files:
        yield from checkSecretFile(files["privateKey"], "the key")
        yield from checkFile(files["certKey"], days)


def checkTables(tables: Mapping[str, Any], days: int) -> Iterator[Finding]:
    """
    Check the certificates of the gateway: for its listeners, and for instances and registries.

    @param tables: The tables of the gateway; another check reports errors in them.
    @param days: A certificate that expires within this time is a warning.
    """
    for table in tables.values():
        tls = table.get("tls") if isinstance(table, Mapping) else None
        if isinstance(tls, Mapping):
            for key in _listed(tls.get("key")):
                yield from checkSecretFile(key, "the key")
            for cert in _listed(tls.get("cert")):
                yield from checkFile(cert, days)
    options = discoveryOptions(tables)
    if options is None:
        return
    from storagegate.core.options import OptionError
    from storagegate.net.tls import checkFiles
    from storagegate.upstream.options import tlsTables

    for name, tls in tlsTables(options).items():
        try:
            checkFiles(tls, name)
        except OptionError as error:
            yield _CERTIFICATES.problem(f"gateway.discovery: {error}")
            continue
        if tls.certFile is not None and tls.keyFile is not None:
            yield from checkSecretFile(tls.keyFile, "the key")
            yield from checkFile(tls.certFile, days)


def _listed(value: Any) -> list[str]:
    """Return the paths in an option that takes one or several; another check reports errors."""
    return [
        each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)
    ]


def checkFile(path: str, days: int) -> Iterator[Finding]:
    """Check the first certificate of a PEM file, which clients receive."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(readPEM(path))
    except PEMFileError as error:
        yield _CERTIFICATES.problem(str(error))
        return
    except ValueError:
        yield _CERTIFICATES.problem(f"{path} contains no certificate")
        return
    now = datetime.now(UTC)
    left = (certificate.not_valid_after_utc - now).days
    end = certificate.not_valid_after_utc.strftime("%Y-%m-%d")
    if certificate.not_valid_before_utc > now:
        begin = certificate.not_valid_before_utc.strftime("%Y-%m-%d")
        yield _CERTIFICATES.problem(f"{path} is not valid before {begin}")
    elif left < 0:
        yield _CERTIFICATES.problem(f"{path} expired on {end}")
    elif left < days:
        yield _CERTIFICATES.warning(f"{path} expires in {left} days, on {end}")
    else:
        yield _CERTIFICATES.ok(f"{path} is valid until {end}")


def _checkDirectory(directory: str, days: int) -> Iterator[Finding]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".pem"))
    except OSError as error:
        yield _CERTIFICATES.problem(f"{directory}: {error.strerror}")
        return
    if not names:
        yield _CERTIFICATES.problem(f"{directory} contains no *.pem file: no client can connect")
    for name in names:
        path = os.path.join(directory, name)
        yield from checkSecretFile(path, "the key in")
        yield from checkFile(path, days)


_CATALOG = Check("catalog")

_NAME = "catalog.sqlite"

# SQLite's file format, section 1.3: magic, page size (1 means 65536), change counter, number of
# pages, and the change counter for which the number of pages is valid.
_HEAD = Struct(">16sH6xII60xI")
_MAGIC = b"SQLite format 3\0"


def checkCatalog(directory: str, isInUse: bool) -> Iterator[Finding]:
    """
    Check the header and the size of the catalog's file.

    @param directory: The data directory, in which the catalog may be absent.
    @param isInUse: Whether a daemon has it open; if so, only its readability is checked.
    """
    path = os.path.join(directory, _NAME)
    if (reason := readFailStop(directory)) is not None:
        yield _CATALOG.problem(f"the daemon has stopped writing, restart it: {reason}")
    try:
        # A named pipe must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            head = file.read(_HEAD.size)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        try:
            refuseLostCatalog(BlobLayout(directory), Files())
        except (CatalogUnusable, OSError) as error:
            yield _CATALOG.problem(str(error))
        return
    except OSError as error:
        yield _CATALOG.problem(f"{path} cannot be read: {error.strerror}")
        return
    if isInUse:
        return
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        yield _CATALOG.problem(f"{path} is not a database: restore the data from a backup")
        return
    _, pageBytes, changes, pages, validFor = _HEAD.unpack(head)
    needed = pages * (65536 if pageBytes == 1 else pageBytes)
    if changes == validFor and size < needed:
        yield _CATALOG.problem(
            f"{path} is truncated to {size} of {needed} bytes: restore the data from a backup"
        )
        return
    from storagegate.storage.embedded.logbinding import checkLog

    try:
        checkLog(path)
    except CatalogUnusable as error:
        yield _CATALOG.problem(str(error))
    else:
        yield _CATALOG.ok(f"{path} has the header and the size of a catalog")


_CLUSTER = Check("cluster")


def checkCluster(options: "ClusterOptions") -> Iterator[Finding]:
    """Connect to the catalog and the blobs of a cluster, and compare them, as a start would."""
    from storagegate.cluster.initialisation import checkCluster
    from storagegate.storage.cluster.admin import openForTools

    try:
        found = checkCluster(options, chooseReactor(None))
        with closing(openForTools(options.catalog)) as admin:
            standbys = [each for each in admin.standbys() if each.syncState in ("sync", "quorum")]
            isConfirmed = bool(admin.synchronousNames() and standbys)
            nodes = len([each for each in admin.nodes() if each.expiresSeconds > 0])
    except StoreError as error:
        yield _CLUSTER.problem(str(error))
        return
    yield _CLUSTER.ok(
        f"catalog and blobs are of store {storeId(found.store)}, {nodes} nodes hold a lease"
    )
    if isConfirmed:
        yield _CLUSTER.ok(f"{len(standbys)} synchronous standbys confirm commits")
    elif options.synchronous == "required":
        yield _CLUSTER.problem(
            "no synchronous standby confirms commits: all requests will be refused"
        )
    else:
        yield _CLUSTER.warning("the latest acknowledged writes may be lost with the primary")


_MASTER_KEYS = Check("master keys")


def checkMasterKeys(options: StoreOptions, directory: str) -> Iterator[Finding]:
    """
    Check the file of the master keys, or the files with which the store signs in to Vault.

    @param directory: The data directory.
    """
    vault = options.vault
    if vault is not None:
        files = [vault.tokenFile]
        files += [vault.appRole and vault.appRole.secretIdFile]
        files += [vault.kubernetes and vault.kubernetes.tokenFile]
        for path in filter(None, files):
            if os.access(path, os.R_OK):
                yield _MASTER_KEYS.ok(f"{path} can be read, to sign in to {vault.address}")
            else:
                yield _MASTER_KEYS.problem(f"{path} cannot be read, to sign in to {vault.address}")
        return
    path = options.masterKeys or os.path.join(directory, MASTER_KEYS)
    try:
        found = readKeyFile(path)
    except KeyFileError as error:
        yield _MASTER_KEYS.problem(str(error))
        return
    if found is not None:
        count = len(found.keys)
        yield _MASTER_KEYS.ok(f"{path} has {count} master key{'' if count == 1 else 's'}")


_VERSIONS = Check("versions")

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?"
)
_BOUND = re.compile(r"\s*(>=|<=|==|!=|<|>|~=)\s*([0-9][0-9.]*)\S*\s*")
_DISTRIBUTION = "storagegate"


def checkVersions() -> Iterator[Finding]:
    """Compare the installed versions with the requirements."""
    version = ".".join(map(str, sys.version_info[:3]))
    try:
        declared = metadata.metadata(_DISTRIBUTION)
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield _VERSIONS.warning("pip did not install storagegate, so versions are not compared")
        return
    found = list(evaluatePackages(requirements, metadata.version))
    needed = str(declared.json.get("requires_python", ""))
    if not _isWithin(version, needed):
        found.append(_VERSIONS.problem(f"Python {version} is installed, {needed} is required"))
    yield from found or [
        _VERSIONS.ok(
            f"Python {version}, SQLite {sqlite3.sqlite_version}, all"
            " packages meet their requirements"
        )
    ]


def evaluatePackages(
    requirements: Sequence[str], installed: Callable[[str], str]
) -> Iterator[Finding]:
    """
    Report unmet requirements, except the requirements of extras.

    @param requirements: Requirements in the form of the distribution's metadata, with markers.
    @param installed: Returns the version of a package, or raises C{PackageNotFoundError}.
    """
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement.strip())
        if match is None or match[3]:
            continue
        name, bounds = match[1], match[2].strip()
        try:
            version = installed(name)
        except metadata.PackageNotFoundError:
            yield _VERSIONS.problem(f"{name} is not installed: {name}{bounds} is required")
            continue
        if not _isWithin(version, bounds):
            yield _VERSIONS.problem(f"{name} {version} is installed, {bounds} is required")


def _isWithin(version: str, bounds: str) -> bool:
    """Return whether a version meets its bounds; a bound in another form counts as met."""
    have = _numbers(version)
    for bound in bounds.split(","):
        match = _BOUND.fullmatch(bound)
        if match is None:
            continue
        wanted = _numbers(match[2])
        length = max(len(have), len(wanted))
        one, other = (each + (0,) * (length - len(each)) for each in (have, wanted))
        isMet = {
            ">=": one >= other,
            "<=": one <= other,
            "==": one == other,
            "!=": one != other,
            ">": one > other,
            "<": one < other,
            "~=": one >= other and one[: len(wanted) - 1] == wanted[:-1],
        }[match[1]]
        if not isMet:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
