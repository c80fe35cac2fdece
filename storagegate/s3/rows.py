"""
The shapes of what the documents show.

The store's own records have these attributes; documents ask for no more, so that they know
nothing of the store.
"""

from typing import Protocol


class BucketRow(Protocol):
    """A bucket."""

    @property
    def name(self) -> str: ...
    @property
    def createdMs(self) -> int: ...
    @property
    def region(self) -> str: ...


class ObjectRow(Protocol):
    """An object in a listing. The checksum's two names are empty where there is none."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...
    @property
    def modifiedMs(self) -> int: ...
    @property
    def account(self) -> str: ...
    @property
    def storageClass(self) -> str: ...
    @property
    def checksumAlgorithm(self) -> str: ...
    @property
    def checksumKind(self) -> str: ...
    @property
    def versionId(self) -> str: ...


class ChecksumRow(Protocol):
    """A checksum: C{CRC32} and so on, base64, C{FULL_OBJECT} or C{COMPOSITE}."""

    @property
    def algorithm(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def kind(self) -> str: ...


class AttributesRow(Protocol):
    """What was said of an object when its upload began."""

    @property
    def storageClass(self) -> str: ...


class UploadRow(Protocol):
    """A multipart upload in progress."""

    @property
    def key(self) -> bytes: ...
    @property
    def uploadId(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def startedMs(self) -> int: ...
    @property
    def attributes(self) -> AttributesRow: ...
    @property
    def checksumAlgorithm(self) -> str: ...
    @property
    def checksumKind(self) -> str: ...


class PartRow(Protocol):
    """An uploaded part."""

    @property
    def number(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...
    @property
    def modifiedMs(self) -> int: ...
    @property
    def checksum(self) -> ChecksumRow | None: ...


class PartSummaryRow(Protocol):
    """A part of an object that was uploaded in parts."""

    @property
    def number(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def checksum(self) -> ChecksumRow | None: ...
