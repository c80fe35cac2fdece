"""The browser's upload form, read as it comes in."""

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.errors import S3Error
from storagegate.s3.postform import FIELDS_LIMIT, FormHead, PostForm, formBoundary

BOUNDARY = "XbX"


def part(name: str, value: bytes, fileName: str | None = None) -> bytes:
    """One part of a form."""
    disposition = f'form-data; name="{name}"'
    if fileName is not None:
        disposition += f'; filename="{fileName}"'
    head = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


async def pieces(wire: bytes, size: int) -> AsyncIterator[bytes]:
    """The wire in pieces of C{size} bytes."""
    for start in range(0, len(wire), size):
        yield wire[start : start + size]


class PostFormTests(SynchronousTestCase):
    """Fields first, then the file, then nothing."""

    def reading(self, wire: bytes, size: int) -> Deferred[tuple[FormHead, bytes]]:
        """Read a form whole."""

        async def read() -> tuple[FormHead, bytes]:
            form = PostForm(pieces(wire, size), BOUNDARY)
            head = await form.readHead()
            return head, b"".join([piece async for piece in form])

        return Deferred.fromCoroutine(read())

    def read(self, wire: bytes, size: int = 1 << 20) -> tuple[FormHead, bytes]:
        """Read a form that is right."""
        return self.successResultOf(self.reading(wire, size))

    def refused(self, wire: bytes) -> str:
        """The code with which a form is refused."""
        return self.failureResultOf(self.reading(wire, 7), S3Error).value.code

    @given(st.binary(max_size=300), st.integers(1, 90))
    def test_anyFileInAnyPieces(self, data: bytes, size: int) -> None:
        """Whatever the file's bytes and however they arrive, they come out the same."""
        if b"--" + BOUNDARY.encode() in data:
            return
        wire = part("key", b"a/b") + part("file", data, "x.bin") + END
        head, found = self.read(wire, size)
        self.assertEqual((head.fields, head.fileName, found), ({"key": "a/b"}, "x.bin", data))

    def test_fileNameIsABaseName(self) -> None:
        """A browser's full path, or one that climbs, is only its last name."""
        for sent in ("../../etc/passwd", "C:\\\\temp\\\\passwd"):
            head, _ = self.read(part("file", b"", sent) + END)
            self.assertEqual(head.fileName, "passwd")

    def test_refused(self) -> None:
        """What is no such form gets S3's own code, and nothing passes for a file."""
        file = part("file", b"data", "x")
        cases = [
            ("two fields of a name", part("a", b"1") + part("A", b"2") + file + END),
            ("a field after the file", file + part("a", b"1") + END),
            ("two files", file + file + END),
            ("no end", file),
            ("no file", part("a", b"1") + END),
            ("fields too large", part("a", b"x" * (FIELDS_LIMIT + 1)) + file + END),
            ("not UTF-8", part("a", b"\xff") + file + END),
            ("no name", part("", b"1") + file + END),
            ("no form", b"hello"),
            ("bytes after the end", file + END + b"more"),
        ]
        codes = {what: self.refused(wire) for what, wire in cases}
        malformed = "MalformedPOSTRequest"
        self.assertEqual(
            codes,
            {
                "two fields of a name": "InvalidArgument",
                "a field after the file": malformed,
                "two files": malformed,
                "no end": malformed,
                "no file": "IncorrectNumberOfFilesInPostRequest",
                "fields too large": "MaxPostPreDataLengthExceededError",
                "not UTF-8": malformed,
                "no name": malformed,
                "no form": malformed,
                "bytes after the end": malformed,
            },
        )

    def test_boundary(self) -> None:
        """Only a form has a boundary."""
        self.assertEqual(formBoundary(b'multipart/form-data; boundary="a b"'), "a b")
        self.assertIsNone(formBoundary(b"multipart/mixed; boundary=a"))
        self.assertIsNone(formBoundary(b"multipart/form-data"))
        self.assertIsNone(formBoundary(b""))
