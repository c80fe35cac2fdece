"""What applications are written like: who signs in, what errors look like, what is told when."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import Request, Response, Router, cors, json, rateLimit, session
from storagegate.http.testing import Client


class AuthenticationTests(SynchronousTestCase):
    """Middleware of the user's own that knows who asks."""

    def setUp(self) -> None:
        """Make an application with a part that wants a token."""
        self.app = server.http()

        def authenticate(req: Any, res: Any, next: Any) -> Any:
            scheme, _, token = (req.get("authorization") or "").partition(" ")
            if scheme != "Bearer":
                return res.status(401).json({"error": "No token provided"})
            if token != "good":
                return res.status(401).json({"error": "Invalid token"})
            req.user = {"id": 7}
            return next()

        self.app.get("/open", lambda req, res: res.json({"user": req.user}))
        self.app.use("/api", authenticate)
        self.app.get("/api/me", lambda req, res: res.json(req.user))
        self.app.get("/mine", authenticate, lambda req, res: res.json({"user": req.user}))
        self.client = Client(self.app)

    def test_valid(self) -> None:
        """A token that verifies sets C{req.user}, for a prefix or for one route."""
        headers = {"Authorization": "Bearer good"}
        self.assertEqual(self.client.get("/api/me", headers=headers).json(), {"id": 7})
        self.assertEqual(self.client.get("/mine", headers=headers).json(), {"user": {"id": 7}})

    def test_refused(self) -> None:
        """Without one, or with another, it is 401 with an C{error} in JSON."""
        for headers, error in [
            ({}, "No token provided"),
            ({"Authorization": "Basic x"}, "No token provided"),
            ({"Authorization": "Bearer bad"}, "Invalid token"),
        ]:
            for path in ("/api/me", "/api/unknown", "/mine"):
                response = self.client.get(path, headers=headers)
                self.assertEqual((response.status, response.json()), (401, {"error": error}))

    def test_elsewhere(self) -> None:
        """Where it does not stand nobody is asked, and nobody is known."""
        self.assertEqual(self.client.get("/open").json(), {"user": None})
        self.assertEqual(self.client.get("/apis").status, 404)

    def test_session(self) -> None:
        """A session remembers who has signed in, until it is destroyed; without it it is 401."""
        app = server.http()
        app.use(session(secret="s", resave=False, saveUninitialized=False))
        app.use(json())

        def login(req: Any, res: Any) -> None:
            req.session.userId = req.body["user"]
            res.json({"ok": True})

        def profile(req: Any, res: Any) -> Any:
            if not req.session.get("userId"):
                return res.status(401).json({"error": "Not authenticated"})
            return res.json({"user": req.session["userId"]})

        async def logout(req: Any, res: Any) -> None:
            await req.session.destroy()
            res.json({"ok": True})

        app.post("/login", login).get("/profile", profile).post("/logout", logout)
        client = Client(app)
        self.assertEqual(client.get("/profile").status, 401)
        client.post("/login", json={"user": "ada"})
        self.assertEqual(client.get("/profile").json(), {"user": "ada"})
        self.assertEqual(Client(app).get("/profile").json(), {"error": "Not authenticated"})
        client.post("/logout")
        self.assertEqual(client.get("/profile").status, 401)


class ErrorTests(SynchronousTestCase):
    """What errors look like."""

    def setUp(self) -> None:
        """Make an application."""
        self.app = server.http()
        self.client = Client(self.app)

    def assertAnswer(self, response: Any, status: int, shape: dict[str, Any]) -> None:
        """Check status and shape of a JSON answer."""
        self.assertEqual((response.status, response.json()), (status, shape))
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")

    def test_unknown(self) -> None:
        """An unknown route is 404 and tells the path and the method, below a mount, too."""
        self.app.use("/api", Router().get("/x", lambda req, res: res.end()))
        for method in ("GET", "POST", "DELETE", "OPTIONS", "PROPFIND"):
            self.assertAnswer(
                self.client.request(method, "/api/a%20b?x=1"),
                404,
                {"error": "Not Found", "path": "/api/a%20b", "method": method},
            )

    def test_starRoute(self) -> None:
        """So has one that is a route for all methods, and all paths."""
        self.app.get("/x", lambda req, res: res.end())
        self.app.all("*", lambda req, res: res.status(404).json({"error": "mine"}))
        self.assertAnswer(self.client.post("/x"), 404, {"error": "mine"})
        self.assertAnswer(self.client.get("/"), 404, {"error": "mine"})

    def test_method(self) -> None:
        """A method that is not registered is 405, with those that are; C{all} is none of them."""
        chain = self.app.route("/x")
        chain.put(lambda req, res: res.end()).get(lambda req, res: res.end())
        self.app.delete("/x", lambda req, res: res.end())
        self.app.post("/:any", lambda req, res, next: next("route"))
        response = self.client.patch("/x")
        self.assertAnswer(response, 405, {"error": "Method Not Allowed"})
        self.assertEqual(response.headers["allow"], "PUT, GET, HEAD, DELETE, POST")
        head = self.client.head("/y")
        self.assertEqual((head.status, head.body, head.headers["allow"]), (405, b"", "POST"))

    def test_allMethods(self) -> None:
        """A route for all methods that goes on changes neither 405 nor OPTIONS."""
        self.app.all("/*", lambda req, res, next: next())
        self.app.route("/x").get(lambda req, res: res.end()).all(lambda req, res, next: next())
        self.app.post("/y", lambda req, res, next: next())
        for method, path, status, allow in [
            ("POST", "/x", 405, "GET, HEAD"),
            ("OPTIONS", "/x", 200, "GET, HEAD"),
            ("GET", "/y", 405, "POST"),
            ("POST", "/y", 404, None),
            ("GET", "/z", 404, None),
            ("OPTIONS", "/z", 404, None),
        ]:
            response = self.client.request(method, path)
            self.assertEqual((response.status, response.headers.get("allow")), (status, allow))

    def test_errorHandler(self) -> None:
        """A handler of errors may answer by C{statusCode}, that of a parser too, else 500."""

        class Missing(Exception):
            statusCode = 404

        def boom(req: Any, res: Any) -> None:
            raise {"/a": Missing("no such user"), "/b": KeyError("b")}[req.path]

        def onError(error: Any, req: Any, res: Any, next: Any) -> None:
            status = getattr(error, "statusCode", None)
            if status:
                res.status(status).json({"error": str(error)})
            else:
                res.status(500).json({"error": "Internal server error"})

        self.app.use(json())
        self.app.get("/a", boom).get("/b", boom)
        self.app.use(onError)
        self.assertAnswer(self.client.get("/a"), 404, {"error": "no such user"})
        self.assertAnswer(self.client.get("/b"), 500, {"error": "Internal server error"})
        headers = {"Content-Type": "application/json"}
        self.assertEqual(self.client.post("/a", body=b"{", headers=headers).status, 400)

    def test_readiness(self) -> None:
        """A readiness check that fails says 503 as it likes."""
        shape = {"status": "not ready", "error": "no database"}
        self.app.get("/ready", lambda req, res: res.status(503).json(shape))
        self.assertAnswer(self.client.get("/ready"), 503, shape)

    def test_anyResult(self) -> None:
        """What a handler gives is of no matter, unless it can be waited for."""
        for result in (5, "x", [1], True, {"a": 1}, object()):

            def handler(req: Any, res: Any, result: object = result) -> object:
                res.send("sent")
                return result

            self.app.get(f"/{id(result)}", handler)
            self.assertEqual(self.client.get(f"/{id(result)}").text, "sent")


class EventTests(SynchronousTestCase):
    """C{finish} and C{close}."""

    def setUp(self) -> None:
        """Make an application that writes down what it is told."""
        self.told: list[Any] = []
        self.app = server.http()
        self.client = Client(self.app)

    def test_finish(self) -> None:
        """C{finish} is told once when the response is sent: how long it took is known then."""

        def measure(req: Any, res: Any, next: Any) -> Any:
            start = self.client.clock.seconds()
            res.on(
                "finish",
                lambda: self.told.append((res.statusCode, self.client.clock.seconds() - start)),
            )
            return next()

        waiting: list[Any] = []
        self.app.use(measure)
        self.app.get("/", lambda req, res: waiting.append(res.status(201)))
        self.client.start("GET", "/")
        self.client.advance(3)
        self.assertEqual(self.told, [])
        waiting[0].json({})
        self.assertEqual(self.told, [(201, 3.0)])
        self.assertEqual(self.client.get("/unknown").status, 404)
        self.assertEqual(self.told[1:], [(404, 0.0)])

    def test_close(self) -> None:
        """C{close} is told to request and response when the client goes away; work can stop."""

        def stream(req: Any, res: Any) -> None:
            req.on("close", lambda: self.told.append("request"))
            res.on("close", lambda: self.told.append("response"))
            res.on("finish", lambda: self.told.append("finish"))
            res.write("data: 1\n\n")

        self.app.get("/", stream)
        call = self.client.start("GET", "/")
        self.assertEqual((call.received, self.told), (b"data: 1\n\n", []))
        call.disconnect()
        self.assertEqual(self.told, ["request", "response"])

    def test_notClosed(self) -> None:
        """A response that went out whole is finished, and nobody went away."""

        def answer(req: Any, res: Any) -> None:
            req.on("close", lambda: self.told.append("close"))
            res.on("finish", lambda: self.told.append("finish")).send("x")

        self.app.get("/", answer)
        self.client.get("/")
        self.assertEqual(self.told, ["finish"])


class OptionTests(SynchronousTestCase):
    """Every option under the name that it has."""

    def test_names(self) -> None:
        """All of them can be given together, and each has its effect."""
        app = server.http().withOptions(
            port=0,
            hostname="127.0.0.1",
            development={"hmr": False, "console": False},
            maxRequestBodySize="1mb",
            keepAlive=True,
            keepAliveTimeout=5000,
            headersTimeout=60000,
            requestTimeout=30000,
            cors={"origin": ["https://a.example"], "methods": ["GET", "POST"], "credentials": True},
            compression={"threshold": 10, "level": 6},
            rateLimit={"windowMs": 60000, "max": 2},
        )
        app.get("/", lambda req, res: res.send("x" * 100))
        client = Client(app)
        headers = {"Origin": "https://a.example", "Accept-Encoding": "gzip"}
        response = client.get("/", headers=headers)
        for name, value in [
            ("access-control-allow-origin", "https://a.example"),
            ("access-control-allow-credentials", "true"),
            ("content-encoding", "gzip"),
            ("x-ratelimit-limit", "2"),
        ]:
            self.assertEqual(response.headers.get(name), value)
        headers["Access-Control-Request-Method"] = "PUT"
        preflight = client.options("/", headers=headers)
        self.assertEqual(preflight.headers["access-control-allow-methods"], "GET,POST")
        self.assertEqual([client.get("/").status for _ in range(2)], [200, 429])

    def test_middleware(self) -> None:
        """What options install can be used as middleware, too, for a prefix."""
        app = server.http()
        app.use("/api", cors(origin="https://a.example"), rateLimit(windowMs=1000, max=1))
        app.get("/*", lambda req, res: res.send("x"))
        client = Client(app)
        self.assertEqual([client.get("/api/x").status for _ in range(2)], [200, 429])
        self.assertIsNone(client.get("/").headers.get("access-control-allow-origin"))
        client.advance(1)
        self.assertEqual(client.get("/api/x").status, 200)


class TableTests(SynchronousTestCase):
    """Standard requests and responses."""

    def test_kinds(self) -> None:
        """A table has handlers, methods and pages; parameters are in C{req.params}."""

        async def later(req: Any) -> Response:
            return Response.json({"name": req.params["name"], "said": await req.json()})

        path = self.mktemp() + ".html"
        with open(path, "w") as page:
            page.write("<p>page</p>")
        app = server.http()
        app.withRoutes(
            {
                "/now": lambda req: Response("now"),
                "/hello/:name": {"POST": later, "GET": lambda req: Response(req.method)},
                "/page": path,
            }
        )
        client = Client(app)
        self.assertEqual(client.delete("/now").text, "now")
        self.assertEqual(client.post("/hello/ada", json=[1]).json(), {"name": "ada", "said": [1]})
        self.assertEqual(client.put("/hello/ada").headers["allow"], "POST, GET, HEAD")
        page = client.get("/page")
        self.assertEqual(
            (page.text, page.headers["content-type"]), ("<p>page</p>", "text/html; charset=utf-8")
        )

    def test_fetch(self) -> None:
        """C{createFetchHandler} takes a request and gives a response, without a listener."""
        app = server.http()
        app.use(json())
        app.post("/x", lambda req, res: res.status(201).json({"got": req.body}))
        Client(app)
        fetch = app.createFetchHandler()
        request = Request(
            "http://x.example/x?y=1",
            method="POST",
            headers={"Content-Type": "application/json"},
            body='{"a": 1}',
        )

        async def ask() -> Any:
            response = await fetch(request)
            return response.status, await response.json()

        result = Deferred.fromCoroutine(ask())
        self.assertEqual(self.successResultOf(result), (201, {"got": {"a": 1}}))
