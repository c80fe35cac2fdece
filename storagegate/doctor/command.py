"""The command C{storagegate doctor}: its flags, and how it tells what it found."""

import argparse
import json
import os

from attrs import asdict

from storagegate.config import CONFIG_VARIABLE
from storagegate.configkeys import KEYS

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
    from storagegate.core.logtext import escapeMessage
    from storagegate.doctor.examining import examine

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
