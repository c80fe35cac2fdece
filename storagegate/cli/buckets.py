"""The commands C{storagegate buckets} and C{storagegate share}."""

from storagegate.cli.administration import administrationOf
from storagegate.cli.client import escapeSegment
from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import Invocation
from storagegate.cli.output import formatBytes, formatTime

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
            str(each["objects"]),
            formatBytes(each["bytes"]),
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
    total = {name: sum(each[name] for each in found) for name in _SUMS}
    output = invocation.output
    rows = [
        (
            name,
            str(each["objects"]),
            formatBytes(each["bytes"]),
            str(each["uploads"]),
            formatBytes(each["uploadBytes"]),
        )
        for name, each in [*((each["name"], each) for each in shown), ("all", total)]
    ]
    headings = ("NAME", "OBJECTS", "BYTES", "UPLOADS", "BYTES OF UPLOADS")
    output.result({"buckets": shown, "total": total}, output.table(headings, rows))
    return 0


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
