"""How files are presented."""

from typing import Any

from storagegate.http.sendfile import readOptions
from tests.http.filesupport import DIGITS, EARLIER, LATER, MODIFIED, ReplyCase, tagOf

TAG = tagOf(10)


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
            options = readOptions(maxAge=maxAge, immutable=immutable)
            self.assertEqual(options.cacheControl, value)
        for maxAge in ("soon", -1, ""):
            self.assertRaises(ValueError, self.serveAge, maxAge)

    def serveAge(self, maxAge: Any) -> None:
        """Read the options with some age."""
        readOptions(maxAge=maxAge)

    def test_status(self) -> None:
        """A page for an error is the whole file, whatever the request says."""
        self.serve(self.small, lambda res: res.status(404))
        for fields in ({"range": "bytes=0-1"}, {"if_none_match": TAG}, {"if_match": '"x"'}):
            response = self.get(**fields)
            self.assertEqual((response.status, response.body), (404, DIGITS))

    def test_otherSuccess(self) -> None:
        """A part is a 206 and nothing else; any success may be fresh."""
        self.serve(self.small, lambda res: res.status(203))
        response = self.get(range="bytes=0-1")
        self.assertEqual((response.status, response.body), (203, DIGITS))
        self.assertEqual(self.get(if_none_match=TAG).status, 304)

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
