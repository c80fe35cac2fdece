"""Parts of files."""

import os
import re

from storagegate.http.testing import TestResponse
from storagegate.net.http.ranges import formatHttpDate
from tests.http.filesupport import DIGITS, EARLIER, LATER, MODIFIED, ReplyCase, tagOf

TAG = tagOf(10)


class RangeTests(ReplyCase):
    """Parts of files."""

    def assertPart(self, response: TestResponse, first: int, last: int) -> None:
        """Assert that a response is a part of the digits."""
        body = DIGITS[first : last + 1]
        self.assertEqual((response.status, response.body), (206, body))
        self.assertFields(
            response,
            content_range=f"bytes {first}-{last}/10",
            content_length=str(len(body)),
            content_type="text/plain; charset=utf-8",
            etag=TAG,
        )

    def test_one(self) -> None:
        """One range is a 206 with these bytes."""
        self.serve(self.small)
        for value, first, last in (
            ("bytes=2-5", 2, 5),
            ("bytes=0-0", 0, 0),
            ("bytes=8-", 8, 9),
            ("bytes=-3", 7, 9),
            ("bytes=-20", 0, 9),
            ("bytes=5-100", 5, 9),
            ("bytes=1-2,3-5", 1, 5),
        ):
            self.assertPart(self.get(range=value), first, last)

    def test_large(self) -> None:
        """A large part comes whole."""
        self.serve(self.large)
        response = self.get(range="bytes=1001-200000")
        self.assertEqual((response.status, response.body), (206, self.content[1001:200001]))
        self.assertFields(response, content_range="bytes 1001-200000/300000")

    def test_head(self) -> None:
        """HEAD tells what GET would send."""
        self.serve(self.small)
        response = self.get(method="HEAD", range="bytes=2-5")
        self.assertEqual((response.status, response.body), (206, b""))
        self.assertFields(response, content_range="bytes 2-5/10", content_length="4")

    def test_unsatisfied(self) -> None:
        """A start past the end, and a thousand parts, are a 416 that tells the size."""
        self.serve(self.small)
        for value in ("bytes=10-", "bytes=-0", "bytes=" + ",".join(["0-1"] * 1000)):
            response = self.get(range=value)
            self.assertEqual(response.status, 416)
            self.assertEqual(response.json(), {"error": "Range Not Satisfiable"})
            self.assertFields(response, content_range="bytes */10")

    def test_badSyntax(self) -> None:
        """What cannot be read is the whole file."""
        self.serve(self.small)
        for value in ("x", "bytes=", "bytes=a-b", "bytes=3-2", "items=0-1", "bytes=0-1;2-3"):
            response = self.get(range=value)
            self.assertEqual((response.status, response.body), (200, DIGITS), value)

    def test_ifRange(self) -> None:
        """The part comes if the file is still the one; else the whole."""
        self.serve(self.small)
        for value, status in (
            (TAG, 200),
            (TAG.removeprefix("W/"), 200),
            (MODIFIED, 206),
            ('"other"', 200),
            (EARLIER, 200),
            (LATER, 200),
            ("yesterday", 200),
        ):
            response = self.get(range="bytes=2-5", if_range=value)
            self.assertEqual(response.status, status, value)

    def test_ifRangeRecent(self) -> None:
        """The date of a file that has just changed could be that of two: the whole comes."""
        self.serve(self.small)
        os.utime(self.small)
        modified = formatHttpDate(int(os.stat(self.small).st_mtime)).decode()
        response = self.get(range="bytes=2-5", if_range=modified)
        self.assertEqual((response.status, response.body), (200, DIGITS))

    def test_several(self) -> None:
        """Several ranges are the parts of one body, each with its place."""
        for path, content, ranges in (
            (self.small, DIGITS, [(8, 9), (0, 0), (3, 5)]),
            (self.large, self.content, [(0, 99_999), (200_000, 299_999), (150_000, 150_000)]),
        ):
            self.serve(path)
            response = self.get(range="bytes=" + ",".join(f"{a}-{b}" for a, b in ranges))
            self.assertEqual(response.status, 206)
            self.assertFields(response, content_range=None, content_length=str(len(response.body)))
            parts = self.parts(response)
            size = len(content)
            self.assertEqual(
                [(place, body) for _, place, body in parts],
                [(f"bytes {a}-{b}/{size}", content[a : b + 1]) for a, b in ranges],
            )
            kind = "text/plain; charset=utf-8" if size == 10 else "application/octet-stream"
            self.assertEqual({kind for kind, _, _ in parts}, {kind})

    def parts(self, response: TestResponse) -> list[tuple[str, str, bytes]]:
        """Cut a multipart body into types, places and contents."""
        contentType = response.headers.get("content-type") or ""
        match = re.fullmatch("multipart/byteranges; boundary=([0-9a-f]{32})", contentType)
        assert match is not None, contentType
        mark = b"--" + match[1].encode()
        first, *parts, end = (b"\r\n" + response.body).split(b"\r\n" + mark)
        self.assertEqual((first, end), (b"", b"--\r\n"))
        found = []
        for part in parts:
            head, _, body = part.partition(b"\r\n\r\n")
            fields = dict(line.split(": ") for line in head.decode().split("\r\n")[1:])
            self.assertEqual(set(fields), {"Content-Type", "Content-Range"})
            found.append((fields["Content-Type"], fields["Content-Range"], body))
        return found
