"""Cookies, read and written."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.cookies import (
    COOKIE_BYTES,
    parseCookies,
    serializeCookie,
    signValue,
    unsignValue,
)

# As cookie-signature signs: value, secret, result.
SIGNED = [
    ("hello", "tobiiscool", "hello.DGDUkGlIkCzPz+C0B064FNgHdEjox7ch8tOBGslZ5QI"),
    ("", "s", ".ZOygfM5nkpw1fWPQpK7CB+d0gAQDKYkU/ATojOAqxJ8"),
    ("a.b", "keyboard cat", "a.b.sKNesNyAbFAJ+fsoA7qNx4Tsyo+r5keVpJkZSzFMXZw"),
    ("\u00e9\u20ac", "\u00e9", "\u00e9\u20ac.MXeSKSI6W9XCQ5pj4OgKOhfqdc3WKHIOAVXefjl3aCE"),
]


class ParseTests(SynchronousTestCase):
    """The Cookie header."""

    def test_pairs(self) -> None:
        """Pairs are separated by semicolons, with or without white space."""
        for header, expected in (
            ("", {}),
            ("a=b", {"a": "b"}),
            ("a=b; c=d", {"a": "b", "c": "d"}),
            ("a=b;c=d;", {"a": "b", "c": "d"}),
            (" a\t=\tb ;  c = d ", {"a": "b", "c": "d"}),
            ("a=", {"a": ""}),
            ("a=b=c&d", {"a": "b=c&d"}),
            ("a; b=c; d", {"b": "c"}),
            (";;;", {}),
            ("a=b c", {"a": "b c"}),
            ("__proto__=x; constructor=y", {"__proto__": "x", "constructor": "y"}),
        ):
            self.assertEqual(parseCookies(header), expected, header)

    def test_firstWins(self) -> None:
        """Of two cookies of one name the first counts, even if it is empty."""
        self.assertEqual(parseCookies("a=1; a=2"), {"a": "1"})
        self.assertEqual(parseCookies("a=; a=2"), {"a": ""})
        self.assertEqual(parseCookies("a=1; A=2"), {"a": "1", "A": "2"})

    def test_quotes(self) -> None:
        """A pair of quotes around a value is no part of it; a single one is."""
        self.assertEqual(parseCookies('a="b c"; d="e'), {"a": "b c", "d": '"e'})
        self.assertEqual(parseCookies('a=""; b="'), {"a": "", "b": '"'})

    def test_decoded(self) -> None:
        """Percent escapes are UTF-8; where they make no sense the value stays as it is."""
        for value, expected in (
            ("%20%C3%A9", " \u00e9"),
            ("%22%3b%0a", '";\n'),
            ("a+b", "a+b"),
            ("%", "%"),
            ("%20%zz", "%20%zz"),
            ("%ff%20", "%ff%20"),
            ("%ED%A0%80", "%ED%A0%80"),
            ("\u00e9%20", "\u00e9 "),
        ):
            self.assertEqual(parseCookies(f"a={value}"), {"a": expected}, value)

    def test_bounded(self) -> None:
        """A pair that no browser would have stored is left out, and hides no other."""
        most = "v" * (COOKIE_BYTES - 2)
        self.assertEqual(parseCookies(f"a={most}"), {"a": most})
        self.assertEqual(parseCookies(f"a={most}v;a=2"), {"a": "2"})

    @given(st.text(st.sampled_from('ab=; \t"%C3A9f\u00e9')) | st.text())
    def test_anyHeader(self, header: str) -> None:
        """Any header is read, and no name holds a delimiter."""
        for name in parseCookies(header):
            self.assertNotIn("=", name)
            self.assertNotIn(";", name)
            self.assertEqual(name, name.strip(" \t"))


class SerializeTests(SynchronousTestCase):
    """The Set-Cookie header."""

    def test_plain(self) -> None:
        """A cookie is for the whole site, and nothing else unless it is said."""
        self.assertEqual(serializeCookie("a", "b"), "a=b; Path=/")
        self.assertEqual(serializeCookie("a", "", path=None), "a=")

    def test_attributes(self) -> None:
        """Attributes are written in the order and the spelling that Express uses."""
        cookie = serializeCookie(
            "a",
            "b",
            maxAge=1500,
            domain=".example.com",
            path="/x y",
            expires=1700000000.9,
            httpOnly=True,
            secure=True,
            partitioned=True,
            priority="HIGH",
            sameSite=True,
        )
        self.assertEqual(
            cookie,
            "a=b; Max-Age=1; Domain=.example.com; Path=/x y; "
            "Expires=Tue, 14 Nov 2023 22:13:20 GMT; HttpOnly; Secure; Partitioned; "
            "Priority=High; SameSite=Strict",
        )

    def test_maxAge(self) -> None:
        """An age in milliseconds is rounded down to seconds; zero and less expire the cookie."""
        for ms, seconds in ((0, 0), (999, 0), (1000, 1), (1999.9, 1), (-1, -1)):
            expected = f"a=b; Max-Age={seconds}; Path=/"
            self.assertEqual(serializeCookie("a", "b", maxAge=ms), expected)
        for ms in (float("inf"), float("nan")):
            self.assertRaises(ValueError, serializeCookie, "a", "b", maxAge=ms)

    def test_expires(self) -> None:
        """A time is seconds since the epoch, zero too, or a datetime."""
        epoch = "a=b; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"
        self.assertEqual(serializeCookie("a", "b", expires=0), epoch)
        when = datetime(1970, 1, 1, tzinfo=UTC)
        self.assertEqual(serializeCookie("a", "b", expires=when), epoch)
        for wrong in (1e18, float("inf"), float("nan")):
            self.assertRaises(ValueError, serializeCookie, "a", "b", expires=wrong)

    def test_value(self) -> None:
        """Whatever the value holds, nothing of it can end the cookie or the line."""
        cookie = serializeCookie("a", 'x; Path=/\r\n"\u00e9\u20ac', path=None)
        self.assertEqual(cookie, "a=x%3B%20Path%3D%2F%0D%0A%22%C3%A9%E2%82%AC")
        self.assertEqual(serializeCookie("a", "!'()*~-_.", path=None), "a=!'()*~-_.")

    def test_sameSite(self) -> None:
        """Each rule is known in any case; one that no browser knows is refused."""
        for value, word in (("Strict", "Strict"), ("lax", "Lax"), ("NONE", "None")):
            cookie = serializeCookie("a", "b", sameSite=value, secure=True)
            self.assertEqual(cookie, f"a=b; Path=/; Secure; SameSite={word}")
        self.assertEqual(serializeCookie("a", "b", sameSite=False), "a=b; Path=/")
        self.assertRaises(ValueError, serializeCookie, "a", "b", sameSite="always")

    def test_sameSiteNone(self) -> None:
        """A cookie for other sites has to be secure: browsers drop others without a word."""
        error = self.assertRaises(ValueError, serializeCookie, "a", "b", sameSite="none")
        self.assertIn("secure", str(error))

    def test_refused(self) -> None:
        """A name, domain, path or priority that could end its attribute is refused."""
        for name in ("", "a b", "a=b", "a;b", "a,b", "a\n", "\u00e9", 'a"', "a\x7f", "a/b"):
            self.assertRaises(ValueError, serializeCookie, name, "x")
        for domain in ("a;b", "a b", "-a", "a..b", "a.", "a\n", "\u00e9.org", "a\r\nb"):
            self.assertRaises(ValueError, serializeCookie, "a", "x", domain=domain)
        for path in ("/a;b", "/\n", "/\x7f", "/\u00e9", "/a\r\nb"):
            self.assertRaises(ValueError, serializeCookie, "a", "x", path=path)
        self.assertRaises(ValueError, serializeCookie, "a", "x", priority="top")

    def test_unpaired(self) -> None:
        """Text that is no Unicode is refused as every other bad value is."""
        self.assertRaises(ValueError, serializeCookie, "a", "\ud800")

    def test_tooLong(self) -> None:
        """A cookie that a browser would not keep is an error here, with its size."""
        room = COOKIE_BYTES - len("a=; Path=/")
        self.assertEqual(len(serializeCookie("a", "v" * room)), COOKIE_BYTES)
        error = self.assertRaises(ValueError, serializeCookie, "a", "v" * (room + 1))
        self.assertIn("4097", str(error))

    @given(st.text(max_size=300))
    def test_roundTrip(self, value: str) -> None:
        """Every value comes back as it was."""
        cookie = serializeCookie("a", value, path=None)
        self.assertEqual(parseCookies(cookie), {"a": value})


class SignatureTests(SynchronousTestCase):
    """Signed values."""

    def test_signed(self) -> None:
        """Signatures are those of cookie-signature, so that its cookies stay valid."""
        for value, secret, signed in SIGNED:
            self.assertEqual(signValue(value, secret), signed)
            self.assertEqual(signValue(value, secret.encode()), signed)
            self.assertEqual(unsignValue(signed, [secret]), value)

    def test_everySecret(self) -> None:
        """Each secret of a list verifies, one alone needs no list, and no other does."""
        signed = signValue("v", "old")
        self.assertEqual(unsignValue(signed, ["new", "old"]), "v")
        self.assertEqual(unsignValue(signed, ("old", b"other")), "v")
        self.assertEqual(unsignValue(signed, "old"), "v")
        self.assertIsNone(unsignValue(signed, "o"))
        self.assertIsNone(unsignValue(signed, ["new"]))
        self.assertIsNone(unsignValue(signed, []))

    def test_tampered(self) -> None:
        """A change anywhere, a cut, a longer signature or none at all is not accepted."""
        signed = signValue("value", "s")
        for wrong in (
            "walue" + signed[5:],
            signed[:-1],
            signed + "=",
            signed + "A",
            "value",
            "value.",
            ".",
            "",
            "x." + signed,
            signed.replace(".", ""),
            signed + "\u00e9",
            "\ud800.\ud800",
        ):
            self.assertIsNone(unsignValue(wrong, ["s"]), wrong)

    @given(st.text(), st.text(min_size=1), st.text())
    def test_roundTrip(self, value: str, secret: str, other: str) -> None:
        """What one secret signed another does not verify."""
        signed = signValue(value, secret)
        self.assertEqual(unsignValue(signed, [other, secret]), value)
        if other.encode().rstrip(b"\0") != secret.encode().rstrip(b"\0"):
            self.assertIsNone(unsignValue(signed, [other]))
