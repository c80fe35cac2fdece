"""The commands C{storagegate buckets} and C{storagegate share}."""

from collections.abc import Mapping, Sequence
from typing import Any

from storagegate.cli.administration import administrationOf
from storagegate.cli.client import ConsoleClient, escapeSegment
from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import MISUSED, CommandError, Invocation
from storagegate.cli.output import escape, formatBytes, formatTime
from storagegate.objects.errors import EncryptionNotFound

_SUMS = ("objects", "bytes", "uploads", "uploadBytes")


def listBuckets(invocation: Invocation) -> int:
    """List buckets."""
    found = administrationOf(invocation).buckets(invocation.options.prefix or "")
    output = invocation.output
    headings = ("NAME", "ACCOUNT", "VERSIONING", "LOCK", "OBJECTS", "BYTES", "CREATED")
    rows = [
        (
            each["name"],
            each["account"],
            each["versioning"] or "-",
            "yes" if each["lockEnabled"] else "-",
            *_figures(each, "objects", "bytes"),
            formatTime(each["createdMs"]),
        )
        for each in found
    ]
    output.result({"buckets": found}, output.table(headings, rows))
    return 0


def create(invocation: Invocation) -> int:
    """Create a bucket."""
    options = invocation.options
    administration = administrationOf(invocation)
    bucket = administration.createBucket(options.bucket, options.locked, options.ownership or "")
    invocation.output.result(bucket)
    return 0


def delete(invocation: Invocation) -> int:
    """Delete an empty bucket."""
    name = invocation.options.bucket
    administrationOf(invocation).deleteBucket(name)
    invocation.output.result({"name": name})
    return 0


def usage(invocation: Invocation) -> int:
    """Print the usage of each bucket, and the total."""
    found = administrationOf(invocation).buckets(invocation.options.prefix or "")
    shown = [{name: each[name] for name in ("name", *_SUMS)} for each in found]
    total = {name: _sum([each[name] for each in found]) for name in _SUMS}
    output = invocation.output
    rows = [
        (
            name,
            *_figures(each, "objects", "bytes"),
            *_figures(each, "uploads", "uploadBytes"),
        )
        for name, each in [*((each["name"], each) for each in shown), ("all", total)]
    ]
    headings = ("NAME", "OBJECTS", "BYTES", "UPLOADS", "BYTES OF UPLOADS")
    output.result({"buckets": shown, "total": total}, output.table(headings, rows))
    return 0


def _figures(each: Mapping[str, Any], count: str, size: str) -> tuple[str, str]:
    """Format a number and its bytes, which are unknown to a key that reaches only some objects."""
    return (
        "-" if each[count] is None else str(each[count]),
        "-" if each[size] is None else formatBytes(each[size]),
    )


def _sum(figures: Sequence[int | None]) -> int | None:
    """Return the sum of figures; L{None} if one is unknown."""
    known = [each for each in figures if each is not None]
    return sum(known) if len(known) == len(figures) else None


_KINDS = {"none": "", "sse-s3": "AES256", "sse-kms": "aws:kms"}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encryption(invocation: Invocation) -> int:
    """Print the default encryption of a bucket, or change it."""
    options = invocation.options
    if options.masterKey and options.set != "sse-kms":
        raise CommandError("--key needs --set sse-kms", MISUSED)
    api = apiOf(invocation)
    path = f"buckets/{escapeSegment(options.bucket)}/settings/encryption"
    rule = _encryptionRule(api, path)
    if options.set is not None:
        default = {"SSEAlgorithm": _KINDS[options.set], "KMSMasterKeyID": options.masterKey or ""}
        rule[_DEFAULT] = {name: value for name, value in default.items() if value}
    if options.blockSSEC is not None:
        blocked = {"EncryptionType": ["SSE-C"]} if options.blockSSEC == "yes" else {}
        rule["BlockedEncryptionTypes"] = blocked
    if options.set is not None or options.blockSSEC is not None:
        made = {name: value for name, value in rule.items() if value}
        if made.keys() <= {"BucketKeyEnabled"}:
            api.request("DELETE", path)
        else:
            api.request("PUT", path, {"Rule": [made]})
        rule = _encryptionRule(api, path)
    default = rule.get(_DEFAULT, {})
    blocked = rule.get("BlockedEncryptionTypes", {}).get("EncryptionType", [])
    shown = {
        "name": options.bucket,
        "default": _NAMES[default.get("SSEAlgorithm", "")],
        "masterKey": default.get("KMSMasterKeyID", ""),
        "blocksSSEC": "SSE-C" in blocked,
    }
    key = f" with the master key {shown['masterKey']}" if shown["masterKey"] else ""
    line = f"default encryption: {shown['default']}{key}"
    if shown["blocksSSEC"]:
        line += "; keys of clients (SSE-C) are refused"
    invocation.output.result(shown, [escape(line)])
    return 0


_DEFAULT = "ApplyServerSideEncryptionByDefault"


def _encryptionRule(api: ConsoleClient, path: str) -> dict[str, Any]:
    """Return the rule of the configuration of encryption; empty if there is none."""
    try:
        found: dict[str, Any] = api.get(path)["Rule"][0]
    except CommandError as error:
        if error.error != EncryptionNotFound.code:
            raise
        return {}
    return found


def share(invocation: Invocation) -> int:
    """Make a presigned URL."""
    options = invocation.options
    wanted = {
        "key": options.key,
        "expiresSeconds": options.expires,
        "download": options.download,
    }
    if options.versionId:
        wanted["versionId"] = options.versionId
    path = f"buckets/{escapeSegment(options.bucket)}/share"
    link = apiOf(invocation).request("POST", path, wanted)
    if link.get("warning"):
        invocation.output.note(f"storagegate: {link['warning']}")
    invocation.output.result(link, [link["url"]])
    return 0
