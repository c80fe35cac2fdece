"""The commands with the flags of the daemon: C{serve} and C{doctor}."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import asdict

from storagegate.cli.daemonclient import apiOf
from storagegate.cli.doctor import Finding
from storagegate.cli.invocation import FAILED, Invocation
from storagegate.daemon.config import Configuration

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def serve(invocation: Invocation) -> int:
    """Run the daemon until it ends."""
    # Imported late: it installs the reactor.
    from twisted.scripts import twistd

    flags = [
        f"--{name}={each}"
        for name, value in invocation.flags.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    # A foreground process needs no pid file, and a stale one would prevent a start.
    sys.argv[1:] = ["--nodaemon", "--pidfile=", "storagegate", *flags]
    twistd.run()
    return 0


def doctor(invocation: Invocation) -> int:
    """Run all checks; exit code 1 if there is a problem."""
    output = invocation.output
    found = []
    for finding in _findings(invocation):
        found.append(finding)
        if not output.isJSON:
            line = f"{finding.level:<8} {finding.check}: {finding.text}"
            output.line(line, _COLOURS[finding.level])
    isOk = all(finding.level != "problem" for finding in found)
    output.result({"ok": isOk, "findings": [asdict(each) for each in found]})
    return 0 if isOk else FAILED


def _findings(invocation: Invocation) -> Iterator[Finding]:
    if invocation.isRemote:
        answer = apiOf(invocation).request("POST", "doctor")
        yield from (Finding(**each) for each in answer["findings"])
    else:
        days = invocation.options.days
        yield from examine(invocation.flags, invocation.environment, days)


def examine(
    flags: Mapping[str, object], environment: Mapping[str, str], days: int
) -> Iterator[Finding]:
    """
    Run all checks of the doctor, which are read-only.

    @param flags: The flags of the daemon, by key.
    @param days: A certificate that expires within this time is a warning.
    """
    from storagegate.cli.doctor import configuration as checks
    from storagegate.cli.doctor import system

    watch = system.ClockWatch()
    configuration, found = checks.read(flags, environment)
    yield from found
    yield from checks.checkVersions()
    yield from system.checkLimits()
    yield from system.checkSynchronisation()
    if configuration is not None:
        yield from _ofConfiguration(configuration, str(flags.get("config") or ""), days)
    yield from watch.check()


def _ofConfiguration(configuration: Configuration, path: str, days: int) -> Iterator[Finding]:
    from storagegate.cli.doctor import configuration as checks
    from storagegate.cli.doctor import network, system
    from storagegate.daemon.gatewayservice import importingServices

    directory = os.path.abspath(configuration.store.directory)
    yield from system.checkFiles(directory)
    yield from system.checkData(directory)
    if path and re.search(b"secretKey|password", Path(path).read_bytes()):
        yield from system.checkSecretFile(path, "the configuration with a secret")
    daemon = network.daemonOf(directory)
    if configuration.cluster is not None:
        # A cluster keeps no essential data on this machine.
        yield from checks.checkCluster(configuration.cluster)
    else:
        yield from system.checkSpace(directory)
        yield from system.checkSyncs(directory)
        yield from checks.checkCatalog(directory, daemon is not None)
    yield from checks.checkMasterKeys(configuration.store, directory)
    listeners = network.listenerAddresses(configuration)
    exposed = [listener.name for listener in listeners if network.isExposed(listener)]
    for listener in listeners:
        yield from network.checkListener(listener, daemon)
        yield from checks.checkEndpoint(listener.description, days)
    yield from checks.checkTables(configuration.gateway, days)
    with importingServices():
        found = list(checks.checkGateway(configuration))
        found += checks.checkExposure(configuration, exposed)
    yield from found
    yield from network.checkPeers(configuration.gateway)
