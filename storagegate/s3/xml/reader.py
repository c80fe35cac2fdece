"""
Parsers of request documents (Delete, CompleteMultipartUpload, CreateBucketConfiguration), which are
untrusted XML.

These documents are flat: the root contains settings (text) and records, and a record contains
fields (text)::

    <Delete><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>

The parser refuses DTDs, and with them entities and external references. Sizes, counts and depths
are limited; a document is rejected at the first excess.

Unknown elements are ignored, as in S3; a missing element or an invalid number is C{MalformedXML}.
The settings of buckets and the locks of versions become a L{Document}, whose readers are stricter:
an unknown or surplus element is C{MalformedXML}, too.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.objects.documents.buckets import readTag
from storagegate.objects.documents.tree import Document
from storagegate.objects.operations import CompletedPart
from storagegate.objects.pagination import PART_LIMIT
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.parser import makeParser, parseTree

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
        document = readDocument(body, "CreateBucketConfiguration")
        tags = [readTag(tag) for each in document.all("Tags") for tag in each.members]
    return read.settings.get("LocationConstraint", "").strip(), tags


def readDocument(body: bytes, root: str, limit: int = BUCKET_LIMIT) -> Document:
    """
    Parse a document with nested records, unlike L{Records}.

    @param root: The required name of the root, in any namespace.
    @param limit: Largest size of the document in bytes, which bounds the tree.
    @raise S3Error: C{MalformedXML}, for any problem.
    """
    if len(body) > limit:
        raise S3Error("MalformedXML")
    found = _document(parseTree(body), 0)
    if found.name != root:
        raise S3Error("MalformedXML")
    return found


def readListDocument(body: bytes) -> Document:
    """
    Parse AccessControlPolicy.

    @raise S3Error: C{MalformedACLError}, for any problem.
    """
    try:
        return readDocument(body, "AccessControlPolicy")
    except S3Error:
        raise S3Error("MalformedACLError") from None


_XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"


def _document(element: "Element", depth: int) -> Document:
    if depth > _DEPTH_LIMIT:
        raise S3Error("MalformedXML")
    return Document(
        _local(element.tag),
        element.text or "",
        tuple([_document(each, depth + 1) for each in element]),
        element.get(_XSI_TYPE, "").rpartition(":")[2],
    )


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
