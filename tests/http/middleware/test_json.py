"""Bodies in JSON, and what all parsers have in common."""

import gzip
import json as standardJSON
import zlib
from typing import Any

import brotli
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from storagegate.http.bodies import INLINE_SIZE
from storagegate.http.errors import HTTPError
from storagegate.http.inflating import inflate
from storagegate.http.middleware.json import json, parseJSON
from storagegate.http.middleware.raw import raw
from storagegate.http.middleware.text import text
from tests.http.middleware.parsing import POST, Exchange, ParserCase
from tests.net.support import head, statuses

TYPE = b"Content-Type: application/json"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


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


class ValueTests(ParserCase):
    """What a body in JSON becomes."""

    @given(VALUES.map(lambda value: [value]))
    def test_roundTrip(self, value: Any) -> None:
        """What the standard library writes is read back."""
        body = standardJSON.dumps(value).encode()
        self.assertEqual(parseJSON(body, "utf-8", strict=True), value)

    @given(st.binary(max_size=30), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
    def test_anything(self, body: bytes, codec: str) -> None:
        """Whatever comes is a value or malformed."""
        try:
            parseJSON(body, codec, strict=False)
        except HTTPError as error:
            self.assertEqual((error.statusCode, error.code), (400, "entity.parse.failed"))

    def test_numbers(self) -> None:
        """Integers keep all their digits; what is no number is malformed."""
        big = 2**200
        self.assertEqual(self.parsed(json(), b"[%d]" % big, TYPE), [big])
        for number in (
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e999",
            b"01",
            b"+1",
            b"1_0",
            b"9" * 5000,
        ):
            self.refused(json(), 400, "entity.parse.failed", b"[" + number + b"]", TYPE)

    def test_keys(self) -> None:
        """Of keys that come twice the last one counts; none of them becomes an attribute."""
        body = b'{"a":1,"__proto__":{"x":1},"constructor":2,"__class__":3,"a":4}'
        self.assertEqual(
            self.parsed(json(), body, TYPE),
            {"a": 4, "__proto__": {"x": 1}, "constructor": 2, "__class__": 3},
        )

    def test_surrogates(self) -> None:
        """A pair of surrogates is one character, half a pair is malformed."""
        self.assertEqual(self.parsed(json(), rb'["\ud83d\ude00"]', TYPE), ["😀"])
        for half in (rb'"\ud83d"', rb'"\ude00"', rb'"\ud83dx"', b'"\xed\xa0\xbd"'):
            self.refused(json(), 400, "entity.parse.failed", b"[" + half + b"]", TYPE)

    def test_deep(self) -> None:
        """A hundred thousand brackets are malformed, not the end of the server."""
        exchange = Exchange(json(limit="1mb"))
        for body in (
            b"[" * 30_000,
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 10**5 + b"]" * 10**5,
        ):
            self.assertEqual(exchange.send(body, TYPE), 400)
        self.assertEqual({error.code for error in exchange.errors}, {"entity.parse.failed"})
        self.assertEqual(exchange.send(b"[1]", TYPE), 200)

    def test_strict(self) -> None:
        """Only objects and arrays are taken, unless others are wanted, too."""
        for body in (b"1", b'"a"', b"null", b"true", b"  1", b" ", b"\r\n\t "):
            self.refused(json(), 400, "entity.parse.failed", body, TYPE)
        for body, value in ((b"1", 1), (b' "a"', "a"), (b"null", None), (b" true ", True)):
            self.assertEqual(self.parsed(json(strict=False), body, TYPE), value)
        self.refused(json(strict=False), 400, "entity.parse.failed", b"  ", TYPE)
        self.assertEqual(self.parsed(json(), b" \t\r\n[1] \n", TYPE), [1])

    def test_malformed(self) -> None:
        """The error has the text of the body, and a message that does not repeat it."""
        for body in (
            b'{"secret":',
            b"{'secret':1}",
            b"[1,]",
            b"[] secret",
            b'["\x01"]',
            b'{"\xff":1}',
        ):
            error = self.refused(json(), 400, "entity.parse.failed", body, TYPE)
            self.assertEqual(error.body, body.decode("utf-8", "replace"))
            self.assertNotIn("secret", error.message)


class CharsetTests(ParserCase):
    """The charsets of JSON."""

    def test_charsets(self) -> None:
        """UTF-8, UTF-16 and UTF-32 are read, with a byte order mark or without."""
        value = {"ü": "€😀"}
        content = standardJSON.dumps(value, ensure_ascii=False)
        for charset, wire in [
            ("utf-8", content.encode()),
            ("UTF-8", content.encode("utf-8-sig")),
            ("utf-16", content.encode("utf-16")),
            ("utf-16", b"\xfe\xff" + content.encode("utf-16-be")),
            ("utf-16", content.encode("utf-16-le")),
            ("utf-16", content.encode("utf-16-be")),
            ("utf-16le", content.encode("utf-16-le")),
            ("utf-16be", "\ufeff".encode("utf-16-be") + content.encode("utf-16-be")),
            ("utf-32", content.encode("utf-32")),
            ("utf-32", content.encode("utf-32-be")),
            ("utf-32", content.encode("utf-32-le")),
            ("utf-32", b"\0\0\xfe\xff" + content.encode("utf-32-be")),
            ("utf-32LE", content.encode("utf-32-le")),
        ]:
            field = f"Content-Type: application/json; charset={charset}".encode()
            self.assertEqual(self.parsed(json(), wire, field), value, (charset, wire))

    def test_unsupported(self) -> None:
        """Other charsets are 415, also for an empty body."""
        for charset in (b"utf-7", b"iso-8859-1", b"us-ascii", b"nonsense", b'"utf-8;"', b"rot13"):
            field = b"Content-Type: application/json; charset=" + charset
            for body in (b"{}", b""):
                error = self.refused(json(), 415, "charset.unsupported", body, field)
            self.assertEqual(error.charset, charset.strip(b'"').decode())

    def test_lies(self) -> None:
        """A body that is not in its charset is malformed."""
        for charset, body in (
            (b"utf-8", '{"a":1}'.encode("utf-16")),
            (b"utf-16", b'{"a":1}'),
            (b"utf-16le", "[1]".encode("utf-16-be")),
            (b"utf-32", b"[1]"),
            (b"utf-16", '["'.encode("utf-16") + b"\x00\xd8" + '"]'.encode("utf-16-le")),
        ):
            field = b"Content-Type: application/json; charset=" + charset
            self.refused(json(), 400, "entity.parse.failed", body, field)


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
