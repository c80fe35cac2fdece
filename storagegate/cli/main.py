"""
The console script C{storagegate} with its commands.

C{serve} starts the daemon, as C{twistd -n storagegate} does.

C{keys} and C{backup} work while the daemon runs: C{keys} writes to the same catalog, and the daemon
applies it within a second. C{fsck} and C{recover} lock the data. The exit code is 0, or 1 with one
line on standard error, or 2 if the command line is invalid.
"""

import argparse
import json
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict

from storagegate import __version__
from storagegate.daemon.config import (
    CONFIG_VARIABLE,
    KEYS,
    Configuration,
    ConfigurationError,
    load,
)
from storagegate.daemon.process import oneLine
from storagegate.daemon.rootcredentials import (
    CredentialsError,
    RootCredentials,
    checkCredential,
    generateCredentials,
    shellText,
)
from storagegate.daemon.rootcredentials import load as loadPair
from storagegate.daemon.service import ROOT_FILE
from storagegate.s3.accounts import POLICIES
from storagegate.s3.errors import S3Error
from storagegate.s3.names import checkBucketName, checkKey
from storagegate.storage.errors import KeyExists, StoreError
from storagegate.storage.records import AccessKey

if TYPE_CHECKING:
    from storagegate.cli.doctor import Finding
    from storagegate.storage.catalog.buckets import CatalogAdmin

# Names and patterns are parts of one line of a listing.
_NAME_LENGTH = 128
_PATTERN_LENGTH = 1024

_WILDCARD = re.compile(r"[*?]")

_CERTIFICATE_DAYS = 14
"""A certificate that expires sooner is a warning: two weeks to repair a failed renewal."""


_CONFIG = ("FILE", f"a TOML file with any of the keys (or {CONFIG_VARIABLE})")
_DATA = next((key.argument, key.meaning) for key in KEYS if key.name == "data")
"""Argument and meaning of the flags that every command has."""


class CommandError(Exception):
    """
    A command failed; the text is one line for the operator.

    @ivar code: The exit code.
    """

    def __init__(self, reason: str, code: int = 1) -> None:
        super().__init__(reason)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (CommandError, StoreError, sqlite3.Error, OSError) as error:
        # Some errors of the store have no text.
        reason = str(error) or type(error).__name__
        print(oneLine(f"storagegate: {reason}"), file=sys.stderr)
        return error.code if isinstance(error, CommandError) else 1


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    script = argparse.ArgumentParser(prog="storagegate", allow_abbrev=False)
    _addVersion(script)
    commands = script.add_subparsers(required=True, metavar="COMMAND")
    meaning = "start the daemon in the foreground, as twistd -n storagegate does"
    serve = commands.add_parser("serve", help=meaning, description=meaning, allow_abbrev=False)
    _addVersion(serve)
    _addDaemonFlags(serve)
    serve.set_defaults(run=_serve)
    keys = commands.add_parser("keys", help="issue, list and revoke access keys")
    actions = keys.add_subparsers(required=True, metavar="ACTION")
    _addCreate(_command(actions, "create", _create, "issue a key pair and print it, once"))
    _command(actions, "list", _list, "list the issued keys without their secrets")
    revoke = _command(actions, "revoke", _revoke, "revoke a key")
    revoke.add_argument(
        "--access-key", dest="accessKey", required=True, metavar="K", help="the key to revoke"
    )
    fsck = _command(commands, "fsck", _fsck, "check the data; the daemon must not run")
    fsck.add_argument("--repair", action="store_true", help="repair what loses no data")
    fsck.add_argument("--verify", action="store_true", help="read every byte again")
    copy = "copy the blobs that no catalog names; the daemon must not run"
    recover = _command(commands, "recover", _recover, copy)
    recover.add_argument("--to", required=True, metavar="DIR", help="an empty directory, or none")
    backup = _command(commands, "backup", _backup, "copy the data; the daemon may run")
    backup.add_argument("--to", required=True, metavar="DIR", help="an empty directory, or none")
    backup.add_argument("--verify", action="store_true", help="read every byte of the copy")
    meaning = "say what would keep the daemon from a start or from a good night"
    doctor = commands.add_parser("doctor", help=meaning, description=meaning, allow_abbrev=False)
    _addDaemonFlags(doctor)
    doctor.add_argument(
        "--days",
        type=int,
        default=_CERTIFICATE_DAYS,
        metavar="N",
        help="warn of certificates that end sooner",
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    doctor.set_defaults(run=_doctor)
    return script


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    meaning: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=meaning, description=meaning, allow_abbrev=False)
    for name, argument, text in (("data", *_DATA), ("config", *_CONFIG)):
        parser.add_argument(f"--{name}", metavar=argument, help=text)
    parser.set_defaults(run=partial(_withData, run))
    return parser


def _withData(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """
    Run a command on the data directory, and with the root key pair, of the daemon.

    @raise CommandError: If the configuration would stop the daemon's start.
    """
    try:
        configuration = load(_daemonFlags(options), os.environ)
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    options.data, options.root = configuration.store.directory, configuration.s3.root
    return run(options)


def _addCreate(parser: argparse.ArgumentParser) -> None:
    name = _text(_NAME_LENGTH)
    parser.add_argument(
        "--account",
        required=True,
        type=name,
        metavar="NAME",
        help="the owner of the buckets that the key creates",
    )
    parser.add_argument(
        "--access-key",
        dest="accessKey",
        type=_credential,
        metavar="K",
        help="the access key, instead of a generated one; needs --secret-key",
    )
    parser.add_argument(
        "--secret-key", dest="secretKey", type=_credential, metavar="S", help="its secret"
    )
    parser.add_argument("--email", type=name, metavar="ADDRESS", help="shown by keys list")
    parser.add_argument(
        "--policy", choices=POLICIES, default="readwrite", help="what the key may do"
    )
    parser.add_argument(
        "--bucket",
        type=_bucketPattern,
        metavar="PATTERN",
        help="only buckets that match: * is any run of characters, ? is one",
    )
    parser.add_argument(
        "--prefix",
        type=_keyPattern,
        metavar="PREFIX|PATTERN",
        help="only keys that begin with it; with * or ? in it, only keys that match as a whole",
    )


def _text(maximum: int) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not value or not value.isprintable() or len(value) > maximum:
            raise argparse.ArgumentTypeError(f"not 1 to {maximum} printable characters")
        return value

    return read


def _bucketPattern(value: str) -> str:
    pattern = _text(_PATTERN_LENGTH)(value)
    # If it matches any name at all, it matches one of these.
    for run in ("", "a", "aaa"):
        with suppress(S3Error):
            checkBucketName(pattern.replace("*", run).replace("?", "a"))
            return pattern
    raise argparse.ArgumentTypeError("no bucket can have a name that matches")


def _keyPattern(value: str) -> str:
    text = _text(_PATTERN_LENGTH)(value)
    pattern = text if _WILDCARD.search(text) else f"{text}*"
    try:
        checkKey(pattern.replace("*", "").encode())
    except S3Error as error:
        raise argparse.ArgumentTypeError("no key can match: it would be too long") from error
    return pattern


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
    _refuseRoot(options, pair.accessKey)
    try:
        with _catalog(options) as catalog:
            catalog.addAccessKey(key)
    except KeyExists as error:
        raise CommandError(f"the access key {pair.accessKey} is taken") from error
    print(shellText(pair), end="")
    return 0


def _refuseRoot(options: argparse.Namespace, accessKey: str) -> None:
    """
    Refuse to create or revoke a key with the name of the root key.

    @raise CommandError: It is the root key: an issued key of that name would
        be valid once the root pair is changed, and revoking it would seem to revoke the root key.
    """
    try:
        root = options.root or loadPair(str(Path(options.data) / ROOT_FILE))
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    if root is not None and root.accessKey == accessKey:
        raise CommandError(
            f"{accessKey} is the root access key: to change it, write {ROOT_FILE} anew,"
            " or accessKey and secretKey of the configuration"
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
    _refuseRoot(options, options.accessKey)
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


def _recover(options: argparse.Namespace) -> int:
    from storagegate.storage.orphans import recover

    return 1 if recover(options.data, options.to, print) else 0


def _backup(options: argparse.Namespace) -> int:
    from storagegate.storage.backup import backup

    _catalogPath(options)
    # As Ctrl-C: the incomplete copy is removed.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return 1 if backup(options.data, options.to, options.verify, print) else 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _catalog(options: argparse.Namespace) -> AbstractContextManager["CatalogAdmin"]:
    from storagegate.storage.catalog.buckets import openForTools

    return closing(openForTools(_catalogPath(options)))


def _catalogPath(options: argparse.Namespace) -> str:
    """
    Return the path of the catalog's file.

    @raise CommandError: If it is absent. A mistyped directory must not become a new store.
    @raise CatalogUnusable: If it is lost.
    """
    path = Path(options.data).absolute() / "catalog.sqlite"
    if not path.exists():
        from storagegate.storage.blobs.layout import BlobLayout
        from storagegate.storage.files import Files
        from storagegate.storage.identity import refuseLostCatalog

        refuseLostCatalog(BlobLayout(options.data), Files())
        raise CommandError(
            f"{options.data} holds no store; the daemon makes one when it starts"
            " (--data, --config or STORAGEGATE_DATA name another directory)"
        )
    return str(path)


def _addVersion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"storagegate {__version__}")


def _addDaemonFlags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the daemon, whose keys parse the values, with their own messages."""
    parser.add_argument("--config", metavar=_CONFIG[0], help=_CONFIG[1])
    for key in KEYS:
        if key.argument:
            parser.add_argument(
                f"--{key.name}",
                metavar=key.argument,
                action="append" if key.name == "service" else "store",
                help=key.meaning,
            )


def _daemonFlags(options: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of the daemon by name; C{None} for one that is absent."""
    flags = {key.name: getattr(options, key.name, None) for key in KEYS if key.argument}
    return {**flags, "config": options.config or os.environ.get(CONFIG_VARIABLE)}


def _serve(options: argparse.Namespace) -> int:
    # Imported late: it installs the reactor.
    from twisted.scripts import twistd

    flags = [
        f"--{name}={each}"
        for name, value in _daemonFlags(options).items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    # A process in the foreground needs no pid file, and one left behind would prevent a start.
    sys.argv[1:] = ["--nodaemon", "--pidfile=", "storagegate", *flags]
    twistd.run()
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from storagegate.telemetry.log import escapeMessage

    flags = _daemonFlags(options)
    found = []
    for finding in examine(flags, os.environ, options.days):
        found.append(finding)
        if not options.json:
            print(escapeMessage(f"{finding.level:<8} {finding.check}: {finding.text}"), flush=True)
    isOk = all(finding.level != "problem" for finding in found)
    if options.json:
        print(json.dumps({"ok": isOk, "findings": [asdict(each) for each in found]}))
    return 0 if isOk else 1


def examine(
    flags: Mapping[str, object], environment: Mapping[str, str], days: int
) -> Iterator["Finding"]:
    """
    Run all checks of the doctor, which change nothing.

    @param flags: Those of the daemon, by key.
    @param days: A certificate that expires sooner is a warning.
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


def _ofConfiguration(configuration: Configuration, path: str, days: int) -> Iterator["Finding"]:
    from storagegate.cli.doctor import configuration as checks
    from storagegate.cli.doctor import network, system

    directory = os.path.abspath(configuration.store.directory)
    yield from system.checkFiles(directory)
    yield from system.checkData(directory)
    if path and b"secretKey" in Path(path).read_bytes():
        yield from system.checkSecretFile(path, "the configuration with the secret key")
    yield from system.checkSpace(directory)
    yield from system.checkSyncs(directory)
    daemon = network.daemonOf(directory)
    yield from checks.checkCatalog(directory, daemon is not None)
    listeners = network.listenerAddresses(configuration)
    exposed = [listener.name for listener in listeners if network.isExposed(listener)]
    for listener in listeners:
        yield from network.checkListener(listener, daemon)
        yield from checks.checkEndpoint(listener.description, days)
    yield from checks.checkTables(configuration.gateway, days)
    # Services may print while they are imported.
    with redirect_stdout(sys.stderr):
        # As the daemon does: services are imported from its working directory.
        sys.path.insert(0, os.getcwd())
        try:
            found = list(checks.checkGateway(configuration))
            found += checks.checkExposure(configuration, exposed)
        finally:
            sys.path.remove(os.getcwd())
    yield from found
    yield from network.checkPeers(configuration.gateway)
