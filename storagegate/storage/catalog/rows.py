"""Records as rows and back."""

from collections.abc import Sequence
from typing import Any

import msgspec
from attrs import asdict

from storagegate.core.files import crc32c
from storagegate.storage.catalog.transactions import asJSON
from storagegate.storage.records import Attributes, Checksum, Content, ObjectRecord, Part, Segment

OBJECT_COLUMNS = """
    o.size, o.etag, o.modifiedMs, o.account, o.attributes, o.versionId, o.sequence, o.segments
"""

_USUAL = asdict(Attributes(), recurse=False)

_decodeAttributes = msgspec.json.Decoder(Attributes).decode
_decodeSegments = msgspec.json.Decoder(tuple[tuple[str, int, int], ...]).decode
_decodeChecksum = msgspec.json.Decoder(Checksum).decode


def segmentsText(content: Content) -> str | None:
    """Encode the segments of a content; L{None} where it has none."""
    if not content.segments:
        return None
    return asJSON([(each.blob, each.offset, each.length) for each in content.segments])


def readSegments(text: str | None) -> tuple[Segment, ...]:
    """Decode what L{segmentsText} made."""
    return () if text is None else tuple(Segment(*each) for each in _decodeSegments(text))


def checksumText(checksum: Checksum | None) -> str | None:
    """Encode the checksum of a part."""
    return None if checksum is None else asJSON(checksum)


def readPart(
    number: int, size: int, etag: str, modifiedMs: int, checksum: str | None, segments: str | None
) -> Part:
    """Make a part of its row."""
    return Part(
        number,
        size,
        etag,
        modifiedMs,
        Content(size, None, readSegments(segments)),
        None if checksum is None else _decodeChecksum(checksum),
    )


def readAttributes(text: str) -> Attributes:
    """Decode the attributes of an object or an upload."""
    return _decodeAttributes(text)


def attributesText(attributes: Attributes) -> str:
    """Encode what is not as it mostly is: short rows are many in a page."""
    said = {
        name: value
        for name, usual in _USUAL.items()
        if (value := getattr(attributes, name)) != usual
    }
    return asJSON(said)


def objectValues(record: ObjectRecord) -> tuple[object, ...]:
    """
    Give the columns of an object's row from C{versionId} on.

    The storage class and the kind of checksum are there a second time beside the attributes: a
    list shows them, and must not parse the attributes of each row, which hold ten thousand part
    summaries where they hold many.
    """
    attributes, content = record.attributes, record.content
    checksum = attributes.checksum
    return (
        record.versionId,
        0,
        record.size,
        record.etag,
        record.modifiedMs,
        record.account,
        attributes.storageClass,
        "" if checksum is None else checksum.algorithm,
        "" if checksum is None else checksum.kind,
        None if content.inline is None else crc32c(content.inline),
        attributesText(attributes),
        segmentsText(content),
    )


def isIntact(inline: bytes | None, checksum: int | None) -> bool:
    """
    Compare the bytes in the catalog with their checksum.

    @param checksum: L{None} for an object whose bytes are elsewhere.
    """
    return checksum is None or (inline is not None and crc32c(inline) == checksum)


def readObject(
    bucket: str, key: bytes, inline: bytes | None, columns: Sequence[Any]
) -> ObjectRecord:
    """Make a record of L{OBJECT_COLUMNS}."""
    size, etag, modifiedMs, account, attributes, versionId, sequence, segments = columns
    return ObjectRecord(
        bucket,
        key,
        size,
        etag,
        modifiedMs,
        account,
        _decodeAttributes(attributes),
        Content(size, inline, readSegments(segments)),
        versionId,
        sequence,
    )
