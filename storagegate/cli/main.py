"""
The console script C{storagegate}: keys, the check and the copy of the data, and the doctor.

C{keys} and C{backup} work while the daemon runs: C{keys} writes to the same catalog, and the daemon
obeys within a second. C{fsck} takes the data for itself. The exit code is 0, or 1 with one line on
standard error, or 2 where the command line is not right.
"""

import argparse
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Protocol

from storagegate import __version__
from storagegate.cli.doctor.command import addFlags
from storagegate.cli.doctor.command import run as examine
from storagegate.daemon.process import oneLine
from storagegate.daemon.rootcredentials import (
    CredentialsError,
    RootCredentials,
    checkCredential,
    generateCredentials,
    load,
    shellText,
)
from storagegate.s3.accounts import POLICIES
from storagegate.storage.errors import KeyExists, StoreError
from storagegate.storage.records import AccessKey

# What a key's row may hold; names and patterns are a line of a listing, not a text.
_NAME_LENGTH = 128
_PATTERN_LENGTH = 1024


class CommandError(Exception):
    """
    A command cannot be done; the text is one line for the operator.

    @ivar code: The exit code.
    """

    def __init__(self, reason: str, code: int = 1) -> None:
        super().__init__(reason)
        self.code = code


class ToolCatalog(Protocol):
    """What the commands ask of a catalog that is open without a reactor."""

    def accessKeys(self) -> list[AccessKey]:
        """Give all issued keys."""

    def addAccessKey(self, key: AccessKey) -> None:
        """Issue a key."""

    def removeAccessKey(self, accessKey: str) -> bool:
        """Revoke a key; say whether it was there."""

    def close(self) -> None:
        """Let go of the file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script and give its exit code."""
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (CommandError, StoreError, sqlite3.Error, OSError) as error:
        # Some errors of the store say all in their name.
        reason = str(error) or type(error).__name__
        print(oneLine(f"storagegate: {reason}"), file=sys.stderr)
        return error.code if isinstance(error, CommandError) else 1


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    script = argparse.ArgumentParser(prog="storagegate", allow_abbrev=False)
    script.add_argument("--version", action="version", version=f"storagegate {__version__}")
    commands = script.add_subparsers(required=True, metavar="COMMAND")
    keys = commands.add_parser("keys", help="issue, list and revoke access keys")
    actions = keys.add_subparsers(required=True, metavar="ACTION")
    _addCreate(_command(actions, "create", _create, "issue a key pair and print it, once"))
    _command(actions, "list", _list, "list the issued keys without their secrets")
    revoke = _command(actions, "revoke", _revoke, "revoke a key")
    revoke.add_argument("--access-key", dest="accessKey", required=True, metavar="K")
    fsck = _command(commands, "fsck", _fsck, "check the data; the daemon must not run")
    fsck.add_argument("--repair", action="store_true", help="repair what loses no data")
    fsck.add_argument("--verify", action="store_true", help="read every byte again")
    backup = _command(commands, "backup", _backup, "copy the data; the daemon may run")
    backup.add_argument("--to", required=True, metavar="DIR", help="an empty directory, or none")
    backup.add_argument("--verify", action="store_true", help="read every byte of the copy")
    meaning = "say what would keep the daemon from a start or from a good night"
    doctor = commands.add_parser("doctor", help=meaning, description=meaning, allow_abbrev=False)
    addFlags(doctor)
    doctor.set_defaults(run=examine)
    return script


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    meaning: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=meaning, description=meaning, allow_abbrev=False)
    parser.add_argument("--data", required=True, metavar="DIR", help="the daemon's data directory")
    parser.set_defaults(run=run)
    return parser


def _addCreate(parser: argparse.ArgumentParser) -> None:
    name, pattern = _text(_NAME_LENGTH), _text(_PATTERN_LENGTH)
    parser.add_argument("--account", required=True, type=name, metavar="NAME")
    parser.add_argument("--access-key", dest="accessKey", type=_credential, metavar="K")
    parser.add_argument("--secret-key", dest="secretKey", type=_credential, metavar="S")
    parser.add_argument("--policy", choices=POLICIES, default="readwrite")
    parser.add_argument("--bucket", type=pattern, metavar="PATTERN")
    parser.add_argument("--prefix", type=pattern, metavar="PATTERN")
    parser.add_argument("--email", type=name, metavar="ADDRESS")


def _text(maximum: int) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not value or not value.isprintable() or len(value) > maximum:
            raise argparse.ArgumentTypeError(f"not 1 to {maximum} printable characters")
        return value

    return read


def _credential(value: str) -> str:
    try:
        return checkCredential(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _create(options: argparse.Namespace) -> int:
    if (options.accessKey is None) != (options.secretKey is None):
        raise CommandError("--access-key and --secret-key go together", 2)
    pair = generateCredentials()
    if options.accessKey is not None:
        pair = RootCredentials(options.accessKey, options.secretKey)
    key = AccessKey(
        accessKey=pair.accessKey,
        secretKey=pair.secretKey,
        account=options.account,
        policy=options.policy,
        bucketPattern=options.bucket or "",
        prefixPattern=options.prefix or "",
        email=options.email or "",
        createdMs=int(time.time() * 1000),
    )
    _refuseRoot(options.data, pair.accessKey)
    with _catalog(options) as catalog:
        try:
            catalog.addAccessKey(key)
        except KeyExists as error:
            raise CommandError(f"the access key {pair.accessKey} is taken") from error
    print(shellText(pair), end="")
    return 0


def _refuseRoot(data: str, accessKey: str) -> None:
    """
    Leave the root key alone.

    @raise CommandError: It is the one of the data directory: an issued key of its name would
        come to life the day the root pair is changed, and revoking one would seem to revoke it.
    """
    try:
        root = load(str(Path(data) / "root-credentials"))
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    if root is not None and root.accessKey == accessKey:
        raise CommandError(
            f"{accessKey} is the root access key: to change it, write root-credentials anew"
        )


def _list(options: argparse.Namespace) -> int:
    with _catalog(options) as catalog:
        keys = sorted(catalog.accessKeys(), key=lambda key: (key.account, key.accessKey))
    rows = [("ACCESS KEY", "ACCOUNT", "POLICY", "BUCKET", "PREFIX", "EMAIL", "CREATED")]
    rows += [
        (
            key.accessKey,
            key.account,
            key.policy,
            key.bucketPattern or "*",
            key.prefixPattern or "*",
            key.email or "-",
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(key.createdMs / 1000)),
        )
        for key in keys
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _revoke(options: argparse.Namespace) -> int:
    _refuseRoot(options.data, options.accessKey)
    with _catalog(options) as catalog:
        if not catalog.removeAccessKey(options.accessKey):
            raise CommandError(f"there is no access key {options.accessKey}")
    return 0


def _fsck(options: argparse.Namespace) -> int:
    from storagegate.storage.fsck import check

    _catalogPath(options)
    problems = check(options.data, options.repair, options.verify, print)
    print(f"{problems} problems" if problems != 1 else "1 problem")
    return 1 if problems else 0


def _backup(options: argparse.Namespace) -> int:
    from storagegate.storage.backup import backup

    # As Ctrl-C does: what was begun is taken away.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return 1 if backup(options.data, options.to, options.verify, print) else 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _catalog(options: argparse.Namespace) -> AbstractContextManager[ToolCatalog]:
    from storagegate.storage.catalog.admin import openForTools

    return closing(openForTools(_catalogPath(options)))


def _catalogPath(options: argparse.Namespace) -> str:
    """
    Give the catalog's file.

    @raise CommandError: If it is not there. A mistyped directory must not become a new store.
    """
    path = Path(options.data).absolute() / "catalog.sqlite"
    if not path.exists():
        raise CommandError(f"{options.data} holds no store; the daemon makes one when it starts")
    return str(path)
