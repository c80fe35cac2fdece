"""The commands C{storagegate keys}."""

import getpass
import re
import sys
import time
from datetime import UTC, datetime
from typing import Any

from storagegate.cli.administration import administrationOf
from storagegate.cli.client import escapeSegment
from storagegate.cli.daemonclient import apiOf
from storagegate.cli.identities import readPolicyFile
from storagegate.cli.invocation import FAILED, MISUSED, CommandError, Invocation
from storagegate.cli.output import Cell, formatTime
from storagegate.daemon.rootcredentials import shellText
from storagegate.objects.issuedkeys import KeyPair, readCredential, readExpiry

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)

# A secret has at most 128 characters; a longer line is invalid.
_SECRET_LIMIT = 1024

_HEADINGS = (
    "ACCESS KEY",
    "ACCOUNT",
    "POLICY",
    "BUCKET",
    "PREFIX",
    "EMAIL",
    "ROLE",
    "CREATED",
    "EXPIRES",
    "LAST USED",
    "STATE",
)


def create(invocation: Invocation) -> int:
    """Issue a key."""
    options = invocation.options
    if (options.accessKey is not None) != options.secret_stdin:
        raise CommandError("--access-key and --secret-stdin must be given together", MISUSED)
    wanted: dict[str, Any] = {
        "account": options.account,
        "policy": options.policy,
        "bucket": options.bucket or "",
        "prefix": options.prefix or "",
        "email": options.email or "",
        "note": options.note or "",
        "role": options.role or "none",
        "expiresMs": options.expires or 0,
    }
    if options.accessKey is not None:
        wanted |= {"accessKey": options.accessKey, "secretKey": _readSecret()}
    if options.reuse:
        wanted["reuse"] = True
    if options.user:
        wanted["user"] = options.user
    if options.parent:
        wanted["parent"] = options.parent
    if options.policyFile:
        wanted["sessionPolicy"] = readPolicyFile(options.policyFile)
    try:
        key = administrationOf(invocation).createKey(wanted)
    except CommandError as error:
        if error.error == "FAILED_PRECONDITION":
            raise CommandError(f"{error}; --reuse issues the key", error=error.error) from error
        if error.error == "ALREADY_EXISTS" and options.accessKey is not None:
            raise CommandError(f"the access key {options.accessKey} already exists") from error
        raise
    invocation.output.result(key, _pairLines(key))
    return 0


def listKeys(invocation: Invocation) -> int:
    """List the keys."""
    keys = administrationOf(invocation).keys()
    keys.sort(key=lambda key: (key["account"], key["accessKey"]))
    output = invocation.output
    output.result({"keys": keys}, output.table(_HEADINGS, [_row(key) for key in keys]))
    return 0


def edit(invocation: Invocation) -> int:
    """Change a key."""
    options = invocation.options
    given = {
        "role": options.role,
        "policy": options.policy,
        "bucket": options.bucket,
        "prefix": options.prefix,
        "email": options.email,
        "note": options.note,
        "expiresMs": options.expires,
        "disabled": None if options.disabled is None else options.disabled == "yes",
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if options.new_secret:
        changes["newSecret"] = True
    if not changes:
        raise CommandError("nothing to change: see storagegate keys edit --help", MISUSED)
    try:
        key = administrationOf(invocation).changeKey(options.accessKey, changes)
    except CommandError as error:
        raise _missing(error, options.accessKey) from error
    output = invocation.output
    shown = _pairLines(key) if options.new_secret else output.table(_HEADINGS, [_row(key)])
    output.result(key, shown)
    return 0


def revoke(invocation: Invocation) -> int:
    """Revoke a key."""
    accessKey = invocation.options.accessKey
    try:
        administrationOf(invocation).revokeKey(accessKey)
    except CommandError as error:
        raise _missing(error, accessKey) from error
    invocation.output.result({"accessKey": accessKey})
    return 0


def judge(invocation: Invocation) -> int:
    """Check an access; exit code 1 if it is refused."""
    options = invocation.options
    wanted = {"access": options.access, "bucket": options.bucket, "key": options.key or ""}
    path = f"keys/{escapeSegment(options.accessKey)}/judge"
    try:
        found = apiOf(invocation).request("POST", path, wanted)
    except CommandError as error:
        raise _missing(error, options.accessKey) from error
    output = invocation.output
    word, colour = ("allowed", "green") if found["allowed"] else ("refused", "red")
    output.result(found, [f"{output.paint(word, colour)}: {found['why']}"])
    return 0 if found["allowed"] else FAILED


def readExpires(text: str) -> int:
    """
    Read the time of expiry of a key.

    @param text: A duration such as C{90d}, a day such as C{2030-12-31} (its end, in UTC), a time in
        ISO 8601, or C{never}.
    @return: Milliseconds since 1970; 0 for never.
    @raise ValueError: The text has another form, or the time is not in the future.
    """
    if text == "never":
        return 0
    nowMs = int(time.time() * 1000)
    if _DURATION.fullmatch(text):
        return readExpiry(nowMs + readDuration(text) * 1000, nowMs)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a time such as 90d, 12h, 2030-12-31 or never") from None
    if len(text) == len("2030-12-31"):
        found = found.replace(hour=23, minute=59, second=59)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return readExpiry(int(found.timestamp() * 1000), nowMs)


def readDuration(text: str) -> int:
    """
    Read a duration such as C{90s}, C{30m}, C{12h} or C{7d}.

    @return: The duration in seconds.
    @raise ValueError: The text is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("expected a duration such as 90s, 30m, 12h or 7d")
    return int(found.group(1)) * _UNITS[found.group(2)]


def _readSecret() -> str:
    """
    Read a secret from standard input, without echo on a terminal.

    @raise CommandError: The secret is invalid.
    """
    if sys.stdin.isatty():
        text = getpass.getpass("secret key: ")
    else:
        text = sys.stdin.readline(_SECRET_LIMIT).rstrip("\r\n")
    try:
        return readCredential(text)
    except ValueError as error:
        raise CommandError(f"the secret key on standard input: {error}", MISUSED) from error


def _missing(error: CommandError, accessKey: str) -> CommandError:
    if error.error == "NOT_FOUND":
        return CommandError(f"no such access key: {accessKey}", error=error.error)
    return error


def _pairLines(key: dict[str, Any]) -> list[str]:
    return shellText(KeyPair(key["accessKey"], key["secretKey"])).splitlines()


def _row(key: dict[str, Any]) -> list[str | Cell]:
    state = Cell("valid", "green")
    if key["disabled"]:
        state = Cell("disabled", "yellow")
    elif key["expiresMs"] and key["expiresMs"] <= time.time() * 1000:
        state = Cell("expired", "red")
    return [
        key["accessKey"],
        key["account"],
        key["policy"],
        key["bucket"] or "*",
        key["prefix"] or "*",
        key["email"] or "-",
        key["role"],
        formatTime(key["createdMs"]),
        formatTime(key["expiresMs"]),
        formatTime(key["lastUsedMs"]),
        state,
    ]
