"""
Records that were just read, kept for whoever reads them next.

A look-up in SQLite costs 9 microseconds, a third of what an S3 HEAD takes in all; here it is 0.3.
Only this process changes objects (the data directory's lock sees to that; where there are several
processes, see L{storagegate.storage.multiprocess.group}), and every change of it
passes the writer, which has its names forgotten here before anybody hears that it is done: so no
read that begins after an answer is older than the answer. What is not there is never kept.
"""

from collections import OrderedDict
from collections.abc import Iterable

from storagegate.storage.records import Bucket, ObjectRecord

LIMIT = 6 * 1024 * 1024
"""Bytes: 1,200 objects of 4 KiB. More memory serves better as the page cache of SQLite."""

_ADMITTED = 8
# Where it is full, one of so many new records gets in. Otherwise a round over more objects than fit
# would throw each out just before it is asked for again (Qureshi and others, ISCA 2007: bimodal
# insertion).

# What a record weighs besides its inline bytes, and each of its segments and parts.
_RECORD = 1024
_PIECE = 256

_BUCKETS = 1024
# Buckets that are kept besides.

Name = tuple[str, bytes]
"""Bucket and key; an empty key stands for the bucket itself."""

Found = tuple[Bucket, ObjectRecord]


class RecordCache:
    """Records that were read lately, up to a number of bytes. Reactor thread."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._offered = 0
        self._records: OrderedDict[Name, Found] = OrderedDict()
        self._buckets: dict[str, Bucket] = {}

    def lookUp(self) -> None:
        """Note that an object is about to be looked up, past what is kept."""

    def find(self, bucket: str, key: bytes) -> Found | None:
        """Give a record that was kept."""
        name = (bucket, key)
        found = self._records.get(name)
        if found is not None:
            self._records.move_to_end(name)
        return found

    def findBucket(self, name: str) -> Bucket | None:
        """Give a bucket that was kept."""
        return self._buckets.get(name)

    def keepBucket(self, bucket: Bucket) -> None:
        """Keep a bucket that was read."""
        if len(self._buckets) >= _BUCKETS:
            self._buckets.clear()
        self._buckets[bucket.name] = bucket

    def keep(self, home: Bucket, record: ObjectRecord) -> None:
        """Keep what was read; where it is full, now and then, in place of the longest unread."""
        weight = _weight(record)
        if self._size + weight > self._limit:
            self._offered += 1
            if self._offered % _ADMITTED:
                return
        self.forget(((record.bucket, record.key),))
        self._records[record.bucket, record.key] = (home, record)
        self._size += weight
        while self._size > self._limit:
            _, (_, oldest) = self._records.popitem(last=False)
            self._size -= _weight(oldest)

    def forget(self, names: Iterable[Name]) -> None:
        """Drop records whose objects have changed, or are about to have."""
        for name in names:
            if not name[1]:
                self._buckets.pop(name[0], None)
                continue
            found = self._records.pop(name, None)
            if found is not None:
                self._size -= _weight(found[1])

    def clear(self) -> None:
        """Drop everything."""
        self._records.clear()
        self._buckets.clear()
        self._size = 0


def _weight(record: ObjectRecord) -> int:
    content, attributes = record.content, record.attributes
    pieces = len(content.segments) + len(attributes.parts)
    return _RECORD + len(content.inline or b"") + _PIECE * pieces
