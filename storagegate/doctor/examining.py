"""All checks, one after the other. Nothing is changed by any of them."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout

from storagegate.config import Configuration
from storagegate.doctor import (
    catalog,
    certificates,
    clock,
    configuring,
    disk,
    limits,
    permissions,
    ports,
    reaching,
    versions,
)
from storagegate.doctor.findings import Finding
from storagegate.doctor.places import placesOf


def examine(
    flags: Mapping[str, object], environment: Mapping[str, str], days: int
) -> Iterator[Finding]:
    """
    Look at everything.

    @param flags: Those of the daemon, by key.
    @param days: How long before its end a certificate is worth a warning.
    """
    watch = clock.ClockWatch()
    configuration, found = configuring.read(flags, environment)
    yield from found
    yield from versions.checkVersions()
    yield from limits.checkLimits()
    yield from clock.checkSynchronisation()
    if configuration is not None:
        yield from _ofConfiguration(configuration, str(flags.get("config") or ""), days)
    yield from watch.check()


def _ofConfiguration(configuration: Configuration, path: str, days: int) -> Iterator[Finding]:
    directory = os.path.abspath(configuration.store.directory)
    yield from clock.checkFiles(directory)
    yield from permissions.checkData(directory)
    if path and _holdsSecret(path):
        yield from permissions.checkSecretFile(path, "the configuration with the secret key")
    yield from disk.checkSpace(directory)
    yield from disk.checkSyncs(directory)
    daemon = ports.daemonOf(directory)
    yield from catalog.checkCatalog(directory, daemon is not None)
    for place in placesOf(configuration):
        yield from ports.checkPlace(place, daemon)
        yield from certificates.checkEndpoint(place.description, days)
    yield from certificates.checkInstances(configuration.gateway, days)
    # What services print when they are imported is not what was asked for.
    with redirect_stdout(sys.stderr):
        # As the daemon does: services lie in its working directory.
        sys.path.insert(0, os.getcwd())
        try:
            found = list(configuring.checkGateway(configuration))
        finally:
            sys.path.remove(os.getcwd())
    yield from found
    yield from reaching.checkNeighbours(configuration.gateway)


def _holdsSecret(path: str) -> bool:
    with open(path, "rb") as file:
        return b"secretKey" in file.read()
