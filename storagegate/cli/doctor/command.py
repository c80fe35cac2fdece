"""
The command C{storagegate doctor}: its flags, and how it tells what it found.

All checks, one after the other. Nothing is changed by any of them.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout

from attrs import asdict

from storagegate.cli.doctor import configuration as checks
from storagegate.cli.doctor import network, system
from storagegate.cli.doctor.findings import Finding
from storagegate.cli.doctor.network import placesOf
from storagegate.daemon.config import CONFIG_VARIABLE, Configuration
from storagegate.daemon.configkeys import KEYS

# Two weeks: time enough to find out why a renewal has not happened.
_DAYS = 14


def addFlags(parser: argparse.ArgumentParser) -> None:
    """Add the flags: those of the daemon, for what is asked is whether it would start with them."""
    parser.add_argument("--config", metavar="FILE", help=f"a TOML file (or {CONFIG_VARIABLE})")
    for key in KEYS:
        if key.argument:
            parser.add_argument(
                f"--{key.name}",
                metavar=key.argument,
                # The keys themselves read the values, with their own words.
                action="append" if key.name == "service" else "store",
                help=key.meaning,
            )
    parser.add_argument(
        "--days", type=int, default=_DAYS, metavar="N", help="warn of certificates that end sooner"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")


def run(options: argparse.Namespace) -> int:
    """Examine, tell, and give the exit code: 1 where there is a problem."""
    # Not with the flags: the other commands need none of what the checks import.
    from storagegate.telemetry.log import escapeMessage

    names = ["config", *(key.name for key in KEYS if key.argument)]
    flags = {name: getattr(options, name) for name in names}
    flags["config"] = flags["config"] or os.environ.get(CONFIG_VARIABLE)
    found = []
    for finding in examine(flags, os.environ, options.days):
        found.append(finding)
        if not options.json:
            print(escapeMessage(f"{finding.level:<8} {finding.check}: {finding.text}"), flush=True)
    isWell = all(finding.level != "problem" for finding in found)
    if options.json:
        print(json.dumps({"ok": isWell, "findings": [asdict(each) for each in found]}))
    return 0 if isWell else 1


def examine(
    flags: Mapping[str, object], environment: Mapping[str, str], days: int
) -> Iterator[Finding]:
    """
    Look at everything.

    @param flags: Those of the daemon, by key.
    @param days: How long before its end a certificate is worth a warning.
    """
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
    directory = os.path.abspath(configuration.store.directory)
    yield from system.checkFiles(directory)
    yield from system.checkData(directory)
    if path and _holdsSecret(path):
        yield from system.checkSecretFile(path, "the configuration with the secret key")
    yield from system.checkSpace(directory)
    yield from system.checkSyncs(directory)
    daemon = network.daemonOf(directory)
    yield from checks.checkCatalog(directory, daemon is not None)
    for place in placesOf(configuration):
        yield from network.checkPlace(place, daemon)
        yield from checks.checkEndpoint(place.description, days)
    yield from checks.checkInstances(configuration.gateway, days)
    # What services print when they are imported is not what was asked for.
    with redirect_stdout(sys.stderr):
        # As the daemon does: services lie in its working directory.
        sys.path.insert(0, os.getcwd())
        try:
            found = list(checks.checkGateway(configuration))
        finally:
            sys.path.remove(os.getcwd())
    yield from found
    yield from network.checkNeighbours(configuration.gateway)


def _holdsSecret(path: str) -> bool:
    with open(path, "rb") as file:
        return b"secretKey" in file.read()
