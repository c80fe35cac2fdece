"""Handshakes of WebSocket: which requests are one, and whose pages may make it."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.websocket.handshake import (
    Handshake,
    HandshakeRefused,
    Origin,
    OriginRule,
    parseOrigin,
    readHandshake,
)

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="

FIELDS = {
    b"host": b"example.com",
    b"upgrade": b"websocket",
    b"connection": b"Upgrade",
    b"sec-websocket-version": b"13",
    b"sec-websocket-key": KEY,
}


def read(
    fields: dict[bytes, bytes | None] | None = None,
    method: bytes = b"GET",
    version: bytes = b"HTTP/1.1",
    secure: bool = False,
    allowedOrigins: Sequence[str] = (),
    isCompressed: bool = False,
) -> Handshake:
    """Read a handshake that differs from a good one in some fields; C{None} leaves one out."""
    every = {**FIELDS, **(fields or {})}
    headers = {name: value for name, value in every.items() if value is not None}
    return readHandshake(
        method,
        version,
        headers,
        headers.get(b"host", b"").decode("latin-1"),
        secure,
        OriginRule(allowedOrigins),
        ("json", "binary", "msgpack"),
        isCompressed,
    )


class HandshakeTests(SynchronousTestCase):
    """What a request has to say."""

    def assertRefused(self, status: int, *arguments: Any, **keywords: Any) -> HandshakeRefused:
        """Check the status that a request is refused with."""
        with self.assertRaises(HandshakeRefused) as caught:
            read(*arguments, **keywords)
        self.assertEqual(caught.exception.statusCode, status)
        return caught.exception

    def test_good(self) -> None:
        """A browser's request becomes a WebSocket without a subprotocol."""
        handshake = read({b"connection": b"keep-alive, Upgrade", b"upgrade": b"WebSocket"})
        self.assertIsNone(handshake.subprotocol)

    def test_head(self) -> None:
        """What is handed on is the request without what has been judged or means nothing here."""
        handshake = read(
            {b"cookie": b"a=b", b"origin": b"http://example.com", b"host": b"a b"},
            allowedOrigins=["*"],
        )
        lines = handshake.head.split(b"\r\n")
        self.assertEqual(lines[0], b"GET / HTTP/1.1")
        self.assertEqual(lines[-2:], [b"", b""])
        names = {line.partition(b":")[0] for line in lines[1:-2]}
        self.assertEqual(
            names,
            {b"Host", b"Upgrade", b"Connection", b"Sec-WebSocket-Version", b"Sec-WebSocket-Key"},
        )

    def test_plainGet(self) -> None:
        """A GET that asks for no upgrade is told what to ask for."""
        error = self.assertRefused(426, {b"upgrade": None, b"connection": None})
        self.assertEqual(error.headers["Upgrade"], "websocket")
        self.assertRefused(426, {b"upgrade": b"h2c"})
        self.assertRefused(426, version=b"HTTP/1.0")

    def test_version(self) -> None:
        """Another version is told the one that there is."""
        for version in (None, b"8", b"14", b"013", b"13, 13", b""):
            error = self.assertRefused(426, {b"sec-websocket-version": version})
            self.assertEqual(error.headers["Sec-WebSocket-Version"], "13")

    def test_method(self) -> None:
        """Nothing but GET opens a WebSocket."""
        for method in (b"POST", b"HEAD", b"OPTIONS"):
            self.assertEqual(self.assertRefused(405, method=method).headers, {"Allow": "GET"})

    def test_wrong(self) -> None:
        """What is an upgrade but no handshake is a bad request."""
        for fields in (
            {b"connection": b"keep-alive"},
            {b"connection": None},
            {b"sec-websocket-key": None},
            {b"sec-websocket-key": b""},
            {b"sec-websocket-key": b"AAAA"},
            {b"sec-websocket-key": KEY + b", " + KEY},
            {b"sec-websocket-key": b"*" + KEY[1:]},
            {b"sec-websocket-key": KEY[:-2]},
            {b"content-length": b"1"},
            {b"transfer-encoding": b"chunked"},
        ):
            self.assertRefused(400, fields)
        self.assertIsNone(read({b"content-length": b"0"}).subprotocol)

    def test_subprotocols(self) -> None:
        """The first one that is known is accepted."""
        for offered, chosen in (
            (b"msgpack", "msgpack"),
            (b"wamp, binary, json", "binary"),
            (b"json,msgpack", "json"),
            (b"JSON", None),
            (b"wamp", None),
            (b"", None),
            (b"\xff", None),
        ):
            handshake = read({b"sec-websocket-protocol": offered})
            self.assertEqual(handshake.subprotocol, chosen)
            line = b"Sec-WebSocket-Protocol: " + (chosen or "").encode()
            self.assertEqual(line in handshake.head, chosen is not None)

    def test_extensions(self) -> None:
        """Extensions are considered only where compression is wanted."""
        offer = {b"sec-websocket-extensions": b"permessage-deflate"}
        self.assertNotIn(b"deflate", read(offer).head)
        self.assertIn(b"deflate", read(offer, isCompressed=True).head)
        odd = {b"sec-websocket-extensions": b"permessage-deflate\xff"}
        self.assertNotIn(b"deflate", read(odd, isCompressed=True).head)

    def test_offers(self) -> None:
        """An offer that cannot be met is declined, and the next one considered (RFC 7692)."""
        name = b"permessage-deflate"
        for offered, accepted in (
            (b"", b""),
            (b"; server_max_window_bits=9", b"; server_max_window_bits=9"),
            (b'; Server_Max_Window_Bits = "15"', b"; server_max_window_bits=15"),
            (b"; client_max_window_bits", b"; client_max_window_bits"),
            (b"; client_max_window_bits=8", b"; client_max_window_bits"),
            (b";client_no_context_takeover", b"; client_no_context_takeover"),
            (b"; server_max_window_bits=8, permessage-deflate", b""),
            (b"; foo=1, x-webkit-deflate-frame, permessage-deflate", b""),
        ):
            head = read({b"sec-websocket-extensions": name + offered}, isCompressed=True).head
            self.assertIn(b"\r\nSec-WebSocket-Extensions: " + name + accepted + b"\r\n", head)
        for declined in (
            b"server_max_window_bits=8",
            b"server_max_window_bits=16",
            b"server_max_window_bits=09",
            b"server_max_window_bits=",
            b"server_max_window_bits",
            b"client_max_window_bits=7",
            b"client_max_window_bits=x",
            b"server_no_context_takeover=1",
            b"client_no_context_takeover; client_no_context_takeover",
            b"foo",
            b"",
            b"=",
        ):
            offer = {b"sec-websocket-extensions": name + b"; " + declined}
            self.assertNotIn(b"Extensions", read(offer, isCompressed=True).head, declined)

    @settings(deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from([*FIELDS, b"origin", b"sec-websocket-protocol"]),
            st.binary(max_size=40) | st.sampled_from([*FIELDS.values(), b"http://example.com"]),
        )
    )
    def test_anything(self, fields: dict[bytes, bytes | None]) -> None:
        """Whatever a request says, it is read or refused, and nothing of it is handed on raw."""
        try:
            handshake = read(fields, isCompressed=True)
        except HandshakeRefused:
            return
        self.assertLessEqual(handshake.head.count(b"\r\n"), 9)

    def test_origin(self) -> None:
        """A page that may not connect is forbidden to."""
        self.assertRefused(403, {b"origin": b"http://other.com"})
        self.assertRefused(403, {b"origin": b"null"})
        self.assertRefused(403, {b"origin": b"\xff"})
        self.assertRefused(403, {b"origin": b"http://example.com, http://example.com"})
        self.assertIsNone(read({b"origin": b"http://example.com"}).subprotocol)


class OriginTests(SynchronousTestCase):
    """Whose pages may connect."""

    def test_parse(self) -> None:
        """Scheme and host are without case, and a port that is not named is the scheme's."""
        for text, origin in (
            ("http://Example.COM", Origin("http", "example.com", 80)),
            ("https://example.com", Origin("https", "example.com", 443)),
            ("https://example.com:0443", Origin("https", "example.com", 443)),
            ("HTTP://[::1]:8080", Origin("http", "[::1]", 8080)),
            ("chrome-extension://abc", Origin("chrome-extension", "abc", None)),
        ):
            self.assertEqual(parseOrigin(text), origin)
        for text in (
            "",
            "null",
            "example.com",
            "http:example.com",
            "http://",
            "http://a/",
            "http://a/path",
            "http://a b",
            "http://user@a",
            "http://a:",
            "http://a:x",
            "http://a:123456",
            "http://::1",
            "http://a\\b",
            "*",
        ):
            self.assertIsNone(parseOrigin(text), text)

    def test_absent(self) -> None:
        """Who sends no origin is no browser."""
        for allowed in ((), ("https://a.com",)):
            self.assertTrue(OriginRule(allowed).admits(None, "b.com", False))

    def test_null(self) -> None:
        """Any page can have the origin null, so it is nobody's."""
        for allowed in ((), ("https://a.com",), ("*",)):
            self.assertFalse(OriginRule(allowed).admits("null", "null", False))

    def test_ownHost(self) -> None:
        """Without a list only the host's own pages are let in."""
        rule = OriginRule()
        for origin, host, secure, admitted in (
            ("http://a.com", "a.com", False, True),
            ("http://A.com:80", "a.com", False, True),
            ("http://a.com", "a.com:80", False, True),
            ("http://a.com:8080", "a.com:8080", False, True),
            ("http://[::1]:8080", "[::1]:8080", False, True),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", False, True),
            # Behind a proxy that takes the encryption off.
            ("https://a.com", "a.com", False, True),
            ("https://a.com", "a.com", True, True),
            # Anybody on the way could have made that page.
            ("http://a.com", "a.com", True, False),
            ("http://a.com", "a.com:8080", False, False),
            ("http://a.com:8080", "a.com", False, False),
            ("http://b.com", "a.com", False, False),
            ("http://a.com.b.com", "a.com", False, False),
            ("http://xa.com", "a.com", False, False),
            ("http://localhost:8080", "127.0.0.1:8080", False, False),
            ("ftp://a.com", "a.com", False, False),
            ("http://a.com", "", False, False),
            ("http://a.com", "a.com/x", False, False),
        ):
            self.assertIs(rule.admits(origin, host, secure), admitted, (origin, host, secure))

    def test_listed(self) -> None:
        """With a list only those on it are let in, however they are written."""
        rule = OriginRule(["https://App.example.com", "http://localhost:3000"])
        for origin, admitted in (
            ("https://app.example.com", True),
            ("https://app.example.com:443", True),
            ("http://localhost:3000", True),
            ("http://app.example.com", False),
            ("https://app.example.com:8443", False),
            ("https://example.com", False),
            ("https://x.app.example.com", False),
            ("http://localhost", False),
            # Its own pages are not on it.
            ("http://a.com", False),
        ):
            self.assertIs(rule.admits(origin, "a.com", False), admitted, origin)

    def test_everybody(self) -> None:
        """A star lets all pages in that have an origin."""
        rule = OriginRule(["*"])
        self.assertTrue(rule.admits("https://anywhere.com", "a.com", False))
        self.assertFalse(rule.admits("nonsense", "a.com", False))

    def test_wrongList(self) -> None:
        """What is no origin is an error, and not a rule that never holds."""
        for text in ("example.com", "https://*.example.com", "null", "https://a.com/"):
            with self.assertRaises(ValueError) as caught:
                OriginRule([text])
            self.assertIn(text, str(caught.exception))
