"""
Zip archives that are written while they are sent (APPNOTE.TXT 6.3.10)::

    zip        = *(local header, bytes, data descriptor) directory [zip64 end, locator] end
    local      = "PK\\3\\4" version flags method time date crc=0 sizes names extra
    descriptor = "PK\\7\\8" crc size size

Members are stored, not compressed. Their CRC and size follow them, in 8 bytes (zip64): an object
may be replaced between its listing and its reading. Names are UTF-8, relative and unique. The
directory is written at the end; until then, its entries of some 100 bytes each are kept in an
unnamed file, so memory does not grow with the number of members.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from secrets import token_hex
from tempfile import SpooledTemporaryFile
from typing import IO

from attrs import define, field

from storagegate.console.call import ConsoleCall
from storagegate.console.objects import checkStill
from storagegate.objects.errors import DomainError
from storagegate.objects.operations import ListObjects
from storagegate.services.objectstreams import readContent
from storagegate.storage.errors import CorruptBlob
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import ObjectRecord

_FLAGS = 1 << 3 | 1 << 11  # the sizes follow the bytes; names are UTF-8
_VERSION = 45  # zip64
_UNIX = 3 << 8
_FULL = 0xFFFFFFFF
_MANY = 0xFFFF

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_DESCRIPTOR = struct.Struct("<4sIQQ")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_EXTRA = struct.Struct("<HHQQQ")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")

_CHUNK = 256 * 1024

_NAME_LIMIT = 200
"""Bytes of a segment of a name; file systems allow 255."""

_MOST_MISSING = 1000
"""The number of omitted objects that are named."""

_CHECKED_BYTES = 64 << 20
_CHECKED_MEMBERS = 1000
"""The key of the request is checked after this many bytes or members, and after each page."""

_PAGE = 1000

_SPOOLED = 1 << 20
"""Bytes of the directory that are kept in memory; a larger directory is kept in a file."""


@define(eq=False)
class ZipWriter:
    """
    Writes the parts of a zip archive. Its only input and output is the directory file.

    @ivar _directory: The entries of the directory until the end.
    """

    _directory: IO[bytes]
    _offset: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _crc: int = field(default=0, init=False)
    _name: bytes = field(default=b"", init=False)
    _stamp: tuple[int, int] = field(default=(0, 0), init=False)
    _start: int = field(default=0, init=False)
    _length: int = field(default=0, init=False)
    _checked: tuple[int, int] = field(default=(0, 0), init=False)

    def isCheckDue(self) -> bool:
        """Return whether a check of the key is due; if so, restart the count."""
        offset, count = self._checked
        if self._offset - offset < _CHECKED_BYTES and self._count - count < _CHECKED_MEMBERS:
            return False
        self._checked = self._offset, self._count
        return True

    def begin(self, name: bytes, modifiedMs: int) -> bytes:
        """
        Begin a member.

        @param name: The name in UTF-8.
        @param modifiedMs: Time of the last change, in milliseconds since the epoch.
        @return: The local header.
        """
        self._name, self._stamp = name, _stampOf(modifiedMs)
        self._start, self._size, self._crc = self._offset, 0, 0
        # The sizes in the extra field are unknown here, but they set the width of the descriptor.
        extra = struct.pack("<HHQQ", 1, 16, 0, 0)
        time, date = self._stamp
        header = _LOCAL.pack(
            b"PK\x03\x04",
            _VERSION,
            _FLAGS,
            0,
            time,
            date,
            0,
            _FULL,
            _FULL,
            len(name),
            len(extra),
        )
        return self._sent(header + name + extra)

    def data(self, chunk: bytes) -> bytes:
        """Count and checksum bytes of the member; return them."""
        self._crc = zlib.crc32(chunk, self._crc)
        self._size += len(chunk)
        return self._sent(chunk)

    def end(self) -> bytes:
        """End the member; return its descriptor."""
        time, date = self._stamp
        mode = 0o40755 << 16 | 1 << 4 if self._name.endswith(b"/") else 0o100644 << 16
        extra = _EXTRA.pack(1, 24, self._size, self._size, self._start)
        self._directory.write(
            _ENTRY.pack(
                b"PK\x01\x02",
                _UNIX | _VERSION,
                _VERSION,
                _FLAGS,
                0,
                time,
                date,
                self._crc,
                _FULL,
                _FULL,
                len(self._name),
                len(extra),
                0,
                0,
                0,
                mode,
                _FULL,
            )
            + self._name
            + extra
        )
        self._count += 1
        return self._sent(_DESCRIPTOR.pack(b"PK\x07\x08", self._crc, self._size, self._size))

    def directory(self) -> IO[bytes]:
        """Return the directory file at its start; its bytes are sent before L{close}."""
        self._length = self._directory.tell()
        self._directory.seek(0)
        return self._directory

    def close(self) -> bytes:
        """Return the end of the zip, with its zip64 form."""
        start, length, count = self._offset, self._length, self._count
        end = start + length
        return (
            _END64.pack(
                b"PK\x06\x06",
                _END64.size - 12,
                _UNIX | _VERSION,
                _VERSION,
                0,
                0,
                count,
                count,
                length,
                start,
            )
            + _LOCATOR.pack(b"PK\x06\x07", 0, end, 1)
            + _END.pack(
                b"PK\x05\x06",
                0,
                0,
                min(count, _MANY),
                min(count, _MANY),
                min(length, _FULL),
                min(start, _FULL),
                0,
            )
        )

    def _sent(self, data: bytes) -> bytes:
        self._offset += len(data)
        return data


def _stampOf(modifiedMs: int) -> tuple[int, int]:
    """Return time and date in MS-DOS format, in UTC."""
    when = datetime.fromtimestamp(max(modifiedMs, 0) / 1000, UTC)
    if not 1980 <= when.year <= 2107:
        return 0, 1 << 5 | 1
    date = (when.year - 1980) << 9 | when.month << 5 | when.day
    return when.hour << 11 | when.minute << 5 | when.second // 2, date


def memberName(key: str, base: str) -> str:
    """
    Return the name of a key in a zip: relative, without segments that leave the directory.

    An empty segment, C{.} and C{..} become underscores; so do colons, control characters and
    backslashes, which some tools treat as slashes. A changed or overlong name gets a hash of its
    key, so the names of two keys differ.

    @param base: A leading part of the key that the name omits.
    """
    rest = key[len(base) :] if key != base else key
    folder = "/" if rest.endswith("/") and rest.strip("/") else ""
    bare = rest[: len(rest) - len(folder)]
    segments = []
    for segment in bare.split("/"):
        clean = "".join(_plain(each) for each in segment)
        segments.append(clean if clean.strip(". ") else "_" * max(len(clean), 1))
    name = "/".join(segments)
    if name == bare and len(max(segments, key=len).encode()) <= _NAME_LIMIT:
        return name + folder
    mark = sha256(key.encode()).hexdigest()[:8]
    name = "/".join(each.encode()[:_NAME_LIMIT].decode(errors="ignore") for each in segments)
    stem, dot, suffix = name.rpartition(".")
    if stem and not folder and len(suffix) < 8 and "/" not in suffix:
        return f"{stem}-{mark}{dot}{suffix}"
    return f"{name}-{mark}{folder}"


def _plain(character: str) -> str:
    if character in '\\:*?"<>|' or ord(character) < 32 or ord(character) == 127:
        return "_"
    return character


async def _members(
    call: ConsoleCall, bucket: str, keys: Sequence[str], prefixes: Sequence[str]
) -> AsyncIterator[str]:
    """Yield the keys, each once, page by page."""
    outer = outermost(prefixes)
    for key in dict.fromkeys(keys):
        if not isBelow(key, outer):
            yield key
    for prefix in outer:
        after = b""
        while True:
            caller = call.caller("ListObjectsV2", "list", bucket, prefix=prefix)
            wanted = ListObjects(ObjectRange(bucket, prefix.encode(), b"", after, _PAGE))
            page = await call.services.objects.perform(caller, wanted)
            for each in page.objects:
                yield each.key
            if page.last is None:
                break
            await checkStill(call)
            after = page.last.encode()


def outermost(prefixes: Sequence[str]) -> list[str]:
    """Return the prefixes that are not below another prefix, sorted."""
    found: list[str] = []
    for each in sorted(prefixes):
        # In sorted order, extensions of a prefix directly follow it.
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found


def isBelow(key: str, outer: Sequence[str]) -> bool:
    """
    Return whether a key begins with a prefix.

    @param outer: The result of L{outermost}.
    """
    number = bisect_right(outer, key)
    return number > 0 and key.startswith(outer[number - 1])


async def sendArchive(
    call: ConsoleCall, bucket: str, keys: Sequence[str], prefixes: Sequence[str], base: str
) -> None:
    """
    Respond with a zip of objects and of all objects below some prefixes.

    An object that was deleted in the meantime, or cannot be read by the caller or without another
    key, is omitted and named in the last member.

    @param base: A leading part of the keys that the names omit.
    @raise DomainError: Before anything is sent: the bucket does not exist.
    """
    await call.services.objects.find(bucket)
    call.response.header("Content-Type", "application/zip")
    if call.request.method == "HEAD":
        call.response.end()
        return
    if not all(each.startswith(base) for each in (*keys, *prefixes)):
        base = ""
    missing: list[str] = []
    missingName = _MISSING
    folder = call.services.daemon.dataDirectory
    with SpooledTemporaryFile(_SPOOLED, dir=folder) as directory:
        writer = ZipWriter(directory)
        async for key in _members(call, bucket, keys, prefixes):
            name = memberName(key, base).encode()
            if name == missingName:
                missingName = b"NOT-INCLUDED-%s.txt" % token_hex(8).encode()
            try:
                await _sendMember(call, writer, bucket, key, name)
            except DomainError as error:
                if error.code not in _OMITTED:
                    raise
                if len(missing) < _MOST_MISSING:
                    missing.append(f"{error.code}: {key}\n")
        if missing:
            head = writer.begin(missingName, int(call.services.now() * 1000))
            text = writer.data("".join(missing).encode())
            await call.response.write(head + text + writer.end())
        entries = writer.directory()
        while chunk := entries.read(_CHUNK):
            await call.response.write(chunk)
        call.response.end(writer.close())


_MISSING = b"NOT-INCLUDED.txt"

_OMITTED = frozenset(
    {
        "NoSuchKey",
        "AccessDenied",
        "MethodNotAllowed",
        # A client's key encrypts the object.
        "InvalidRequest",
        "KMS.DisabledException",
        "KMS.NotFoundException",
    }
)
"""The errors of an object that concern no other object."""


async def _sendMember(
    call: ConsoleCall, writer: ZipWriter, bucket: str, key: str, name: bytes
) -> None:
    """Send a member. An error after its first byte ends the response early."""
    encoded = key.encode()
    caller = call.caller("GetObject", "read", bucket, encoded)
    record: ObjectRecord
    for isLast in (False, True):
        home, record = await call.services.objects.object(caller, bucket, encoded)
        hold = call.services.store.hold(record.content)
        begun = False
        try:
            content = await call.services.objects.contentOf(home, record)
            chunks = readContent(call.services.store, content, 0, record.size, _CHUNK)
            async with aclosing(chunks):
                async for chunk in chunks:
                    head = b"" if begun else writer.begin(name, record.modifiedMs)
                    begun = True
                    await call.response.write(head + writer.data(chunk))
                    if writer.isCheckDue():
                        await checkStill(call)
            head = b"" if begun else writer.begin(name, record.modifiedMs)
            await call.response.write(head + writer.end())
            if writer.isCheckDue():
                await checkStill(call)
            return
        except CorruptBlob:
            # The object may have been replaced between the look-up and the hold.
            if begun or isLast:
                raise
        finally:
            hold.release()
