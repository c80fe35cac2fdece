"""
XML from the wire, read without trust.

The documents that S3 reads are flat: a root, in it settings (text) and records, in a record fields
(text)::

    <Delete><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>

The parser is defusedxml's, which forbids DTDs, entities and references to anything outside. All
that a document could be too much of is limited, and it is dropped at the first thing too many.
"""

import re

from attrs import frozen

from storagegate.s3.errors import S3Error

DELETE_LIMIT = 4 * 1024 * 1024
"""Bytes of a delete-many: 1,000 keys of 1,024 bytes that each take four when escaped, and tags."""

COMPLETE_LIMIT = 4 * 1024 * 1024
"""Bytes of a completion: 10,000 parts of 400 bytes, which is one with a SHA-256, indented."""

BUCKET_LIMIT = 64 * 1024
"""Bytes of a bucket's configuration: a region and 50 tags of 384 characters."""

_DEPTH_LIMIT = 20
"""Levels of nesting; no document of S3 has more than five."""

_TEXT_LIMIT = 16 * 1024
"""Bytes of one tag or text: a key of 1,024 bytes, each written as a reference of 10 characters."""

_ATTRIBUTE_LIMIT = 4
"""Attributes of one element; the busiest of S3's has one, besides namespaces."""

_NAMESPACE_LIMIT = 64
"""Declarations of namespaces in a document: one, or one in each of a few elements."""

_NAME_LIMIT = 256
"""Characters of an element's name with its namespace; expat copies both for each element."""

# Expat takes a tag in one piece, so one with a million attributes is found before it is parsed.
_LONG_PIECE = re.compile(rb"<[^<]{%d}" % _TEXT_LIMIT)


@frozen
class Limits:
    """
    What a kind of document may have.

    @ivar size: Bytes.
    @ivar records: Records of the kind that is read.
    @ivar fields: Fields of one record, on the average.
    """

    size: int
    records: int
    fields: int


@frozen
class Records:
    """
    A document.

    @ivar settings: Text by name.
    @ivar records: For each record, text by name. Of a name that comes twice the first counts.
    """

    settings: dict[str, str]
    records: list[dict[str, str]]


class _Reader:
    """Takes the parser's events."""

    def __init__(self, root: str, record: str, limits: Limits) -> None:
        self._root = root
        self._record = record
        self._recordsLeft = limits.records
        self._elementsLeft = (limits.records + 1) * (limits.fields + 1)
        self._namespacesLeft = _NAMESPACE_LIMIT
        self._depth = 0
        self._text = ""
        self._fields: dict[str, str] = {}
        self.result = Records({}, [])

    def start(self, name: str, attributes: list[str]) -> None:
        self._depth += 1
        self._elementsLeft -= 1
        if (
            self._elementsLeft < 0
            or self._depth > _DEPTH_LIMIT
            or len(name) > _NAME_LIMIT
            # Names and values alternate in the list.
            or len(attributes) > 2 * _ATTRIBUTE_LIMIT
            or (self._depth == 1 and _local(name) != self._root)
        ):
            raise S3Error("MalformedXML")
        self._text = ""
        if self._depth == 2:
            self._fields = {}

    def end(self, name: str) -> None:
        if self._depth == 3:
            self._fields.setdefault(_local(name), self._text)
        elif self._depth == 2:
            self._endRecord(_local(name))
        self._depth -= 1
        self._text = ""

    def text(self, text: str) -> None:
        # White space between elements is not kept, so what counts is the text of one element.
        self._text += text
        if len(self._text) > _TEXT_LIMIT:
            raise S3Error("MalformedXML")

    def namespace(self, prefix: str | None, uri: str) -> None:
        self._namespacesLeft -= 1
        if self._namespacesLeft < 0:
            raise S3Error("MalformedXML")

    def _endRecord(self, name: str) -> None:
        if name != self._record:
            self.result.settings.setdefault(name, self._text)
            return
        self._recordsLeft -= 1
        if self._recordsLeft < 0:
            raise S3Error("MalformedXML")
        self.result.records.append(self._fields)


def _local(name: str) -> str:
    # Expat names an element in a namespace "uri}name".
    return name.rpartition("}")[2]


def readRecords(body: bytes, root: str, record: str, limits: Limits) -> Records:
    """
    Read a document. Elements of other names, and what is deeper than fields, are passed over.

    @param body: The whole document, in UTF-8 unless a byte order mark says UTF-16.
    @param root: The name that the root must have, in whatever namespace.
    @param record: The name of the records.
    @raise S3Error: C{MalformedXML}, whatever is wrong.
    """
    if len(body) > limits.size or _LONG_PIECE.search(body) is not None:
        raise S3Error("MalformedXML")
    # With the first document only: a start without them is 5 ms shorter and 0.7 MB smaller.
    from xml.parsers.expat import ExpatError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    reader = _Reader(root, record, limits)
    # Expat is used below the parser that defusedxml made and armed: the limits are judged at each
    # event, before anything is built of it.
    expat = DefusedXMLParser(target=object(), encoding="utf-8", forbid_dtd=True).parser
    expat.StartElementHandler = reader.start
    expat.EndElementHandler = reader.end
    expat.CharacterDataHandler = reader.text
    expat.StartNamespaceDeclHandler = reader.namespace
    expat.DefaultHandlerExpand = None
    try:
        expat.Parse(body, True)
    except (ExpatError, DefusedXmlException):
        raise S3Error("MalformedXML") from None
    return reader.result
