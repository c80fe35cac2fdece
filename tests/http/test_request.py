"""The request as handlers see it."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.testing import Client


class RequestCase(SynchronousTestCase):
    """An application that shows what its request says."""

    def setUp(self) -> None:
        """Make it."""
        self.app = server.http()
        self.look: Any = None
        self.app.all("/*", lambda req, res: res.json({"seen": self.look(req)}))
        self.client = Client(self.app, url="http://a.example:8080")

    def see(self, look: Any, path: str = "/x", method: str = "GET", **options: Any) -> Any:
        """Give what a function of the request sees."""
        self.look = look
        return self.client.request(method, path, **options).json()["seen"]


class LocationTests(RequestCase):
    """Where a request came to."""

    def test_line(self) -> None:
        """Method, path, query and URLs are as the client sent them."""
        look = lambda req: [req.method, req.path, req.originalUrl, req.url, req.baseUrl]  # noqa: E731
        self.assertEqual(
            self.see(look, "/a%20b/c?x=1&y=%C3%A9", "PUT"),
            [
                "PUT",
                "/a%20b/c",
                "/a%20b/c?x=1&y=%C3%A9",
                "http://a.example:8080/a%20b/c?x=1&y=%C3%A9",
                "",
            ],
        )
        self.assertEqual(self.see(lambda req: req.httpVersion), "1.1")

    def test_query(self) -> None:
        """The query is decoded, what is repeated becomes a list, and it may be replaced."""
        query = self.see(lambda req: req.query, "/?a=1&b=x%20y&b=z+z&c&__class__=d")
        self.assertEqual(query, {"a": "1", "b": ["x y", "z z"], "c": "", "__class__": "d"})
        self.assertEqual(self.see(lambda req: req.query), {})

        def replace(req: Any) -> Any:
            req.query = {"mine": "1"}
            return req.query

        self.assertEqual(self.see(replace, "/?a=1"), {"mine": "1"})

    def test_host(self) -> None:
        """Host and name are those that the client asked, also with an IPv6 address."""
        look = lambda req: [req.host, req.hostname, req.protocol, req.secure]  # noqa: E731
        self.assertEqual(self.see(look), ["a.example:8080", "a.example", "http", False])
        seen = self.see(look, headers={"Host": "[::1]:80"})
        self.assertEqual(seen[:2], ["[::1]:80", "[::1]"])

    def test_secure(self) -> None:
        """A connection by TLS shows in the protocol."""
        self.client = Client(self.app, url="https://a.example")
        look = lambda req: [req.protocol, req.secure, req.url]  # noqa: E731
        self.assertEqual(self.see(look), ["https", True, "https://a.example/x"])


class HeaderTests(RequestCase):
    """What the fields of a request say."""

    def test_get(self) -> None:
        """A field is found in any case; the two spellings of Referer are one."""
        headers = {"User-Agent": "me", "Referer": "/before", "X-A": "1"}
        names = ("user-agent", "User-Agent", "referrer", "REFERER", "x-none", "x-a")
        self.assertEqual(
            self.see(lambda req: [req.get(name) for name in names], headers=headers),
            ["me", "me", "/before", "/before", None, "1"],
        )

    def test_repeated(self) -> None:
        """Repeated fields are joined, or the first counts, by name and as Express does."""
        headers = {
            "X-A": ["1", "2"],
            "Content-Type": ["text/a", "text/b"],
            "Authorization": ["Basic YTpi", "Basic Yzpk"],
            "Cookie": ["a=1", "b=2"],
            "Set-Cookie": ["a=1; Expires=Mon, 03 Feb 2031 04:05:06 GMT", "b=2"],
            "User-Agent": ["one", "two"],
        }
        names = (*headers, "set-cookie2")
        self.assertEqual(
            self.see(lambda req: [req.get(name) for name in names], headers=headers),
            ["1, 2", "text/a", "Basic YTpi", "a=1; b=2", headers["Set-Cookie"], "one", None],
        )
        self.assertIsNone(self.see(lambda req: req.get("set-cookie")))
        self.assertEqual(self.see(lambda req: req.headers["x-a"], headers=headers), "1, 2")

    def test_mapping(self) -> None:
        """The fields are a mapping by names in lower case, that iterates over pairs."""

        def look(req: Any) -> Any:
            headers = req.headers
            self.assertEqual(dict(headers), dict(list(headers)))
            self.assertEqual(headers.items(), list(headers))
            self.assertEqual([name for name, _ in headers], headers.keys())
            self.assertEqual([value for _, value in headers], headers.values())
            self.assertEqual(len(headers), len(headers.keys()))
            self.assertRaises(KeyError, lambda: headers["none"])
            self.assertEqual(headers, dict(headers))
            self.assertIn("x-a=", repr(headers).replace("': '", "=").replace("'", ""))
            return [
                headers["X-A"],
                headers.get("x-a"),
                headers.get("none", "?"),
                "x-A" in headers,
                5 in headers,
            ]

        seen = self.see(look, headers={"X-A": "1"})
        self.assertEqual(seen, ["1", "1", "?", True, False])

    def test_cookies(self) -> None:
        """Cookies are decoded, and read once."""

        def look(req: Any) -> Any:
            self.assertIs(req.cookies, req.cookies)
            return req.cookies

        seen = self.see(look, headers={"Cookie": "a=1; b=x%20y; a=2"})
        self.assertEqual(seen, {"a": "1", "b": "x y"})
        self.assertEqual(self.see(look), {})

    def test_accepts(self) -> None:
        """The best of what is offered is given as it was named, or None."""

        def look(req: Any) -> Any:
            return [
                req.accepts("json", "html"),
                req.accepts("text/html"),
                req.accepts("png"),
                req.accepts("nonsense-extension"),
                req.accepts(),
            ]

        headers = {"Accept": "text/html, application/json;q=0.5"}
        self.assertEqual(
            self.see(look, headers=headers),
            ["html", "text/html", None, None, ["text/html", "application/json"]],
        )
        self.assertEqual(self.see(lambda req: req.accepts("json", "html")), "json")

    def test_acceptsOthers(self) -> None:
        """Codings, charsets and languages are chosen in the same way."""

        def look(req: Any) -> Any:
            return [
                req.acceptsEncodings("gzip", "br"),
                req.acceptsEncodings("zstd"),
                req.acceptsCharsets("utf-8", "latin1"),
                req.acceptsLanguages("de", "en"),
                req.acceptsLanguages(),
            ]

        headers = {
            "Accept-Encoding": "br, gzip;q=0.2",
            "Accept-Charset": "utf-8",
            "Accept-Language": "en;q=0.8, de",
        }
        self.assertEqual(self.see(look, headers=headers), ["br", None, "utf-8", "de", ["de", "en"]])

    def test_is(self) -> None:
        """The type of the body is compared with extensions, types and wildcards."""

        def look(req: Any) -> Any:
            return [req.is_("html", "json"), req.is_("application/*"), req.is_("text")]

        headers = {"Content-Type": "application/json; charset=utf-8"}
        self.assertEqual(
            self.see(look, method="POST", body="{}", headers=headers),
            ["json", "application/json", False],
        )
        self.assertEqual(self.see(lambda req: req.is_("json")), None)

    def test_xhr(self) -> None:
        """A request that a script made says so."""
        self.assertFalse(self.see(lambda req: req.xhr))
        self.assertTrue(
            self.see(lambda req: req.xhr, headers={"X-Requested-With": "XMLHttpRequest"})
        )

    def test_range(self) -> None:
        """The ranges that a client asks for are read against a size."""
        look = lambda req: req.range(1000)  # noqa: E731
        self.assertIsNone(self.see(look))
        seen = self.see(look, headers={"Range": "bytes=0-9,990-"})
        self.assertEqual(seen, [[0, 9], [990, 999]])
        for value in ("bytes=1000-", "lines=1-2", "bytes=x"):
            self.assertIn(self.see(look, headers={"Range": value}), (None, []))

    def test_fresh(self) -> None:
        """A request is fresh if what the response says is what the client has."""

        def look(req: Any) -> Any:
            req.res.header("ETag", '"a"')
            return [req.fresh, req.stale]

        self.assertEqual(self.see(look), [False, True])
        headers = {"If-None-Match": '"a"'}
        self.look = look
        self.assertEqual(self.client.get("/", headers=headers).status, 304)
        self.assertEqual(self.see(look, method="POST", headers=headers), [False, True])


class ProxyTests(RequestCase):
    """What proxies say of their clients."""

    forwarded = {
        "X-Forwarded-For": "6.6.6.6, 1.2.3.4",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "public.example",
    }

    def look4(self, req: Any) -> Any:
        """See everything that a proxy could say."""
        return [req.ip, req.ips, req.protocol, req.secure, req.hostname]

    def test_notTrusted(self) -> None:
        """Nobody is believed without the option, nor by any other header."""
        headers = {**self.forwarded, "X-Real-IP": "9.9.9.9", "Forwarded": "for=9.9.9.9"}
        self.assertEqual(
            self.see(self.look4, headers=headers), ["127.0.0.1", [], "http", False, "a.example"]
        )

    def test_trusted(self) -> None:
        """A trusted proxy is believed, as far as the trust reaches."""
        self.app.withOptions(trustProxy="loopback")
        self.assertEqual(
            self.see(self.look4, headers=self.forwarded),
            ["1.2.3.4", ["1.2.3.4"], "https", True, "public.example"],
        )
        self.app.withOptions(trustProxy=True)
        self.assertEqual(
            self.see(self.look4, headers=self.forwarded)[:2], ["6.6.6.6", ["6.6.6.6", "1.2.3.4"]]
        )

    def test_forms(self) -> None:
        """What a proxy writes is read as an address, a scheme and a host, or not at all."""
        self.app.withOptions(trustProxy="loopback")
        fields = {
            "X-Forwarded-For": '6.6.6.6, "[::ffff:1.2.3.4]:50000"',
            "X-Forwarded-Proto": "HTTPS",
            "X-Forwarded-Host": "public.example:8443",
        }
        self.assertEqual(
            self.see(self.look4, headers=fields),
            ["1.2.3.4", ["1.2.3.4"], "https", True, "public.example"],
        )
        fields = {
            "X-Forwarded-For": "x" * 900,
            "X-Forwarded-Proto": "javascript",
            "X-Forwarded-Host": "evil example/" + "x" * 900,
        }
        self.assertEqual(
            self.see(self.look4, headers=fields), ["127.0.0.1", [], "http", False, "a.example"]
        )
        self.assertEqual(
            self.see(self.look4, headers={"Forwarded": 'for="1.2.3.4:1";proto=https'})[0], "1.2.3.4"
        )

    def test_otherProxy(self) -> None:
        """A client that is none of the trusted proxies is not believed."""
        self.app.withOptions(trustProxy="10.0.0.0/8")
        self.assertEqual(
            self.see(self.look4, headers=self.forwarded)[2:], ["http", False, "a.example"]
        )


class BodyTests(RequestCase):
    """The body of a request."""

    def test_defaults(self) -> None:
        """What middleware sets is None until it does, and anything may be set."""

        def look(req: Any) -> Any:
            req.anything = 1
            return [req.body, req.user, req.session, req.file, req.files, req.anything]

        self.assertEqual(self.see(look), [None] * 5 + [1])

    def test_events(self) -> None:
        """Only events that exist can be listened to."""
        self.assertEqual(
            self.see(lambda req: str(self.assertRaises(ValueError, req.on, "data", print))),
            "a request has no event 'data', only close",
        )

    def test_read(self) -> None:
        """A body is read whole, as a stream, or taken if it is here; up to a limit."""

        app = server.http()

        @app.post("/")
        async def read(req: Any, res: Any) -> None:
            res.send(await req.read(5))

        async def pieces(*values: bytes) -> Any:
            for value in values:
                yield value

        client = Client(app)
        self.assertEqual(client.post("/", body=b"12345").body, b"12345")
        self.assertEqual(client.post("/", body=pieces(b"12", b"345")).body, b"12345")
        for body in (b"123456", pieces(b"123", b"456")):
            self.assertEqual(client.post("/", body=body).status, 413)

    def test_lengths(self) -> None:
        """Whether there is a body, and how long it says it is."""
        look = lambda req: [req.hasBody, req.contentLength]  # noqa: E731
        self.assertEqual(self.see(look), [False, 0])
        self.assertEqual(self.see(look, method="POST", body=b"abc"), [True, 3])
        self.assertEqual(self.see(look, method="POST", body=b""), [True, 0])
