"""Which responses are compressed, and how: told by what arrives at a client."""

import gzip
import http.client
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate import server
from storagegate.http.middleware.compression import compressible, compression, shouldCompress
from tests.http.decoding import decode
from tests.support.programs import needProgram

# Longer than what anything here takes on a busy machine.
SECONDS = 100.0

TEXT = "All work and no play makes a long text. " * 100
LARGE = "".join(f"line {number} of a body that goes through a thread\n" for number in range(20_000))

COMPRESSED_TYPES = [
    "text/html; charset=utf-8",
    "text/anything",
    "TEXT/CSS",
    "text/event-stream",
    "application/json",
    "application/javascript",
    "application/xml",
    "application/wasm",
    "application/problem+json",
    "application/atom+xml;type=feed",
    "image/svg+xml",
    "font/ttf",
]

PLAIN_TYPES = [
    "image/png",
    "image/jpeg",
    "video/mp4",
    "audio/mpeg",
    "application/zip",
    "application/gzip",
    "application/pdf",
    "application/octet-stream",
    "font/woff2",
    "application/jsonx",
    "nonsense",
    "",
]


@frozen
class Reply:
    """A response as it came: the body before it is decoded."""

    status: int
    headers: http.client.HTTPMessage
    wire: bytes

    @property
    def coding(self) -> str | None:
        """Give the content coding."""
        return self.headers["content-encoding"]

    @property
    def body(self) -> bytes:
        """Give the body as it was before it was encoded."""
        return decode(self.coding, self.wire)


class CompressionCase(TestCase):
    """An application with compression on a port of its own."""

    async def serve(self, handler: Callable[..., Any], **options: Any) -> None:
        """Serve one handler on every path."""
        app = server.http()
        app.use(compression(**options))
        app.all("/", handler)
        port = await app.listen(0)
        self.addCleanup(app.close, 0)
        self.port = port.getHost().port

    async def ask(self, accept: str | None = "gzip", method: str = "GET", **headers: str) -> Reply:
        """Make a request, with an Accept-Encoding."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if accept is not None:
            sent["Accept-Encoding"] = accept
        return await deferToThread(self._ask, method, sent)

    def _ask(self, method: str, headers: Mapping[str, str]) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            # By http.client's own request() Accept-Encoding would be identity.
            connection.putrequest(method, "/", skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return Reply(response.status, response.msg, response.read())
        finally:
            connection.close()

    def assertPlain(self, reply: Reply, varies: bool) -> None:
        """Assert that a response was left as it was, and whether it says that it may not be."""
        self.assertIsNone(reply.coding)
        self.assertEqual(reply.headers["vary"], "Accept-Encoding" if varies else None)


class DecisionTests(CompressionCase):
    """Whether a response is compressed."""

    async def test_codings(self) -> None:
        """Each coding comes apart again, its length is known, and it is named."""
        await self.serve(lambda req, res: res.html(TEXT))
        for coding in ("br", "zstd", "gzip", "deflate"):
            reply = await self.ask(coding)
            self.assertEqual((reply.status, reply.coding), (200, coding))
            self.assertEqual(reply.body, TEXT.encode())
            self.assertEqual(reply.headers["content-length"], str(len(reply.wire)))
            self.assertEqual(reply.headers["vary"], "Accept-Encoding")

    async def test_preference(self) -> None:
        """The client's numbers win; between equals br comes first, then zstd, gzip, deflate."""
        await self.serve(lambda req, res: res.html(TEXT))
        for accept, coding in (
            ("gzip, deflate, br, zstd", "br"),
            ("deflate, gzip, zstd", "zstd"),
            ("deflate, gzip", "gzip"),
            ("*", "br"),
            ("br;q=0.5, gzip;q=0.8, *;q=0.1", "gzip"),
            ("br;q=0, *", "zstd"),
            ("identity;q=0.5, gzip;q=0.2", None),
            ("identity, gzip", "gzip"),
            ("identity;q=0, deflate;q=0.1", "deflate"),
            ("GZIP", "gzip"),
        ):
            self.assertEqual((await self.ask(accept)).coding, coding, accept)

    async def test_unknownCodings(self) -> None:
        """Who knows no coding of ours gets the plain body, even where it says it wants no such."""
        await self.serve(lambda req, res: res.html(TEXT))
        for accept in (None, "", "compress, sdch", "identity;q=0", "*;q=0", "gzip;q=0", "gzip;q=x"):
            reply = await self.ask(accept)
            self.assertPlain(reply, varies=True)
            self.assertEqual((reply.status, reply.body), (200, TEXT.encode()), accept)

    async def test_type(self) -> None:
        """A body of a type that gains nothing is left alone, and does not vary."""
        await self.serve(lambda req, res: res.type(req.get("x-type")).send(TEXT.encode()))
        self.assertPlain(await self.ask(x_type="image/png"), varies=False)
        self.assertEqual((await self.ask(x_type="application/ld+json")).coding, "gzip")

    async def test_noType(self) -> None:
        """A body without a type is left alone."""
        await self.serve(lambda req, res: res.end(TEXT))
        self.assertPlain(await self.ask(), varies=False)

    async def test_noTransform(self) -> None:
        """What may not be changed on the way is left alone, and does not vary."""
        await self.serve(lambda req, res: res.header("Cache-Control", req.get("x-cc")).html(TEXT))
        for value in ("no-transform", "public,NO-Transform , max-age=1"):
            self.assertPlain(await self.ask(x_cc=value), varies=False)
        for value in ("no-store", "x-no-transform", "private=no-transform"):
            self.assertEqual((await self.ask(x_cc=value)).coding, "gzip", value)

    async def test_threshold(self) -> None:
        """A body that is known to be shorter stays plain, but says that another might not."""
        await self.serve(lambda req, res: res.html("x" * int(req.get("x-length"))))
        self.assertPlain(await self.ask(x_length="1023"), varies=True)
        self.assertEqual((await self.ask(x_length="1024")).coding, "gzip")

    async def test_thresholdAsText(self) -> None:
        """A threshold may be written with its unit; at 0 all bodies but the empty are encoded."""
        await self.serve(lambda req, res: res.html("x" * 2047), threshold="2kb")
        self.assertPlain(await self.ask(), varies=True)
        await self.serve(lambda req, res: res.html("x" * 2048), threshold="2kb")
        self.assertEqual((await self.ask()).coding, "gzip")
        await self.serve(lambda req, res: res.html(req.get("x-body") or ""), threshold=0)
        self.assertEqual((await self.ask(x_body="x")).body, b"x")
        self.assertEqual((await self.ask(x_body="x")).coding, "gzip")
        self.assertPlain(await self.ask(), varies=True)

    async def test_encodedAlready(self) -> None:
        """A body that the handler has encoded goes out as it is."""
        ready = gzip.compress(TEXT.encode())

        def handler(req: Any, res: Any) -> None:
            res.header("Content-Encoding", "gzip").type("html").send(ready)

        await self.serve(handler, threshold=1)
        reply = await self.ask("br")
        self.assertEqual((reply.coding, reply.wire), ("gzip", ready))
        self.assertEqual(reply.headers["vary"], "Accept-Encoding")

    async def test_identity(self) -> None:
        """A body that is said to be plain is encoded."""
        await self.serve(lambda req, res: res.header("Content-Encoding", "identity").html(TEXT))
        self.assertEqual((await self.ask()).body, TEXT.encode())

    async def test_head(self) -> None:
        """HEAD is told that the response varies, and the length of the plain body."""
        await self.serve(lambda req, res: res.html(TEXT))
        reply = await self.ask(method="HEAD")
        self.assertPlain(reply, varies=True)
        self.assertEqual((reply.status, reply.wire), (200, b""))
        self.assertEqual(reply.headers["content-length"], str(len(TEXT)))

    async def test_vary(self) -> None:
        """What the handler says of Vary is kept, and nothing is said twice."""
        await self.serve(lambda req, res: res.header("Vary", req.get("x-vary")).html(TEXT))
        for value, expected in (
            ("Origin", "Origin, Accept-Encoding"),
            ("accept-encoding", "accept-encoding"),
            ("*", "*"),
        ):
            self.assertEqual((await self.ask(x_vary=value)).headers["vary"], expected)

    async def test_part(self) -> None:
        """A part of a body is never encoded: it is joined with parts that are not."""

        def handler(req: Any, res: Any) -> None:
            res.status(206).header("Content-Range", f"bytes 0-{len(TEXT) - 1}/9999").html(TEXT)

        await self.serve(handler)
        reply = await self.ask()
        self.assertPlain(reply, varies=True)
        self.assertEqual((reply.status, reply.wire), (206, TEXT.encode()))

    async def test_noBody(self) -> None:
        """204 and 205 have nothing to encode, and say nothing of a coding."""
        for status in (204, 205):
            await self.serve(lambda req, res, status=status: res.status(status).html(TEXT))
            reply = await self.ask()
            self.assertIsNone(reply.coding)
            self.assertEqual((reply.status, reply.wire), (status, b""))

    async def test_error(self) -> None:
        """The framework's answer to an error is compressed like any other."""

        def handler(req: Any, res: Any) -> None:
            error = RuntimeError(TEXT)
            error.statusCode = 418  # type: ignore[attr-defined]
            raise error

        await self.serve(handler)
        reply = await self.ask()
        self.assertEqual((reply.status, reply.coding), (418, "gzip"))
        self.assertIn(TEXT.encode(), reply.body)

    async def test_filter(self) -> None:
        """A filter of the application's own decides instead, and sees request and response."""

        def wanted(req: Any, res: Any) -> bool:
            return req.get("x-plain") is None and (
                shouldCompress(req, res) or res.get("content-type") == "application/pdf"
            )

        await self.serve(
            lambda req, res: res.type(req.get("x-type")).send(TEXT.encode()), filter=wanted
        )
        self.assertEqual((await self.ask(x_type="application/pdf")).coding, "gzip")
        self.assertEqual((await self.ask(x_type="text/plain")).coding, "gzip")
        self.assertPlain(await self.ask(x_type="image/png"), varies=False)
        self.assertPlain(await self.ask(x_type="text/plain", x_plain="1"), varies=False)

    async def test_filterFails(self) -> None:
        """What a filter raises is an error of the handler that sent."""

        def wanted(req: Any, res: Any) -> bool:
            if res.statusCode == 200:
                raise RuntimeError("no opinion")
            return False

        await self.serve(lambda req, res: res.html(TEXT), filter=wanted)
        self.assertEqual((await self.ask()).status, 500)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class ValidatorTests(CompressionCase):
    """What an encoded response says of itself."""

    async def test_strongETag(self) -> None:
        """A strong ETag turns weak where the bytes are others, and stays where they are not."""
        await self.serve(lambda req, res: res.header("ETag", '"v1"').html(TEXT))
        self.assertEqual((await self.ask()).headers["etag"], 'W/"v1"')
        self.assertEqual((await self.ask("identity")).headers["etag"], '"v1"')
        await self.serve(lambda req, res: res.header("ETag", '"v1"').html("short"))
        self.assertEqual((await self.ask()).headers["etag"], '"v1"')

    async def test_weakETag(self) -> None:
        """A weak ETag stays as it is, so that the client's copy is still known."""
        await self.serve(lambda req, res: res.html(TEXT))
        plain, encoded = await self.ask("identity"), await self.ask()
        self.assertTrue(encoded.headers["etag"].startswith('W/"'))
        self.assertEqual(encoded.headers["etag"], plain.headers["etag"])

    async def test_unmodified(self) -> None:
        """A 304 has the ETag and the Vary of the 200 that the client has, and no coding."""
        await self.serve(lambda req, res: res.header("ETag", '"v1"').html(TEXT))
        etag = (await self.ask()).headers["etag"]
        reply = await self.ask(If_None_Match=etag)
        self.assertEqual((reply.status, reply.wire), (304, b""))
        self.assertPlain(reply, varies=True)
        self.assertEqual(reply.headers["etag"], etag)
        reply = await self.ask("identity", If_None_Match=etag)
        self.assertEqual((reply.status, reply.headers["etag"]), (304, '"v1"'))

    async def test_unmodifiedReady(self) -> None:
        """The ETag of a body that the handler has encoded stays strong on a 304, too."""

        def handler(req: Any, res: Any) -> None:
            res.header({"ETag": '"v1"', "Content-Encoding": "gzip"}).type("html")
            res.send(gzip.compress(TEXT.encode()))

        await self.serve(handler)
        for headers, status in (({}, 200), ({"If_None_Match": '"v1"'}, 304)):
            reply = await self.ask(**headers)
            self.assertEqual((reply.status, reply.headers["etag"]), (status, '"v1"'))

    async def test_ranges(self) -> None:
        """An encoded body offers no ranges: those that come would be of the plain one."""
        await self.serve(lambda req, res: res.header("Accept-Ranges", "bytes").html(TEXT))
        self.assertIsNone((await self.ask()).headers["accept-ranges"])
        self.assertEqual((await self.ask("identity")).headers["accept-ranges"], "bytes")

    async def test_file(self) -> None:
        """A file is compressed whole, but for a client that asks for a part of it."""
        path = Path(self.mktemp()).absolute().with_suffix(".txt")
        path.write_text(LARGE)
        await self.serve(lambda req, res: res.sendFile(str(path)))
        for coding in ("br", "zstd", "gzip", "deflate"):
            reply = await self.ask(coding)
            self.assertEqual((reply.status, reply.coding), (200, coding))
            self.assertEqual(reply.body, LARGE.encode())
            self.assertIsNone(reply.headers["content-length"])
            self.assertIsNone(reply.headers["accept-ranges"])
        reply = await self.ask(Range="bytes=5-4999")
        self.assertPlain(reply, varies=True)
        self.assertEqual((reply.status, reply.wire), (206, LARGE[5:5000].encode()))
        reply = await self.ask(method="HEAD")
        self.assertPlain(reply, varies=True)
        self.assertEqual(reply.headers["content-length"], str(len(LARGE)))

    async def test_contentLength(self) -> None:
        """A length that the handler has set for the plain body does not stay."""
        await self.serve(lambda req, res: res.header("Content-Length", len(TEXT)).html(TEXT))
        reply = await self.ask()
        self.assertEqual(reply.headers["content-length"], str(len(reply.wire)))
        self.assertEqual(reply.body, TEXT.encode())

    async def test_level(self) -> None:
        """The level is heard: a stored body is longer than a plain one, the highest is shortest."""
        lengths = []
        for level in (0, 1, 9):
            await self.serve(lambda req, res: res.html(LARGE), level=level)
            reply = await self.ask()
            self.assertEqual(reply.body, LARGE.encode())
            lengths.append(len(reply.wire))
        self.assertGreater(lengths[0], len(LARGE))
        self.assertGreater(lengths[1], lengths[2])

    async def test_curl(self) -> None:
        """A client that decodes by itself gets the body."""
        curl = needProgram("curl")
        await self.serve(lambda req, res: res.html(TEXT))
        command = [curl, "--silent", "--compressed", f"http://127.0.0.1:{self.port}/"]
        done = await deferToThread(
            subprocess.run, command, capture_output=True, check=True, timeout=SECONDS
        )
        self.assertEqual(done.stdout, TEXT.encode())


class SetUpTests(SynchronousTestCase):
    """What is refused before there is a request."""

    def test_level(self) -> None:
        """A level out of range, or no number, is an error that says what is allowed."""
        for level in (-2, 10, 1.5, "6", None, True):
            error = self.assertRaises(ValueError, compression, level=level)
            self.assertIn("-1 to 9", str(error))

    def test_threshold(self) -> None:
        """A threshold that is no size is an error."""
        for threshold in (-1, "many", "1 kilo", 1.5, None, True):
            self.assertRaises(ValueError, compression, threshold=threshold)

    def test_types(self) -> None:
        """Text in all its shapes is compressed, what is compressed already is not."""
        for contentType in COMPRESSED_TYPES:
            self.assertTrue(compressible(contentType), contentType)
        for contentType in PLAIN_TYPES:
            self.assertFalse(compressible(contentType), contentType)
