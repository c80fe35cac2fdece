"""How files are presented."""

import os
import re
from typing import Any

from storagegate.http.filereply import readOptions, replyWithFile
from storagegate.http.files import openBelow
from storagegate.http.testing import TestResponse
from tests.http.filesupport import EARLIER, LATER, MODIFIED, FileCase, tagOf

DIGITS = b"0123456789"
TAG = tagOf(10)


class ReplyCase(FileCase):
    """A test with a file of ten digits and one of 300,000 bytes."""

    def setUp(self) -> None:
        """Make the files."""
        super().setUp()
        self.small = self.write("small.txt", DIGITS)
        self.content = b"".join(b"%07d\n" % number for number in range(37_500))
        self.large = self.write("large.bin", self.content)

    def serve(self, path: str, prepare: Any = None, **options: Any) -> None:
        """Answer everything with a file."""

        def answer(res: Any) -> Any:
            if prepare is not None:
                prepare(res)
            return res.sendFile(path, **options)

        self.handle(answer)


class WholeTests(ReplyCase):
    """Whole files."""

    def test_fields(self) -> None:
        """A file comes with all that lets it be kept and asked for again."""
        self.serve(self.small)
        response = self.get()
        self.assertEqual((response.status, response.body), (200, DIGITS))
        self.assertFields(
            response,
            content_type="text/plain; charset=utf-8",
            content_length="10",
            cache_control="public, max-age=0",
            last_modified=MODIFIED,
            etag=TAG,
            accept_ranges="bytes",
            content_range=None,
            content_encoding=None,
        )

    def test_large(self) -> None:
        """A large one comes whole, too, and says its length."""
        self.serve(self.large)
        response = self.get()
        self.assertEqual((response.status, response.body), (200, self.content))
        self.assertFields(
            response, content_length="300000", content_type="application/octet-stream"
        )

    def test_empty(self) -> None:
        """An empty file is an empty body."""
        self.serve(self.write("empty", b""))
        response = self.get()
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertFields(response, content_length="0", etag=tagOf(0))
        self.assertEqual(self.get(range="bytes=0-").status, 416)

    def test_head(self) -> None:
        """HEAD has the same fields and no body."""
        for path in (self.small, self.large):
            self.serve(path)
            whole, head = self.get(), self.get(method="HEAD")
            self.assertEqual((head.status, head.body), (200, b""))
            for name in ("content-length", "content-type", "etag", "last-modified"):
                self.assertEqual(head.headers.get(name), whole.headers.get(name))

    def test_kept(self) -> None:
        """What a handler has set stays."""
        own = {
            "Content-Type": "text/x-own",
            "ETag": '"own"',
            "Cache-Control": "no-store",
            "Last-Modified": EARLIER,
            "Accept-Ranges": "none",
        }
        self.serve(self.small, lambda res: res.header(own))
        response = self.get()
        self.assertFields(
            response,
            content_type="text/x-own; charset=utf-8",
            etag='"own"',
            cache_control="no-store",
            last_modified=EARLIER,
            accept_ranges="none",
        )
        self.assertEqual(self.get(if_none_match='W/"own"').status, 304)
        self.assertEqual(self.get(if_modified_since=EARLIER).status, 304)

    def test_switchedOff(self) -> None:
        """Each field can be switched off, and what it is for with it."""
        off = {"etag": False, "lastModified": False, "cacheControl": False, "acceptRanges": False}
        self.serve(self.small, **off)
        response = self.get(range="bytes=0-1", if_modified_since=LATER, if_none_match=TAG)
        self.assertEqual((response.status, response.body), (200, DIGITS))
        self.assertFields(
            response, etag=None, last_modified=None, cache_control=None, accept_ranges=None
        )

    def test_cacheControl(self) -> None:
        """Ages are milliseconds or text, a year at most."""
        for maxAge, immutable, value in (
            (1999, False, "public, max-age=1"),
            ("1d", False, "public, max-age=86400"),
            ("1h", True, "public, max-age=3600, immutable"),
            ("10y", False, "public, max-age=31536000"),
        ):
            options = readOptions(
                maxAge=maxAge,
                immutable=immutable,
                cacheControl=True,
                etag=True,
                lastModified=True,
                acceptRanges=True,
            )
            self.assertEqual(options.cacheControl, value)
        for maxAge in ("soon", -1, ""):
            self.assertRaises(ValueError, self.serveAge, maxAge)

    def serveAge(self, maxAge: Any) -> None:
        """Read the options with some age."""
        readOptions(
            maxAge=maxAge,
            immutable=False,
            cacheControl=True,
            etag=True,
            lastModified=True,
            acceptRanges=True,
        )

    def test_status(self) -> None:
        """A page for an error is the whole file, whatever the request says."""
        self.serve(self.small, lambda res: res.status(404))
        for fields in ({"range": "bytes=0-1"}, {"if_none_match": TAG}, {"if_match": '"x"'}):
            response = self.get(**fields)
            self.assertEqual((response.status, response.body), (404, DIGITS))

    def test_otherMethod(self) -> None:
        """Conditions and ranges are for GET and HEAD."""
        self.serve(self.small)
        response = self.get(method="POST", range="bytes=0-1", if_none_match=TAG)
        self.assertEqual((response.status, response.body), (200, DIGITS))


class ConditionTests(ReplyCase):
    """Conditional requests."""

    def setUp(self) -> None:
        """Serve the digits."""
        super().setUp()
        self.serve(self.small)

    def test_notModified(self) -> None:
        """What the client has is a 304 without a body, and says again how long it may be kept."""
        for fields in ({"if_none_match": TAG}, {"if_modified_since": MODIFIED}):
            response = self.get(**fields)
            self.assertEqual((response.status, response.body), (304, b""))
            self.assertFields(
                response,
                etag=TAG,
                last_modified=MODIFIED,
                cache_control="public, max-age=0",
                content_type=None,
                content_length=None,
            )

    def test_modified(self) -> None:
        """What it has not is sent."""
        for fields in (
            {"if_none_match": '"other"'},
            {"if_modified_since": EARLIER},
            {"if_none_match": '"other"', "if_modified_since": LATER},
            {"if_none_match": TAG, "cache_control": "no-cache"},
        ):
            self.assertEqual(self.get(**fields).status, 200, fields)

    def test_failed(self) -> None:
        """What must not be another is a 412, before anything else is looked at."""
        for fields in (
            {"if_match": '"other"'},
            {"if_unmodified_since": EARLIER},
            {"if_match": '"other"', "if_none_match": TAG},
            {"if_match": '"other"', "range": "bytes=0-1"},
        ):
            response = self.get(**fields)
            self.assertEqual(response.status, 412, fields)
            self.assertEqual(response.json(), {"error": "Precondition Failed"})
            self.assertNotEqual(response.headers.get("etag"), TAG)

    def test_held(self) -> None:
        """What is what it must be is sent; a weak tag says so."""
        for fields in ({"if_match": TAG}, {"if_match": "*"}, {"if_unmodified_since": MODIFIED}):
            self.assertEqual(self.get(**fields).status, 200, fields)

    def test_notModifiedBeforeRange(self) -> None:
        """A 304 goes before a range."""
        self.assertEqual(self.get(if_none_match=TAG, range="bytes=99-").status, 304)


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
            (TAG, 206),
            (TAG.removeprefix("W/"), 206),
            (MODIFIED, 206),
            ('"other"', 200),
            (EARLIER, 200),
            (LATER, 200),
            ("yesterday", 200),
        ):
            response = self.get(range="bytes=2-5", if_range=value)
            self.assertEqual(response.status, status, value)

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


class Upper:
    """An encoder that anybody can check."""

    flushes = False

    def feed(self, chunk: bytes) -> bytes:
        """Encode."""
        return chunk.replace(b"0", b"zero")

    def flush(self) -> bytes:
        """Give what is left."""
        return b""

    def finish(self) -> bytes:
        """Give the end."""
        return b"!"


class HookTests(ReplyCase):
    """What middleware does to files."""

    def test_beforeHead(self) -> None:
        """A callback sees and changes the fields, whatever the file's size."""
        seen = []

        def prepare(res: Any) -> None:
            def callback() -> None:
                seen.append((res.get("ETag"), res.statusCode))
                res.header("X-Seen", "yes")

            res.beforeHead(callback)

        for path, size in ((self.small, 10), (self.large, 300_000)):
            self.serve(path, prepare)
            self.assertFields(self.get(), x_seen="yes", content_length=str(size))
            self.assertEqual(seen.pop(), (tagOf(size), 200))

    def test_encoded(self) -> None:
        """An encoder gets the whole body, and is told how long it is."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):
            lengths = []
            self.serve(
                path,
                lambda res, lengths=lengths: res.encodeBody(
                    lambda length: (lengths.append(length), Upper())[1]
                ),
            )
            response = self.get()
            self.assertEqual(response.body, content.replace(b"0", b"zero") + b"!")
            self.assertEqual(lengths, [len(content)])
            self.assertFields(response, content_encoding=None, etag=tagOf(len(content)))

    def test_holdEnd(self) -> None:
        """The end waits for who holds it."""
        held = []
        self.serve(self.large, lambda res: res.holdEnd(lambda: held.append(True)))
        self.assertEqual(self.get().body, self.content)
        self.assertEqual(held, [True])

    def test_finish(self) -> None:
        """C{finish} is told of files, too."""
        told: list[str] = []
        for path in (self.small, self.large):
            self.serve(path, lambda res: res.on("finish", lambda: told.append("finish")))
            self.get()
            self.assertEqual(told.pop(), "finish")

    def test_failingHook(self) -> None:
        """A hook that fails is a 500, and no file stays open."""

        def prepare(res: Any) -> None:
            res.beforeHead(lambda: 1 / 0)

        for path in (self.small, self.large):
            self.serve(path, prepare)
            self.assertEqual(self.get().status, 500)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class ChangingTests(ReplyCase):
    """Files that change between their opening and their sending."""

    def reply(self, path: str, change: Any) -> None:
        """Open a file, let it change, and answer with it."""
        options = readOptions(
            maxAge=0,
            immutable=False,
            cacheControl=True,
            etag=True,
            lastModified=True,
            acceptRanges=True,
        )

        def answer(res: Any) -> Any:
            file = openBelow(None, os.fsencode(path))
            change()
            return replyWithFile(res, file, options)

        self.handle(answer)

    def test_grown(self) -> None:
        """Of a file that has grown comes what was promised."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):

            def grow(path: str = path) -> None:
                with open(path, "ab") as file:
                    file.write(b"more")

            self.reply(path, grow)
            response = self.get()
            self.assertEqual(response.body, content)
            self.assertFields(response, content_length=str(len(content)))

    def test_deleted(self) -> None:
        """A file that was deleted is still sent."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):
            self.reply(path, lambda path=path: os.unlink(path))
            self.assertEqual(self.get().body, content)
