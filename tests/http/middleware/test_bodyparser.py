"""What all parsers of bodies have in common, with JSON as the example."""

import gzip
import json as standardJSON
import zlib
from typing import Any

import brotli
import zstandard

from storagegate.core.inflate import inflate
from storagegate.http.errors import HTTPError
from storagegate.http.middleware.bodyparser import INLINE_SIZE, json, parseJSON, raw, text
from tests.http.middleware.parsing import POST, Exchange, ParserCase
from tests.net.support import head, statuses

TYPE = b"Content-Type: application/json"


def chunked(*pieces: bytes) -> bytes:
    """Write a chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class WhichTests(ParserCase):
    """Which bodies are parsed."""

    def test_types(self) -> None:
        """The type must be the one that is wanted, whatever its case, spaces and parameters."""
        for value in (
            b"application/json",
            b"Application/JSON ; Charset=UTF-8",
            b'application/json;charset="utf-8"',
            b"application/json; charset=",
            b"application/json; x=y",
        ):
            self.assertEqual(self.parsed(json(), b'{"a":1}', b"Content-Type: " + value), {"a": 1})

    def test_otherTypes(self) -> None:
        """A body of another type, or of none, is left alone."""
        for fields in (
            [],
            [b"Content-Type: "],
            [b"Content-Type: text/plain"],
            [b"Content-Type: application/json-patch"],
            [b"Content-Type: application/json-patch+json"],
            [b"Content-Type: application/vnd.api+json"],
            [b"Content-Type: application/json, text/plain"],
        ):
            self.assertIsNone(self.parsed(json(), b"{malformed", *fields))

    def test_chosenTypes(self) -> None:
        """The type may be another one, a pattern, one of several, or what a function says."""
        field = b"Content-Type: application/vnd.api+json"

        def choose(req: Any) -> bool:
            return bool(req.get("content-type") == "application/vnd.api+json")

        for wanted in ("+json", "application/*", ["text/plain", "*/*+json"], choose):
            self.assertEqual(self.parsed(json(type=wanted), b"{}", field), {})
        self.assertIsNone(self.parsed(json(type=["json"]), b"{}", field))
        self.assertIsNone(self.parsed(json(type=choose), b"{}", TYPE))

    def test_noBody(self) -> None:
        """A request without a body goes on without one."""
        exchange = Exchange(json(), raw(type="*/*"), text(type="*/*"))
        self.assertEqual(exchange.sendWire(head(TYPE, line=POST)), 200)
        self.assertEqual(exchange.sendWire(head(TYPE)), 200)
        self.assertEqual(exchange.bodies, [None, None])

    def test_empty(self) -> None:
        """An empty body is an empty dictionary, declared or chunked, coded or not."""
        for strict in (True, False):
            self.assertEqual(self.parsed(json(strict=strict), b"", TYPE), {})
        self.assertEqual(self.parsed(json(), b"", TYPE, b"Content-Encoding: gzip"), {})
        self.assertEqual(
            self.parsed(json(), gzip.compress(b""), TYPE, b"Content-Encoding: gzip"), {}
        )
        exchange = Exchange(json())
        chunks = head(TYPE, b"Transfer-Encoding: chunked", line=POST)
        self.assertEqual(exchange.sendWire(chunks + chunked()), 200)
        self.assertEqual(exchange.bodies, [{}])
        self.assertIsNone(self.parsed(json(), b""))

    def test_once(self) -> None:
        """A body that has been parsed is not parsed again, even where it became nothing."""
        exchange = Exchange(json(), json(strict=False), raw(type="*/*"), text(type="*/*"))
        self.assertEqual(exchange.send(b'{"a":1}', TYPE), 200)
        self.assertEqual(exchange.send(b"[]", TYPE), 200)
        self.assertEqual(exchange.bodies, [{"a": 1}, []])
        exchange = Exchange(json(strict=False), raw(type="*/*"))
        self.assertEqual(exchange.send(b"null", TYPE), 200)
        self.assertEqual(exchange.bodies, [None])

    def test_oneAfterAnother(self) -> None:
        """Requests on one connection each have their own body."""
        exchange = Exchange(json())
        for number in range(3):
            self.assertEqual(exchange.send(b"[%d]" % number, TYPE), 200)
        self.assertEqual(exchange.bodies, [[0], [1], [2]])


class LimitTests(ParserCase):
    """How long a body may be."""

    def test_limit(self) -> None:
        """A body at the limit is taken, one over it is 413, declared or not."""
        body = standardJSON.dumps(["x" * 1000]).encode()
        chunks = head(TYPE, b"Transfer-Encoding: chunked", line=POST) + chunked(body[:9], body[9:])
        for limit, status in ((len(body), 200), (len(body) - 1, 413)):
            self.assertEqual(Exchange(json(limit=limit)).send(body, TYPE), status)
            self.assertEqual(Exchange(json(limit=limit)).sendWire(chunks), status)
        error = self.refused(json(limit="1kb"), 413, "entity.too.large", b" " * 1025, TYPE)
        self.assertEqual((error.limit, error.length), (1024, 1025))

    def test_default(self) -> None:
        """Without a word about it the limit is 100 KiB."""
        for parser in (json(), raw(type="json"), text(type="json")):
            self.assertEqual(Exchange(parser).send(b"[" + b" " * 102_398 + b"]", TYPE), 200)
            self.assertEqual(Exchange(parser).send(b"[" + b" " * 102_399 + b"]", TYPE), 413)

    def test_declared(self) -> None:
        """What is declared over the limit is refused before a byte of it came or was asked for."""
        exchange = Exchange(json(limit=10))
        wire = head(TYPE, b"Content-Length: 11", b"Expect: 100-continue", line=POST)
        answer = exchange.connection.send(wire)
        self.assertEqual(statuses(answer), [413])

    def test_asked(self) -> None:
        """A body that is wanted is asked for."""
        exchange = Exchange(json(limit=11))
        wire = head(TYPE, b"Content-Length: 11", b"Expect: 100-continue", line=POST)
        self.assertEqual(statuses(exchange.connection.send(wire)), [100])
        self.assertEqual(exchange.sendWire(b'{"a":', b" 1234}"), 200)
        self.assertEqual(exchange.bodies, [{"a": 1234}])

    def test_notAsked(self) -> None:
        """A body that is refused by its head, or of another type, is not asked for."""
        for fields, status in (
            ([b"Content-Type: application/json; charset=utf-7"], 415),
            ([TYPE, b"Content-Encoding: compress"], 415),
            ([b"Content-Type: text/plain"], 200),
        ):
            wire = head(*fields, b"Content-Length: 9", b"Expect: 100-continue", line=POST)
            self.assertEqual(statuses(Exchange(json()).connection.send(wire)), [status])

    def test_application(self) -> None:
        """A parser takes no more than the application does, inflated or not."""
        body = b"[" + b" " * 2000 + b"]"
        exchange = Exchange(json(limit="1mb"), maxRequestBodySize=2002)
        self.assertEqual(exchange.send(body, TYPE), 200)
        exchange = Exchange(json(limit="1mb"), maxRequestBodySize=2001)
        self.assertEqual(exchange.send(body, TYPE), 413)
        exchange = Exchange(json(limit="1mb"), maxRequestBodySize=2001)
        field = b"Content-Encoding: gzip"
        self.assertEqual(exchange.send(gzip.compress(body), TYPE, field), 413)

    def test_slow(self) -> None:
        """A body that comes bit by bit is parsed when it is whole."""
        exchange = Exchange(json())
        body = b'{"a":[1,2,3]}'
        wire = head(TYPE, b"Content-Length: %d" % len(body), line=POST) + body
        for at in range(len(wire) - 1):
            self.assertEqual(exchange.sendWire(wire[at : at + 1]), 0)
        self.assertEqual(exchange.sendWire(wire[-1:]), 200)
        self.assertEqual(exchange.bodies, [{"a": [1, 2, 3]}])

    def test_lost(self) -> None:
        """A client that goes away in the middle is nobody's error."""
        for field in (b"Content-Length: 10", b"Transfer-Encoding: chunked"):
            exchange = Exchange(json())
            exchange.sendWire(head(TYPE, field, line=POST) + b"3\r\n{")
            exchange.connection.lose()
            self.assertEqual((exchange.bodies, exchange.errors), ([], []))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_setUp(self) -> None:
        """Options that cannot be are refused at set-up."""
        for options in ({"limit": "lots"}, {"limit": -1}, {"limit": None}, {"limit": True}):
            self.assertRaises(ValueError, json, **options)

        async def verify(*arguments: Any) -> None: ...

        for wrong in (
            {"type": None},
            {"type": ""},
            {"type": []},
            {"verify": 1},
            {"verify": verify},
        ):
            self.assertRaises(TypeError, json, **wrong)


class CodingTests(ParserCase):
    """Bodies with a Content-Encoding."""

    def test_codings(self) -> None:
        """What clients use is inflated; identity is no coding."""
        body = b'{"a":"' + b"x" * 500 + b'"}'
        for coding, wire in [
            (b"gzip", gzip.compress(body)),
            (b"GZIP", gzip.compress(body)),
            (b"x-gzip", gzip.compress(body)),
            (b"deflate", zlib.compress(body)),
            (b"deflate", zlib.compress(body)[2:-4]),
            (b"br", brotli.compress(body)),
            (b"zstd", zstandard.ZstdCompressor().compress(body)),
            (b"identity", body),
            (b"Identity", body),
            (b"", body),
        ]:
            value = self.parsed(json(), wire, TYPE, b"Content-Encoding: " + coding)
            self.assertEqual(value, {"a": "x" * 500}, coding)

    def test_unsupported(self) -> None:
        """An unknown coding is 415, and each one where none is wanted."""
        for coding in (b"compress", b"gzip, br", b"nonsense"):
            field = b"Content-Encoding: " + coding
            error = self.refused(json(), 415, "encoding.unsupported", b"{}", TYPE, field)
            self.assertEqual(error.encoding, coding.decode())
        field = b"Content-Encoding: gzip"
        wire = gzip.compress(b"{}")
        self.refused(json(inflate=False), 415, "encoding.unsupported", wire, TYPE, field)
        field = b"Content-Encoding: identity"
        self.assertEqual(self.parsed(json(inflate=False), b"{}", TYPE, field), {})

    def test_malformed(self) -> None:
        """A body that is not in its coding, cut short or too long, is 400."""
        wire = gzip.compress(b"{}")
        for body in (b"{}", wire[:-1], wire + b"x", b"\x1f\x8b"):
            field = b"Content-Encoding: gzip"
            self.refused(json(), 400, "encoding.malformed", body, TYPE, field)

    def test_limit(self) -> None:
        """The limit counts what comes out, though dense bodies grow on the wire."""
        body = b'{"a": 1}'
        for encoding, wire in (
            (b"gzip", gzip.compress(body)),
            (b"br", brotli.compress(body)),
            (b"zstd", zstandard.ZstdCompressor().compress(body)),
        ):
            field = b"Content-Encoding: " + encoding
            self.assertEqual(self.parsed(json(limit=8), wire, TYPE, field), {"a": 1})
            self.refused(json(limit=7), 413, "entity.too.large", wire, TYPE, field)

    def test_bomb(self) -> None:
        """A bomb is cut at the limit, small or large; a declared one before a byte is read."""
        field = b"Content-Encoding: gzip"
        bomb = gzip.compress(bytes(32 << 20))
        self.refused(json(limit=1000), 413, "entity.too.large", bomb[:1500], TYPE, field)
        exchange = Exchange(json(limit="1mb"))
        self.assertEqual(exchange.send(bomb, TYPE, field), 413)
        self.assertEqual(exchange.jobs, [inflate])
        wire = head(TYPE, field, b"Content-Length: 10000000", b"Expect: 100-continue", line=POST)
        self.assertEqual(statuses(Exchange(json()).connection.send(wire)), [413])


class ThreadTests(ParserCase):
    """What runs in a thread."""

    def test_small(self) -> None:
        """A small body is parsed at once, whether it came in one piece or not."""
        exchange = Exchange(json())
        body = b"[" + b" " * 5000 + b"]"
        self.assertEqual(exchange.send(body, TYPE), 200)
        self.assertEqual(exchange.send(gzip.compress(body), TYPE, b"Content-Encoding: gzip"), 200)
        wire = head(TYPE, b"Content-Length: %d" % len(body), line=POST)
        self.assertEqual(exchange.sendWire(wire, body[:9], body[9:]), 200)
        self.assertEqual(exchange.jobs, [])

    def test_large(self) -> None:
        """A large body is inflated and parsed in a thread, however small it is on the wire."""
        for size, jobs in ((INLINE_SIZE, []), (INLINE_SIZE + 1, [parseJSON])):
            body = b"[" + b" " * (size - 2) + b"]"
            exchange = Exchange(json(limit="1mb"))
            self.assertEqual(exchange.send(body, TYPE), 200)
            self.assertEqual(exchange.jobs, jobs)
            coded = [inflate, *jobs] if jobs else []
            exchange = Exchange(json(limit="1mb"))
            self.assertEqual(
                exchange.send(gzip.compress(body), TYPE, b"Content-Encoding: gzip"), 200
            )
            self.assertEqual((exchange.jobs, exchange.bodies), (coded, [[]]))

    def test_errors(self) -> None:
        """An error in a thread is an error like others."""
        body = b"[" + b" " * INLINE_SIZE
        self.refused(json(), 400, "entity.parse.failed", body, TYPE)


class VerifyTests(ParserCase):
    """The hook that may refuse a body."""

    def test_called(self) -> None:
        """It gets the request, the response, the inflated body and its charset."""
        calls: list[Any] = []

        def verify(req: Any, res: Any, body: bytes, charset: str | None) -> None:
            calls.append((req.method, res.headersSent, body, charset, req.body))

        wire = gzip.compress(b"[1]")
        parser = json(verify=verify)
        self.assertEqual(self.parsed(parser, wire, TYPE, b"Content-Encoding: gzip"), [1])
        field = b"Content-Type: application/json; charset=UTF-16"
        self.assertEqual(self.parsed(parser, "[2]".encode("utf-16-le"), field), [2])
        self.assertEqual(
            calls,
            [
                ("POST", False, b"[1]", "utf-8", None),
                ("POST", False, "[2]".encode("utf-16-le"), "utf-16", None),
            ],
        )

    def test_refuses(self) -> None:
        """A body that it raises for is 403, before it is parsed; the error has the body."""

        def verify(*arguments: Any) -> None:
            raise ValueError("no such signature")

        error = self.refused(json(verify=verify), 403, "entity.verify.failed", b"{malformed", TYPE)
        self.assertEqual(error.message, "no such signature")
        self.assertEqual(error.body, b"{malformed")
        self.assertIsInstance(error.__cause__, ValueError)
        large = b"[" + b" " * INLINE_SIZE + b"]"
        self.refused(json(verify=verify), 403, "entity.verify.failed", large, TYPE)

    def test_ownStatus(self) -> None:
        """An error with a status of its own keeps it."""

        def verify(*arguments: Any) -> None:
            raise HTTPError(401, "who is it?", "own.code")

        self.refused(json(verify=verify), 401, "own.code", b"{}", TYPE)

    def test_doesNotWait(self) -> None:
        """One that waits is an error: its refusal would be lost."""

        async def later() -> None:
            raise ValueError("refused")

        waiting = later()
        self.addCleanup(waiting.close)
        exchange = Exchange(json(verify=lambda *arguments: waiting))
        self.assertEqual((exchange.send(b"{}", TYPE), exchange.bodies), (500, []))
        self.assertIsInstance(exchange.errors[0], TypeError)
