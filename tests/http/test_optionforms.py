"""The forms in which options are given: a mapping wherever keywords are, for every option of the
specification of the framework."""

import os
import re
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import http, server
from storagegate.core.options import OptionError
from storagegate.http import (
    Router,
    compression,
    cors,
    json,
    openapi,
    rateLimit,
    raw,
    requestLog,
    sameOrigin,
    securityHeaders,
    session,
    staticFiles,
    text,
    upload,
    urlencoded,
)
from storagegate.http.application import Application
from storagegate.http.testing import Client

FACTORIES = (
    compression,
    cors,
    json,
    openapi,
    rateLimit,
    raw,
    requestLog,
    sameOrigin,
    securityHeaders,
    session,
    staticFiles,
    text,
    upload,
    urlencoded,
)

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class _Recorded(Application):
    """An application that opens no port, and remembers where it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def _open(self, reactor: Any, description: str, site: Any) -> Deferred[Any]:
        self.opened.append(description)
        return Deferred()


def echo(req: Any, res: Any) -> None:
    """Answer with what a parser made of the body."""
    res.send(req.body)


class ApplicationTests(SynchronousTestCase):
    """C{withOptions(options)} and C{listen(options)}."""

    def test_withOptions(self) -> None:
        """Options may be one mapping."""
        app = server.http().withOptions({"port": 8000, "development": {"console": False}})
        app.withOptions({"maxRequestBodySize": "1mb"}, keepAlive=False)
        settings = app.settings
        self.assertEqual(
            (settings.port, settings.maxRequestBodySize, settings.keepAlive), (8000, 1 << 20, False)
        )
        assert settings.development is not None

    def test_builtIn(self) -> None:
        """A mapping installs the middleware that it names, as keywords do."""
        app = server.http().withOptions(
            {
                "cors": {"origin": ["http://a.example"], "methods": ["GET"], "credentials": True},
                "compression": {"threshold": 1, "level": 9},
                "rateLimit": {"windowMs": 1000, "max": 1},
            }
        )
        app.get("/", lambda req, res: res.send("x" * 100))
        client = Client(app)
        headers = {"Origin": "http://a.example", "Accept-Encoding": "gzip"}
        response = client.get("/", headers=headers)
        self.assertEqual(response.headers.get("access-control-allow-origin"), "http://a.example")
        self.assertIsNotNone(response.headers.get("content-encoding"))
        self.assertEqual(client.get("/").status, 429)

    def test_both(self) -> None:
        """Where both forms name an option, the keyword wins."""
        app = server.http().withOptions({"port": 1, "hostname": "::1"}, port=2)
        self.assertEqual((app.settings.port, app.settings.hostname), (2, "::1"))

    def test_wrong(self) -> None:
        """What is unknown is named, in the middleware's own options too."""
        app = server.http()
        for options, problem in [
            ({"prot": 1}, "there is no option prot"),
            ({1: 2}, "there is no option 1"),
            ({"cors": {"orign": "*"}}, "there is no option cors.orign"),
            (3000, "options are a mapping or keywords, not 3000"),
        ]:
            error = self.assertRaises(OptionError, app.withOptions, options)
            self.assertIn(problem, str(error))

    def test_listen(self) -> None:
        """The place to listen at may be a mapping."""
        reactor = MemoryReactorClock()
        app = _Recorded()
        app.listen({"port": 8001, "hostname": "127.0.0.2"}, reactor=reactor)
        app.listen({"port": 8002, "hostname": "::1", "reactor": reactor}, "127.0.0.3")
        error = self.assertRaises(OptionError, app.listen, {"prot": 1}, reactor=reactor)
        self.assertIn("there is no option prot", str(error))
        self.assertEqual(
            app.opened, ["tcp:8001:interface=127.0.0.2", "tcp:8002:interface=127.0.0.3"]
        )


class RouterTests(SynchronousTestCase):
    """C{Router(options)}."""

    def test_options(self) -> None:
        """A router's options may be one mapping."""
        router = Router({"caseSensitive": True, "mergeParams": True}, strict=True)
        router.get("/A", lambda req, res: res.json(req.params))
        client = Client(server.http().use("/:id", router))
        self.assertEqual(client.get("/7/A").json(), {"id": "7"})
        self.assertEqual([client.get(path).status for path in ("/7/a", "/7/A/")], [404, 404])

    def test_off(self) -> None:
        """An option that a mapping switches off is off."""
        router = Router({"caseSensitive": False, "mergeParams": False, "strict": False})
        router.get("/A", lambda req, res: res.json(req.params))
        self.assertEqual(Client(server.http().use("/:id", router)).get("/7/a/").json(), {})

    def test_wrong(self) -> None:
        """What is unknown or no value is named."""
        error = self.assertRaises(OptionError, Router, {"stict": True})
        self.assertIn("there is no option stict", str(error))
        error = self.assertRaises(OptionError, Router, {"strict": "false"})
        self.assertIn("the option strict is True or False", str(error))


class MiddlewareTests(SynchronousTestCase):
    """The middleware of the framework."""

    def _app(self, middleware: Any) -> Client:
        return Client(server.http().use(middleware).post("/", echo).get("/", echo))

    def test_urlencoded(self) -> None:
        """C{urlencoded(options)}: C{extended} is what the mapping says."""
        for extended, expected in ((False, {"a[b]": "1"}), (True, {"a": {"b": "1"}})):
            client = self._app(urlencoded({"extended": extended}))
            self.assertEqual(client.post("/", body=b"a[b]=1", headers=FORM).json(), expected)

    def test_raw(self) -> None:
        """C{raw(options)} takes bodies of the type that the mapping says."""
        client = self._app(raw({"type": "x/y"}))
        response = client.post("/", body=b"\0", headers={"Content-Type": "x/y"})
        self.assertEqual(response.body, b"\0")

    def test_text(self) -> None:
        """C{text(options)} takes bodies of the type that the mapping says."""
        client = self._app(text({"type": "x/y"}))
        response = client.post("/", body=b"word", headers={"Content-Type": "x/y"})
        self.assertEqual(response.text, "word")

    def test_json(self) -> None:
        """C{json(options)} is as strict as the mapping says."""
        client = self._app(json({"strict": False, "limit": 3}))
        self.assertEqual(client.post("/", json=17).json(), 17)
        self.assertEqual(client.post("/", json=1234).status, 413)

    def test_cors(self) -> None:
        """C{cors(options)} sends the origin of the mapping."""
        client = self._app(cors({"origin": "http://a.example", "credentials": True}))
        headers = client.get("/").headers
        self.assertEqual(headers.get("access-control-allow-origin"), "http://a.example")
        self.assertEqual(headers.get("access-control-allow-credentials"), "true")

    def test_compression(self) -> None:
        """C{compression(options)} compresses from the mapping's threshold on."""
        app = server.http().use(compression({"threshold": 10, "level": 1}))
        app.get("/", lambda req, res: res.send("x" * 11))
        headers = {"Accept-Encoding": "gzip"}
        self.assertEqual(Client(app).get("/", headers=headers).headers["content-encoding"], "gzip")

    def test_rateLimit(self) -> None:
        """C{rateLimit(options)} counts as the mapping says."""
        client = self._app(rateLimit({"windowMs": 1000, "max": 1}))
        self.assertEqual([client.get("/").status for _ in range(2)], [200, 429])

    def test_session(self) -> None:
        """C{session(options)} has the secret and the cookie of the mapping."""
        options = {
            "secret": "s" * 32,
            "cookie": {"maxAge": 60_000, "httpOnly": False, "secure": False},
            "resave": False,
            "saveUninitialized": True,
        }
        cookie = self._app(session(options)).get("/").headers["set-cookie"]
        self.assertIn("connect.sid=", cookie)
        self.assertNotIn("HttpOnly", cookie)

    def test_staticFiles(self) -> None:
        """C{staticFiles(options)}, or the directory and then the others."""
        root = self.mktemp()
        with open(self._make(root) + "/page.html", "w") as page:
            page.write("page")
        options = {"maxAge": "1d", "index": ["page.html"], "extensions": ["html"]}
        for middleware in (
            staticFiles({"root": root, **options}),
            staticFiles(root, options),
            staticFiles(options, root=root),
        ):
            client = self._app(middleware)
            for path in ("/", "/page"):
                response = client.get(path)
                self.assertEqual(response.text, "page")
                self.assertEqual(response.headers["cache-control"], "public, max-age=86400")

    def test_upload(self) -> None:
        """C{upload(options)} goes by the directory, the limits and the filter of the mapping."""
        options = {
            "dest": self._make(self.mktemp()),
            "limits": {"fileSize": 3},
            "fileFilter": lambda req, file, cb: cb(None, True),
        }
        app = server.http().use(upload(options).single("file"))
        app.post("/", lambda req, res: res.send(req.file.originalname))
        client = Client(app)
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        form = (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
            b"%s\r\n--x--\r\n"
        )
        self.assertEqual(client.post("/", body=form % b"abc", headers=headers).text, "a.txt")
        self.assertEqual(client.post("/", body=form % b"abcd", headers=headers).status, 413)

    def test_securityHeaders(self) -> None:
        """C{securityHeaders(options)} changes what the mapping names."""
        client = self._app(securityHeaders({"xFrameOptions": "DENY", "xXssProtection": False}))
        headers = client.get("/").headers
        self.assertEqual(headers.get("x-frame-options"), "DENY")
        self.assertIsNone(headers.get("x-xss-protection"))

    def test_requestLog(self) -> None:
        """C{requestLog(options)}, or the format and then the others."""
        for options in (({"format": ":method"},), (":method", {})):
            lines: list[str] = []
            stream = type("Stream", (), {"write": staticmethod(lines.append)})()
            self._app(requestLog(*options[:-1], {**options[-1], "stream": stream})).get("/")
            self.assertEqual("".join(lines), "GET\n")

    def test_sameOrigin(self) -> None:
        """C{sameOrigin(options)} lets the origins of the mapping in."""
        client = self._app(sameOrigin({"allow": ["https://a.example"]}))
        headers = {"Origin": "https://a.example", "Cookie": "a=b"}
        self.assertEqual(client.post("/", headers=headers).status, 200)

    def test_openapi(self) -> None:
        """C{openapi(options)} has the title of the mapping."""
        document = self._app(openapi({"title": "Pens"})).get("/openapi.json").json()
        self.assertEqual(document["info"]["title"], "Pens")

    def test_all(self) -> None:
        """Every middleware of the framework is named here, and names what it does not know."""
        made = {name for name in http.__all__ if name[0].islower()}
        self.assertEqual({factory.__name__ for factory in FACTORIES}, made)
        for factory in FACTORIES:
            error = self.assertRaises(OptionError, factory, {"nothing": 1})
            self.assertIn(f"there is no option {factory.__name__}.nothing", str(error))

    def test_missing(self) -> None:
        """An option that has to be there is named where a mapping lacks it."""
        for factory, name in ((session, "secret"), (staticFiles, "root")):
            error = self.assertRaises(OptionError, factory, {})
            self.assertEqual(str(error), f"the option {factory.__name__}.{name} is missing")

    def test_keywords(self) -> None:
        """Keywords win over the mapping; positional values are none that a mapping may repeat."""
        client = self._app(urlencoded({"extended": True, "limit": "1kb"}, extended=False))
        self.assertEqual(client.post("/", body=b"a[b]=1", headers=FORM).json(), {"a[b]": "1"})
        error = self.assertRaises(TypeError, staticFiles, ".", {"root": "."})
        self.assertTrue(re.search("multiple values.*root", str(error)))

    def _make(self, directory: str) -> str:
        os.makedirs(directory)
        return directory
