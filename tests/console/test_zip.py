"""The writer of zips, and the names in them."""

import io
import shutil
import subprocess
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.zip import ZipWriter, isBelow, memberName, outermost
from tests.support.selection import long, soak

_MANY = 70_000


class ZipWriterTests(SynchronousTestCase):
    """The format."""

    @long("takes seconds")
    def test_manyMembers(self) -> None:
        """Past 65,535 members the end is that of zip64."""
        writer, parts = ZipWriter(io.BytesIO()), []
        for number in range(_MANY):
            parts += [writer.begin(b"%d" % number, 0), writer.data(b"x"), writer.end()]
        parts += [writer.directory().read(), writer.close()]
        with zipfile.ZipFile(io.BytesIO(b"".join(parts))) as archive:
            self.assertEqual(len(archive.namelist()), _MANY)
            self.assertEqual(archive.read(str(_MANY - 1)), b"x")
        self._checkByPrograms(parts)

    def _checkByPrograms(self, parts: Iterable[bytes]) -> None:
        """Have the programs that there are read a whole zip."""
        path = Path(self.mktemp()).with_suffix(".zip")
        with path.open("wb") as file:
            file.writelines(parts)
        for command in (["unzip", "-tqq"], ["7z", "t"]):
            if shutil.which(command[0]):
                done = subprocess.run([*command, str(path)], capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        path.unlink()

    @soak("writes 4 GiB")
    def test_largeByPrograms(self) -> None:
        """A member of over 4 GiB is read to its end."""
        writer, chunk = ZipWriter(io.BytesIO()), bytes(16 << 20)

        def parts() -> Iterable[bytes]:
            yield writer.begin(b"large", 1_700_000_000_000)
            for _ in range(256):
                yield writer.data(chunk)
            yield from (writer.data(b"end"), writer.end(), writer.begin(b"small", 0))
            yield from (writer.data(b"abc"), writer.end())
            yield from (writer.directory().read(), writer.close())

        self._checkByPrograms(parts())

    def test_large(self) -> None:
        """A member of over 4 GiB, and one behind it, are found where they are."""
        writer = ZipWriter(io.BytesIO())
        size = (4 << 30) + 5
        first = writer.begin(b"large", 1_700_000_000_000)
        # As if so many bytes had been counted.
        writer._size, writer._offset = size, writer._offset + size
        second = [writer.end(), writer.begin(b"small", 0), writer.data(b"abc"), writer.end()]
        tail = b"".join([*second, writer.directory().read(), writer.close()])
        with zipfile.ZipFile(_Sparse(first, size, tail)) as archive:
            self.assertEqual(archive.getinfo("large").file_size, size)
            self.assertEqual(archive.read("small"), b"abc")


class _Sparse(io.RawIOBase):
    """A file with zeros between its ends."""

    def __init__(self, head: bytes, zeros: int, tail: bytes) -> None:
        self._head, self._tail, self._start = head, tail, len(head) + zeros
        self._at = 0

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move."""
        self._at = offset + (0, self._at, self._start + len(self._tail))[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Read within one of the ends."""
        source, at = self._head, self._at
        if at >= self._start:
            source, at = self._tail, at - self._start
        found = source[at:] if count < 0 else source[at : at + count]
        self._at += len(found)
        return found


class PrefixTests(SynchronousTestCase):
    """Which objects a selection has."""

    @long("takes a second or more")
    @given(st.lists(st.text("ab/", max_size=4)), st.text("ab/", max_size=5))
    def test_outermost(self, prefixes: list[str], key: str) -> None:
        """What is below a prefix is listed once, and no key is lost."""
        outer = outermost(prefixes)
        self.assertEqual(isBelow(key, outer), any(map(key.startswith, prefixes)))
        self.assertLessEqual(sum(map(key.startswith, outer)), 1)

    def test_many(self) -> None:
        """Ten thousand prefixes do not hold others up: each is compared with one."""
        prefixes = [f"{number:05d}" for number in range(10_000)]
        start = time.thread_time()
        self.assertEqual(outermost(prefixes), prefixes)
        self.assertFalse(any(isBelow(f"x{each}", prefixes) for each in prefixes))
        self.assertLess(time.thread_time() - start, 1.0)


class CheckTests(SynchronousTestCase):
    """How often the key of the request is looked at."""

    def test_due(self) -> None:
        """After so many bytes or members in all, however large each of them is."""
        writer = ZipWriter(io.BytesIO())
        chunk = bytes(1 << 20)
        found = []
        for _ in range(130):
            writer.begin(b"x", 0)
            writer.data(chunk)
            writer.end()
            found.append(writer.isCheckDue())
        self.assertEqual(sum(found), 2)
        for _ in range(1001):
            writer.begin(b"y", 0)
            writer.end()
        self.assertTrue(writer.isCheckDue())
        self.assertFalse(writer.isCheckDue())


class NameTests(SynchronousTestCase):
    """Names of members."""

    def test_names(self) -> None:
        """Plain keys keep their names, without the base; of the others one sees what they were."""
        self.assertEqual(memberName("a/b.txt", "a/"), "b.txt")
        self.assertEqual(memberName("a/", ""), "a/")
        self.assertEqual(memberName("a/ü b", ""), "a/ü b")
        self.assertTrue(memberName("../x.txt", "").startswith("__/x-"))
        self.assertTrue(memberName("../x.txt", "").endswith(".txt"))

    @long("takes seconds")
    @given(st.text(min_size=1, max_size=300), st.text(max_size=3))
    def test_anyKey(self, key: str, base: str) -> None:
        """No name is absolute, or leads elsewhere, or is too long for a file system."""
        if not key.isprintable():
            key = key.encode(errors="replace").decode()
        name = memberName(key, base if key.startswith(base) else "")
        for segment in name.removesuffix("/").split("/"):
            self.assertNotIn(segment, ("", ".", ".."))
            self.assertLess(len(segment.encode()), 256)
            self.assertFalse(set(segment) & set("\\:\0\n"))
