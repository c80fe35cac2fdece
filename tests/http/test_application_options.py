"""The options of an application."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.options import OptionError
from storagegate.http.options import ApplicationOptions, readOptions
from storagegate.http.testing import Client


class ReadTests(SynchronousTestCase):
    """What C{withOptions} takes."""

    def test_defaults(self) -> None:
        """Without options these hold."""
        options = ApplicationOptions()
        self.assertEqual((options.port, options.hostname), (3000, "127.0.0.1"))
        self.assertIsNone(options.development)
        self.assertEqual((options.maxRequestBodySize, options.wholeBodySize), (None, 10 << 20))
        limits = options.limits()
        self.assertTrue(limits.keepAlive)
        self.assertEqual(limits.keepAliveTimeout, 5.0)
        self.assertEqual(limits.http2KeepAliveTimeout, 300.0)
        self.assertEqual(limits.headersTimeout, 60.0)
        self.assertEqual(limits.requestTimeout, 300.0)

    def test_values(self) -> None:
        """Sizes are text or bytes, times milliseconds, and earlier options stay."""
        options = readOptions(ApplicationOptions(), {"maxRequestBodySize": "1.5mb", "port": 0})
        options = readOptions(options, {"keepAliveTimeout": 1500, "keepAlive": False})
        options = readOptions(options, {"http2KeepAliveTimeout": 2500})
        self.assertEqual(options.limits().http2KeepAliveTimeout, 2.5)
        self.assertEqual((options.maxRequestBodySize, options.port), (3 << 19, 0))
        self.assertEqual(options.limits().keepAliveTimeout, 1.5)
        self.assertFalse(options.limits().keepAlive)

    def test_development(self) -> None:
        """Development is off, on, or a mapping of its two parts."""
        for value, expected in [
            (True, (False, False)),
            ({}, (False, False)),
            ({"hmr": True}, (True, False)),
            ({"console": True}, (False, True)),
        ]:
            development = readOptions(ApplicationOptions(), {"development": value}).development
            assert development is not None
            self.assertEqual((development.hmr, development.console), expected)
        for value in (False, None):
            self.assertIsNone(readOptions(ApplicationOptions(), {"development": value}).development)

    def test_wrong(self) -> None:
        """A wrong option or value is refused, and the message names it."""
        for name, value in [
            ("prot", 1),
            ("port", "80"),
            ("port", 70_000),
            ("port", True),
            ("hostname", ""),
            ("development", 1),
            ("maxRequestBodySize", "much"),
            ("maxRequestBodySize", -1),
            ("keepAlive", 1),
            ("keepAliveTimeout", 0),
            ("http2KeepAliveTimeout", 0),
            ("http2KeepAliveTimeout", 90_000_000),
            ("headersTimeout", 1.5),
            ("requestTimeout", -1),
            ("requestTimeout", 90_000_000),
            ("cors", "*"),
            ("trustProxy", "nobody"),
        ]:
            error = self.assertRaises(OptionError, readOptions, ApplicationOptions(), {name: value})
            self.assertIn(name, str(error))
        error = self.assertRaises(
            OptionError, readOptions, ApplicationOptions(), {"development": {"hot": True}}
        )
        self.assertIn("development.hot", str(error))
        error = self.assertRaises(
            OptionError, readOptions, ApplicationOptions(), {"development": {"hmr": 1}}
        )
        self.assertIn("development.hmr", str(error))


class EffectTests(SynchronousTestCase):
    """What options change, where no listener is needed to see it."""

    def test_maxRequestBodySize(self) -> None:
        """A body that is declared too long is refused before any handler, with the error's way."""
        seen: list[str] = []
        app = server.http().withOptions(maxRequestBodySize="1kb")
        app.use(lambda req, res, next: seen.append(req.path) or next())
        app.post("/", lambda req, res: res.end())
        client = Client(app)
        response = client.post("/", body=b"x" * 1025)
        self.assertEqual((response.status, seen), (413, []))
        self.assertEqual(response.json(), {"error": "The body is too large"})
        self.assertEqual(client.post("/", body=b"x" * 1024).status, 200)

    def test_maxRequestBodySizeOfStreams(self) -> None:
        """A body that turns out too long while it is read is refused then."""
        app = server.http().withOptions(maxRequestBodySize=1000)

        @app.post("/")
        async def count(req, res):  # type: ignore[no-untyped-def]
            size = 0
            async for chunk in req:
                size += len(chunk)
            res.json(size)

        async def pieces(number: int):  # type: ignore[no-untyped-def]
            for _ in range(number):
                yield b"x" * 100

        client = Client(app)
        self.assertEqual(client.post("/", body=pieces(10)).json(), 1000)
        self.assertEqual(client.post("/", body=pieces(11)).status, 413)

    def test_streamsHaveNoTotal(self) -> None:
        """Unless a limit is set, a body that is read as a stream may be any length."""
        app = server.http()

        @app.post("/")
        async def count(req, res):  # type: ignore[no-untyped-def]
            res.json(sum([len(chunk) async for chunk in req]))

        @app.post("/whole")
        async def whole(req, res):  # type: ignore[no-untyped-def]
            res.json(len(await req.read()))

        client = Client(app)
        body = bytes((10 << 20) + 1)
        self.assertEqual(client.post("/", body=body).json(), len(body))
        self.assertEqual(client.post("/whole", body=body).status, 413)
        self.assertEqual(client.post("/whole", body=body[1:]).json(), 10 << 20)

    def test_builtInFirst(self) -> None:
        """Options that name middleware install it before what was registered earlier."""
        app = server.http()
        app.get("/", lambda req, res: res.send("x" * 2000))
        app.withOptions(cors={"origin": "https://a.example"}, compression={"threshold": 1000})
        app.withOptions(rateLimit={"windowMs": 1000, "max": 2})
        client = Client(app)
        headers = {"Accept-Encoding": "gzip", "Origin": "https://a.example"}
        first = client.get("/", headers=headers)
        self.assertEqual(first.headers.get("access-control-allow-origin"), "https://a.example")
        self.assertEqual(first.headers.get("content-encoding"), "gzip")
        self.assertEqual(first.headers.get("x-ratelimit-limit"), "2")
        client.get("/")
        refused = client.get("/", headers=headers)
        self.assertEqual(refused.status, 429)
        self.assertEqual(refused.headers.get("access-control-allow-origin"), "https://a.example")

    def test_builtInReplaced(self) -> None:
        """Setting such an option again replaces its middleware, and False takes it away."""
        app = server.http().withOptions(rateLimit={"max": 0})
        app.get("/", lambda req, res: res.end())
        client = Client(app)
        self.assertEqual(client.get("/").status, 429)
        app.withOptions(rateLimit={"max": 5})
        self.assertEqual(client.get("/").status, 200)
        app.withOptions(rateLimit=False)
        self.assertNotIn("x-ratelimit-limit", client.get("/").headers)
        # Each path is still answered by its own route.
        self.assertEqual(client.get("/nothing").status, 404)
        self.assertEqual(len(app.layers), 1)

    def test_traceback(self) -> None:
        """Only development shows the traceback of an error."""

        def boom(req: object, res: object) -> None:
            raise ValueError("secret")

        app = server.http()
        app.get("/", boom)
        client = Client(app)
        self.assertEqual(client.get("/").json(), {"error": "Internal Server Error"})
        app.withOptions(development=True)
        shown = client.get("/").json()
        self.assertIn("ValueError: secret", shown["traceback"][-1])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)
