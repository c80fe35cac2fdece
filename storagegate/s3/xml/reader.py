"""
Parsers of request documents (Delete, CompleteMultipartUpload, CreateBucketConfiguration), which are
untrusted XML.

These documents are flat: the root contains settings (text) and records, and a record contains
fields (text)::

    <Delete><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>

The parser refuses DTDs, and with them entities and external references. Sizes, counts and depths
are limited; a document is rejected at the first excess.

Unknown elements are ignored, as in S3; a missing element or an invalid number is C{MalformedXML}.
The settings of buckets and the locks of versions are stricter: an unknown or surplus element is
C{MalformedXML}, too.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.objects.access.acl import (
    GRANT_LIMIT,
    PERMISSIONS,
    AccessControlList,
    AccountDirectory,
    Grant,
    GranteeReader,
)
from storagegate.objects.access.decision import OWNERSHIPS, PublicAccessBlock
from storagegate.objects.accounts import canonicalId
from storagegate.objects.dates import parseUntil
from storagegate.objects.multipart import CompletedPart
from storagegate.objects.pagination import PART_LIMIT
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.locks import HOLDS
from storagegate.s3.xml.parser import makeParser, parseTree
from storagegate.storage.records import (
    RETENTION_MODES,
    UNLOCKED,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    DefaultRetention,
    ObjectLock,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

DELETE_LIMIT = 4 * 1024 * 1024
"""Bytes of a Delete: 1,000 keys of 1,024 bytes, each escaped to four bytes, and tags."""

COMPLETE_LIMIT = 4 * 1024 * 1024
"""Bytes of a completion: 10,000 parts of 400 bytes each: with a SHA-256, indented."""

BUCKET_LIMIT = 64 * 1024
"""Bytes of a bucket's configuration: a region and 50 tags of 384 characters."""

LIFECYCLE_LIMIT = 512 * 1024
"""Bytes of lifecycle rules: 1,000 rules of 0.5 KiB."""

_DEPTH_LIMIT = 20
"""Levels of nesting; S3's documents have at most five."""

_TEXT_LIMIT = 16 * 1024
"""Bytes of one tag or text: a key of 1,024 bytes, each written as a reference of 10 characters."""

_ATTRIBUTE_LIMIT = 4
"""Attributes per element; S3's elements have at most one, besides namespaces."""

_NAMESPACE_LIMIT = 64
"""Namespace declarations per document: one, or one in each of a few elements."""

_NAME_LIMIT = 256
"""Characters of an element's name with its namespace; expat copies both for each element."""

_YEARS_LIMIT = 100
_DAYS_LIMIT = 36500
"""Days of the longest default retention: Amazon's limit, a hundred years."""

_PERIOD = re.compile(r"-?[0-9]{1,18}", re.ASCII)

# Expat processes a tag in one piece, so a tag with a million attributes is found before parsing.
_LONG_PIECE = re.compile(rb"<[^<]{%d}" % _TEXT_LIMIT)


@frozen
class Limits:
    """
    The limits of a kind of document.

    @ivar size: Largest size, in bytes.
    @ivar records: Largest number of records.
    @ivar fields: Largest average number of fields per record.
    """

    size: int
    records: int
    fields: int


class Records:
    """
    A parsed document, and the handlers of the parser's events.

    @ivar settings: Text by name.
    @ivar records: For each record, text by name. The first of repeated names counts.
    """

    def __init__(self, root: str, record: str, limits: Limits) -> None:
        """
        @param root: The required name of the root, in any namespace.
        @param record: The name of the records.
        """
        self.settings: dict[str, str] = {}
        self.records: list[dict[str, str]] = []
        self._root = root
        self._record = record
        self._recordsLeft = limits.records
        self._elementsLeft = (limits.records + 1) * (limits.fields + 1)
        self._namespacesLeft = _NAMESPACE_LIMIT
        self._depth = 0
        self._text = ""
        self._fields: dict[str, str] = {}

    def start(self, name: str, attributes: list[str]) -> None:
        """Enter an element; its attributes are alternating names and values."""
        self._depth += 1
        self._elementsLeft -= 1
        if (
            self._elementsLeft < 0
            or self._depth > _DEPTH_LIMIT
            or len(name) > _NAME_LIMIT
            or len(attributes) > 2 * _ATTRIBUTE_LIMIT
            or (self._depth == 1 and _local(name) != self._root)
        ):
            raise S3Error("MalformedXML")
        self._text = ""
        if self._depth == 2:
            self._fields = {}

    def end(self, name: str) -> None:
        """Leave an element."""
        if self._depth == 3:
            self._fields.setdefault(_local(name), self._text)
        elif self._depth == 2 and _local(name) != self._record:
            self.settings.setdefault(_local(name), self._text)
        elif self._depth == 2:
            self._recordsLeft -= 1
            if self._recordsLeft < 0:
                raise S3Error("MalformedXML")
            self.records.append(self._fields)
        self._depth -= 1
        self._text = ""

    def text(self, text: str) -> None:
        """Add to the text of the element; white space between elements is discarded."""
        self._text += text
        if len(self._text) > _TEXT_LIMIT:
            raise S3Error("MalformedXML")

    def namespace(self, prefix: str | None, uri: str) -> None:
        """Count the declaration of a namespace."""
        self._namespacesLeft -= 1
        if self._namespacesLeft < 0:
            raise S3Error("MalformedXML")


def _local(name: str) -> str:
    # Expat names an element in a namespace "uri}name".
    return name.rpartition("}")[2]


def readRecords(body: bytes, root: str, record: str, limits: Limits) -> Records:
    """
    Parse a document. Elements with other names, and elements within fields, are ignored.

    @param body: The whole document, in UTF-8 unless a byte order mark indicates UTF-16.
    @param root: See L{Records}.
    @param record: See L{Records}.
    @raise S3Error: C{MalformedXML}, for any problem.
    """
    if len(body) > limits.size or _LONG_PIECE.search(body) is not None:
        raise S3Error("MalformedXML")
    from xml.parsers.expat import ExpatError

    found = Records(root, record, limits)
    # The limits are checked at each event, before any data is built from it.
    expat = makeParser("utf-8")
    expat.StartElementHandler = found.start
    expat.EndElementHandler = found.end
    expat.CharacterDataHandler = found.text
    expat.StartNamespaceDeclHandler = found.namespace
    try:
        expat.Parse(body, True)
    except ExpatError:
        raise S3Error("MalformedXML") from None
    return found


ENTRY_LIMIT = 1000
"""Objects per Delete: Amazon's limit."""

# An Object has 5 fields. A Part has its number, its ETag, and one or two checksums.
_DELETE = Limits(size=DELETE_LIMIT, records=ENTRY_LIMIT, fields=5)
_COMPLETE = Limits(size=COMPLETE_LIMIT, records=PART_LIMIT, fields=4)
_BUCKET = Limits(size=BUCKET_LIMIT, records=0, fields=500)


@frozen
class DeleteRequestEntry:
    """
    An object to delete.

    @ivar etag: Delete the object only if it has this ETag.
    @ivar modified: Delete the object only if it was last modified at this time; raw text.
    @ivar size: Delete the object only if it has this size; raw text.
    """

    key: bytes
    versionId: str | None = None
    etag: str | None = None
    modified: str | None = None
    size: str | None = None


@frozen
class DeleteRequest:
    """
    A bulk deletion.

    @ivar quiet: Whether to report only errors.
    """

    entries: tuple[DeleteRequestEntry, ...]
    quiet: bool = False


def readDelete(body: bytes) -> DeleteRequest:
    """Parse Delete, which has 1 to 1,000 entries."""
    read = readRecords(body, "Delete", "Object", _DELETE)
    if not read.records:
        raise S3Error("MalformedXML")
    quiet = read.settings.get("Quiet", "")
    return DeleteRequest(tuple(map(_deleteEntry, read.records)), quiet.strip().lower() == "true")


def readComplete(body: bytes) -> tuple[CompletedPart, ...]:
    """Parse CompleteMultipartUpload: 1 to 10,000 parts, whose order the caller checks."""
    read = readRecords(body, "CompleteMultipartUpload", "Part", _COMPLETE)
    if not read.records:
        raise S3Error("MalformedXML")
    return tuple(map(_completedPart, read.records))


def readBucketConfiguration(body: bytes) -> tuple[str, list[tuple[str, str]]]:
    """
    Parse CreateBucketConfiguration, which may be absent.

    @return: The region, empty if absent; the key and value of each tag, unchecked.
    @raise S3Error: C{NotImplemented} for a bucket with a type or a location.
    """
    if not body:
        return "", []
    read = readRecords(body, "CreateBucketConfiguration", "", _BUCKET)
    if not read.settings.keys().isdisjoint(("Bucket", "Location")):
        raise S3Error("NotImplemented")
    tags: list[tuple[str, str]] = []
    if "Tags" in read.settings:
        root = readTree(body, "CreateBucketConfiguration")
        tags = [_tag(each) for each in root.iterfind("{*}Tags/*")]
    return read.settings.get("LocationConstraint", "").strip(), tags


def readVersioning(body: bytes) -> str:
    """
    Return the status of a VersioningConfiguration.

    @raise S3Error: C{MalformedXML}, or C{NotImplemented} for MFA delete.
    """
    texts = _readTexts(body, "VersioningConfiguration", ("Status", "MfaDelete"))
    status = texts.get("Status")
    mfa = texts.get("MfaDelete", "Disabled")
    if status not in (VERSIONING_ENABLED, VERSIONING_SUSPENDED):
        raise S3Error("MalformedXML")
    if mfa != "Disabled":
        raise S3Error("NotImplemented" if mfa == "Enabled" else "MalformedXML")
    return status


def readTagging(body: bytes) -> list[tuple[str, str]]:
    """
    Parse Tagging to the key and value of each tag, unchecked.

    @raise S3Error: C{MalformedXML}, also for a surplus or missing element.
    """
    root = readTree(body, "Tagging")
    if [_local(each.tag) for each in root] != ["TagSet"]:
        raise S3Error("MalformedXML")
    return [_tag(each) for each in root[0]]


def _tag(tag: "Element") -> tuple[str, str]:
    texts = {_local(each.tag): each.text or "" for each in tag if not len(each)}
    if _local(tag.tag) != "Tag" or len(tag) != 2 or texts.keys() != {"Key", "Value"}:
        raise S3Error("MalformedXML")
    return texts["Key"], texts["Value"]


def readTree(body: bytes, root: str, limit: int = BUCKET_LIMIT) -> "Element":
    """
    Parse a document with nested records, unlike L{Records}.

    @param root: The required name of the root, in any namespace.
    @param limit: Largest size of the document in bytes, which bounds the tree.
    @return: The root. Names include their namespace: C{iterfind("{*}Rule")} matches any namespace.
    @raise S3Error: C{MalformedXML}, for any problem.
    """
    if len(body) > limit:
        raise S3Error("MalformedXML")
    found = parseTree(body)
    if _local(found.tag) != root:
        raise S3Error("MalformedXML")
    return found


def checkNames(parent: "Element", names: Collection[str]) -> None:
    """
    Check that all children of an element are known.

    @raise S3Error: C{MalformedXML}: an unknown element might restrict the known ones.
    """
    if any(_local(each.tag) not in names for each in parent):
        raise S3Error("MalformedXML")


def _children(parent: "Element", names: Collection[str]) -> dict[str, "Element"]:
    """
    Return the children of an element by name.

    @raise S3Error: C{MalformedXML} for an unknown or repeated name.
    """
    checkNames(parent, names)
    found = {_local(each.tag): each for each in parent}
    if len(found) < len(parent):
        raise S3Error("MalformedXML")
    return found


def _readTexts(body: bytes, root: str, names: Collection[str]) -> dict[str, str]:
    """
    Parse a document of text elements, each at most once.

    @raise S3Error: C{MalformedXML}, also for an unknown name.
    """
    children = _children(readTree(body, root), names)
    return {name: (each.text or "").strip() for name, each in children.items()}


_GRANTEE = ("ID", "URI", "EmailAddress", "DisplayName")
_XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"


def readList(body: bytes, owner: str, directory: AccountDirectory) -> AccessControlList:
    """
    Parse an C{AccessControlPolicy}.

    @param owner: The account that owns the bucket or the object, which the document must name.
    @raise S3Error: C{MalformedACLError}, C{AccessDenied} for another owner, and the errors of
        grantees.
    """
    try:
        parts = _children(readTree(body, "AccessControlPolicy"), ("Owner", "AccessControlList"))
        rows = parts["AccessControlList"]
        checkNames(rows, ("Grant",))
    except (S3Error, KeyError):
        raise S3Error("MalformedACLError") from None
    named = None if "Owner" not in parts else parts["Owner"].findtext("{*}ID")
    if named is None or len(rows) > GRANT_LIMIT:
        raise S3Error("MalformedACLError")
    if named.strip() != canonicalId(owner):
        raise S3Error("AccessDenied")
    reader = GranteeReader(directory)
    return AccessControlList(tuple(dict.fromkeys(_grant(row, reader) for row in rows)))


def _grant(row: "Element", reader: GranteeReader) -> Grant:
    forms: Mapping[str, tuple[str, Callable[[str], str]]] = {
        "CanonicalUser": ("ID", reader.account),
        "Group": ("URI", reader.group),
        "AmazonCustomerByEmail": ("EmailAddress", reader.email),
    }
    try:
        parts = _children(row, ("Grantee", "Permission"))
        permission, grantee = (parts["Permission"].text or "").strip(), parts["Grantee"]
        name, find = forms[grantee.get(_XSI_TYPE, "").rpartition(":")[2]]
        text = _children(grantee, _GRANTEE)[name].text or ""
    except (S3Error, KeyError):
        raise S3Error("MalformedACLError") from None
    if permission not in PERMISSIONS:
        raise S3Error("MalformedACLError")
    return Grant(find(text.strip()), permission)


def readOwnership(body: bytes) -> str:
    """Parse OwnershipControls, which has one rule; return the object ownership."""
    root = readTree(body, "OwnershipControls")
    names = [_local(each.tag) for each in root.iter()]
    if names != ["OwnershipControls", "Rule", "ObjectOwnership"] or not len(root[0]):
        raise S3Error("MalformedXML")
    ownership = root[0][0].text or ""
    if ownership not in OWNERSHIPS:
        raise S3Error("MalformedXML")
    return ownership


_BLOCK = {
    "BlockPublicAcls": "blockPublicAcls",
    "IgnorePublicAcls": "ignorePublicAcls",
    "BlockPublicPolicy": "blockPublicPolicy",
    "RestrictPublicBuckets": "restrictPublicBuckets",
}


def readPublicAccessBlock(body: bytes) -> PublicAccessBlock:
    """
    Parse PublicAccessBlockConfiguration; absent settings are off.

    @raise S3Error: C{MalformedXML}, or C{InvalidRequest} without any setting.
    """
    found = {}
    for name, text in _readTexts(body, "PublicAccessBlockConfiguration", _BLOCK).items():
        value = {"true": True, "false": False}.get(text.lower())
        if value is None:
            raise S3Error("MalformedXML")
        found[_BLOCK[name]] = value
    if not found:
        raise S3Error("InvalidRequest", "Must specify at least one configuration.")
    return PublicAccessBlock(**found)


def readLockConfiguration(body: bytes) -> DefaultRetention | None:
    """
    Parse ObjectLockConfiguration; return the default retention of its rule, if any.

    @raise S3Error: C{MalformedXML}; C{InvalidArgument} for a period that is not positive or exceeds
        a hundred years; C{NotImplemented} for event holds.
    """
    root = readTree(body, "ObjectLockConfiguration")
    children = _children(root, ("ObjectLockEnabled", "Rule"))
    enabled = children.get("ObjectLockEnabled")
    if enabled is None or (enabled.text or "").strip() != "Enabled":
        raise S3Error("MalformedXML")
    rule = children.get("Rule")
    if rule is None:
        return None
    if [_local(each.tag) for each in rule] != ["DefaultRetention"]:
        raise S3Error("MalformedXML")
    fields = {_local(each.tag): (each.text or "").strip() for each in rule[0]}
    if "DefaultEventHold" in fields:
        raise S3Error("NotImplemented")
    if (
        len(fields) != 2
        or len(rule[0]) != 2
        or fields.get("Mode") not in RETENTION_MODES
        or fields.keys().isdisjoint(("Days", "Years"))
    ):
        raise S3Error("MalformedXML")
    if "Days" in fields:
        return DefaultRetention(fields["Mode"], days=_period("Days", fields["Days"], _DAYS_LIMIT))
    years = _period("Years", fields["Years"], _YEARS_LIMIT)
    return DefaultRetention(fields["Mode"], years=years)


def _period(name: str, text: str, limit: int) -> int:
    if _PERIOD.fullmatch(text) is None:
        raise S3Error("MalformedXML")
    number = int(text)
    if number <= 0:
        message = "Default retention period must be a positive integer value."
        raise invalidArgument(name, text, message)
    if number > limit:
        raise invalidArgument(name, text, "Default retention period is too large.")
    return number


_RETENTION = frozenset(("Mode", "RetainUntilDate", "EventHold", "EventHoldDuration"))


def readRetention(body: bytes) -> ObjectLock:
    """
    Parse Retention; an empty document lifts the retention.

    @return: A lock without a legal hold.
    @raise S3Error: C{MalformedXML}; C{NotImplemented} for event holds.
    """
    fields = _readTexts(body, "Retention", _RETENTION)
    if not fields:
        return UNLOCKED
    if not fields.keys().isdisjoint(("EventHold", "EventHoldDuration")):
        raise S3Error("NotImplemented")
    mode = fields.get("Mode", "")
    if mode not in RETENTION_MODES:
        raise S3Error("MalformedXML")
    try:
        return ObjectLock(mode, parseUntil(fields.get("RetainUntilDate", "")))
    except ValueError:
        raise S3Error("MalformedXML") from None


def readLegalHold(body: bytes) -> bool:
    """
    Parse LegalHold; return whether it is on.

    @raise S3Error: C{MalformedXML}.
    """
    status = _readTexts(body, "LegalHold", ("Status",)).get("Status", "")
    if status not in HOLDS:
        raise S3Error("MalformedXML")
    return HOLDS[status]


def _deleteEntry(fields: Mapping[str, str]) -> DeleteRequestEntry:
    key = fields.get("Key")
    if not key:
        raise S3Error("MalformedXML")
    etag = fields.get("ETag")
    return DeleteRequestEntry(
        key=key.encode(),
        versionId=fields.get("VersionId") or None,
        etag=None if etag is None else etag.strip().strip('"'),
        modified=fields.get("LastModifiedTime"),
        size=fields.get("Size"),
    )


def _completedPart(fields: Mapping[str, str]) -> CompletedPart:
    try:
        number = parseDecimal(fields["PartNumber"].strip(), PART_LIMIT)
        etag = fields["ETag"].strip().strip('"')
    except (KeyError, ValueError):
        raise S3Error("MalformedXML") from None
    if not number:
        raise S3Error("MalformedXML")
    return CompletedPart(
        number=number,
        etag=etag,
        checksums={
            name.removeprefix("Checksum"): value.strip()
            for name, value in fields.items()
            if name.startswith("Checksum")
        },
    )
