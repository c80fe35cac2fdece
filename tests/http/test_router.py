"""Routers: registration, mounting, and what they tell about themselves."""

import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import HTTPError, Router
from storagegate.http.testing import Client

METHODS = ("get", "post", "put", "patch", "delete", "options")


def where(req: Any, res: Any) -> None:
    """Answer with where the handler sees itself."""
    res.json([req.baseUrl, req.path, req.originalUrl, req.params])


class RegistrationTests(SynchronousTestCase):
    """The registration methods."""

    def setUp(self) -> None:
        """Make an application."""
        self.app = server.http()
        self.client = Client(self.app)

    def test_methods(self) -> None:
        """Each method of the application and of a router registers for its HTTP method only."""
        router = Router()
        for name in METHODS:
            for target, path in ((self.app, "/a"), (router, "/b")):
                handler = lambda req, res, name=name: res.send(name)  # noqa: E731
                # Every registration gives its application or router, for chaining.
                self.assertIs(getattr(target, name)(path, handler), target)
        self.assertIs(self.app.use(router), self.app)
        for path in ("/a", "/b"):
            for name in METHODS:
                self.assertEqual(self.client.request(name.upper(), path).text, name)

    def test_head(self) -> None:
        """HEAD is answered by GET, unless it has a handler of its own."""
        self.app.get("/a", lambda req, res: res.send("text"))
        self.app.head("/b", lambda req, res: res.header("X-Own", "1").end())
        self.app.get("/b", lambda req, res: res.send("text"))
        first = self.client.head("/a")
        self.assertEqual((first.status, first.body), (200, b""))
        self.assertEqual(first.headers.get("content-length"), "4")
        self.assertEqual(self.client.head("/b").headers.get("x-own"), "1")

    def test_all(self) -> None:
        """C{all} answers every method, the unusual ones too."""
        self.app.all("/", lambda req, res: res.send(req.method))
        for method in ("GET", "DELETE", "PROPFIND", "OPTIONS"):
            self.assertEqual(self.client.request(method, "/").text, method)

    def test_decorators(self) -> None:
        """Without a handler, a registration is a decorator that gives the function back."""

        @self.app.get("/")
        def index(req: Any, res: Any) -> None:
            res.send("index")

        @self.app.use("/sub")
        def sub(req: Any, res: Any, next: Any) -> None:
            res.send("sub")

        @self.app.route("/chain").post()
        def post(req: Any, res: Any) -> None:
            res.send("chained")

        self.assertEqual(index.__name__, "index")
        self.assertEqual(sub.__name__, "sub")
        self.assertEqual(self.client.get("/").text, "index")
        self.assertEqual(self.client.get("/sub/x").text, "sub")
        self.assertEqual(self.client.post("/chain").text, "chained")

    def test_route(self) -> None:
        """A chain registers several methods of one path, which count as one."""
        self.app.route("/x").all(lambda req, res, next: next()).get(
            lambda req, res: res.send("got")
        ).put(lambda req, res: res.send("put"))
        self.assertEqual(self.client.get("/x").text, "got")
        self.assertEqual(self.client.put("/x").text, "put")

    def test_wrong(self) -> None:
        """A registration that cannot work is refused when it is made."""
        for call in [
            lambda: self.app.use(),
            lambda: self.app.get(),
            lambda: self.app.get(where),
            lambda: self.app.get("/", None),
            lambda: self.app.get("/", "handler"),
            lambda: self.app.use("/", 7),
            lambda: self.app.route("/").get(lambda first: None),
        ]:
            self.assertRaises(TypeError, call)
        self.assertEqual(self.app.layers, [layer for layer in self.app.layers if layer.route])

    def test_nothingTwice(self) -> None:
        """Registering after the first request takes effect for the next."""
        self.assertEqual(self.client.get("/late").status, 404)
        self.app.get("/late", lambda req, res: res.end())
        self.assertEqual(self.client.get("/late").status, 200)


class MountTests(SynchronousTestCase):
    """Routers and middleware under a path."""

    def setUp(self) -> None:
        """Make an application."""
        self.app = server.http()
        self.client = Client(self.app)

    def test_where(self) -> None:
        """Below a mount the path is cut and the base tells it; the original URL stays."""
        inner, outer = Router(), Router()
        inner.get("/deep/:id", where)
        outer.use("/inner", inner)
        outer.get("/", where)
        self.app.use("/outer", outer)
        self.app.use("/plain", where)
        self.assertEqual(
            self.client.get("/outer/inner/deep/7?q=1").json(),
            ["/outer/inner", "/deep/7", "/outer/inner/deep/7?q=1", {"id": "7"}],
        )
        for path in ("/outer", "/outer/"):
            self.assertEqual(self.client.get(path).json(), ["/outer", "/", path, {}])
        self.assertEqual(self.client.get("/plain/a/b").json()[:2], ["/plain", "/a/b"])
        self.assertEqual(self.client.get("/plainly").status, 404)

    def test_restored(self) -> None:
        """Behind a mount everything is as it was before."""
        seen: list[Any] = []

        def look(req: Any, res: Any, next: Any) -> Any:
            seen.append((req.baseUrl, req.path, dict(req.params)))
            return next()

        router = Router()
        router.use("/:b", look)
        self.app.use("/:a", look, router, look)
        self.app.use(look)
        self.client.get("/1/2")
        self.assertEqual(
            seen,
            [
                ("/1", "/2", {"a": "1"}),
                ("/1/2", "/", {"b": "2"}),
                ("/1", "/2", {"a": "1"}),
                ("", "/1/2", {}),
            ],
        )

    def test_mergeParams(self) -> None:
        """A router has the parameters of its mount only if it asks for them; its own win."""
        for merge, expected in ((False, {"id": "2"}), (True, {"user": "1", "id": "2"})):
            router = Router(mergeParams=merge)
            router.get("/posts/:id", where)
            self.app.use(f"/users{int(merge)}/:user", router)
            path = f"/users{int(merge)}/1/posts/2"
            self.assertEqual(self.client.get(path).json()[3], expected)
        own = Router(mergeParams=True)
        own.get("/:user", where)
        self.app.use("/own/:user", own)
        self.assertEqual(self.client.get("/own/1/2").json()[3], {"user": "2"})

    def test_caseSensitive(self) -> None:
        """A router takes case for nothing, unless it is told otherwise."""
        for sensitive in (False, True):
            router = Router(caseSensitive=sensitive)
            router.get("/About", where)
            self.app.use(f"/{sensitive}", router)
            self.assertEqual(self.client.get(f"/{sensitive}/About").status, 200)
            status = self.client.get(f"/{sensitive}/about").status
            self.assertEqual(status, 404 if sensitive else 200)

    def test_strict(self) -> None:
        """A router takes one trailing slash for nothing, unless it is told otherwise."""
        for strict in (False, True):
            router = Router(strict=strict)
            router.get("/about", where)
            self.app.use(f"/{strict}", router)
            self.assertEqual(self.client.get(f"/{strict}/about").status, 200)
            status = self.client.get(f"/{strict}/about/").status
            self.assertEqual(status, 404 if strict else 200)
            self.assertEqual(self.client.get(f"/{strict}/about//").status, 404)

    def test_versions(self) -> None:
        """Versions of an interface stand side by side under their prefixes."""
        for version in ("v1", "v2"):
            router = Router()
            router.get("/users", lambda req, res, version=version: res.send(version))
            self.app.use(f"/api/{version}", router)
        self.assertEqual(self.client.get("/api/v1/users").text, "v1")
        self.assertEqual(self.client.get("/api/v2/users").text, "v2")

    def test_application(self) -> None:
        """An application may be mounted in another like a router."""
        other = server.http()
        other.get("/x", where)
        self.app.use("/other", other)
        self.assertEqual(self.client.get("/other/x").json()[0], "/other")

    def test_safeParams(self) -> None:
        """What a handler does to its parameters is gone with the request."""

        def spoil(req: Any, res: Any) -> None:
            before = dict(req.params)
            req.params["spoiled"] = "yes"
            res.json(before)

        self.app.get("/static", spoil)
        self.client.get("/static")
        self.assertEqual(self.client.get("/static").json(), {})


class InformationTests(SynchronousTestCase):
    """What there is, for those who ask."""

    def setUp(self) -> None:
        """Make an application with routes of all kinds."""
        self.app = app = server.http()
        router = Router()
        router.get("/:post?", where)
        router.delete("/:post", self.check, where)
        app.get("/", where)
        app.post("/users/:id", self.check, where)
        app.use("/users/:user/posts", router)
        app.all("/any", where)
        app.get(re.compile(r"^/num/(\d+)$"), where)

    def check(self, req: Any, res: Any, next: Any) -> None:
        """Go on."""

    def test_getRoutes(self) -> None:
        """Every route is listed with its full path, handler, middleware, parameters, pattern."""
        routes = self.app.getRoutes()
        self.assertEqual(
            [(route.method, route.path, route.params) for route in routes],
            [
                ("GET", "/", []),
                ("POST", "/users/:id", ["id"]),
                ("GET", "/users/:user/posts/:post?", ["user", "post"]),
                ("DELETE", "/users/:user/posts/:post", ["user", "post"]),
                ("ALL", "/any", []),
                ("GET", r"^/num/(\d+)$", ["0"]),
            ],
        )
        self.assertEqual((routes[1].handler, routes[1].middleware), (where, [self.check]))
        self.assertTrue(routes[2].regexp.search("/users/1/posts"))
        self.assertFalse(routes[2].regexp.search("/users/1"))

    def test_filtered(self) -> None:
        """The list can be that of one method, in any case."""
        self.assertEqual([each.path for each in self.app.getRoutes("post")], ["/users/:id"])
        self.assertEqual(self.app.getRoutes("PATCH"), [])

    def test_hasRoute(self) -> None:
        """A route is found by a concrete path and by its pattern as registered."""
        for method, path, expected in [
            ("POST", "/users/7", True),
            ("post", "/users/:id", True),
            ("GET", "/users/7", False),
            ("GET", "/users/1/posts", True),
            ("DELETE", "/users/1/posts/2", True),
            ("DELETE", "/users/:user/posts/:post", True),
            ("GET", "/num/12", True),
            ("GET", "/num/x", False),
            ("PATCH", "/any", True),
            ("HEAD", "/", False),
            ("OPTIONS", "/", False),
            ("GET", "/nowhere", False),
        ]:
            self.assertIs(self.app.hasRoute(method, path), expected, (method, path))

    def test_getAllowedMethods(self) -> None:
        """The methods registered for a path are listed once; C{all} is none of them."""
        self.assertEqual(self.app.getAllowedMethods("/users/1/posts/2"), ["GET", "DELETE"])
        self.assertEqual(self.app.getAllowedMethods("/users/:id"), ["POST"])
        self.assertEqual(self.app.getAllowedMethods("/any"), [])
        self.assertEqual(self.app.getAllowedMethods("/nowhere"), [])


class SeveralPathsTests(SynchronousTestCase):
    """A list of paths in place of one."""

    def test_all(self) -> None:
        """Routes, chains, middleware, routers and decorators take one."""
        app = server.http()
        seen: list[str] = []
        router = Router()
        router.get(["/x", "/y/:z"], lambda req, res: res.json(req.params))
        app.use(["/a", "/b/:id"], lambda req, res, next: (seen.append(req.baseUrl), next())[1])
        app.get(["/a", re.compile("^/b/(.*)$")], lambda req, res: res.send(req.path))
        app.route(["/c", "/d"]).put(lambda req, res: res.send("put"))
        app.use(("/r", "/s"), router)

        @app.get(["/e", "/f"])
        def decorated(req: Any, res: Any) -> None:
            res.send("decorated")

        @app.use(["/g", "/h"])
        def mounted(req: Any, res: Any) -> None:
            res.send("mounted")

        client = Client(app)
        texts = [client.get(path).text for path in ("/a", "/b/1", "/e", "/f", "/g/1", "/h/2")]
        self.assertEqual(texts, ["/a", "/b/1", "decorated", "decorated", "mounted", "mounted"])
        self.assertEqual(seen, ["/a", "/b/1"])
        self.assertEqual([client.put(path).text for path in ("/c", "/d")], ["put"] * 2)
        self.assertEqual(client.get("/s/y/3").json(), {"z": "3"})
        self.assertEqual([info.path for info in app.getRoutes("PUT")], ["/c", "/d"])
        self.assertEqual(client.get("/c").headers["allow"], "PUT")

    def test_once(self) -> None:
        """A handler is called once also where several of its paths match."""
        app = server.http()
        seen: list[str] = []
        app.use(["/", "/a", "/:b"], lambda req, res, next: (seen.append("mw"), next())[1])
        app.get(["/a", "/:b"], lambda req, res, next: (seen.append("get"), next())[1])
        self.assertEqual(Client(app).get("/a").status, 404)
        self.assertEqual(seen, ["mw", "get"])

    def test_refused(self) -> None:
        """An empty list is no path, and one of paths and handlers neither."""
        app = server.http()
        self.assertRaises(ValueError, app.route, [])
        self.assertRaises(TypeError, app.get, ["/a", 7], lambda req, res: None)
        self.assertRaises(TypeError, app.use, ["/a", lambda req, res: None])


class ParamTests(SynchronousTestCase):
    """Handlers of parameters."""

    def setUp(self) -> None:
        """Make an application whose parameter C{id} is looked up, and one of errors."""
        self.app = server.http()
        self.client = Client(self.app)
        self.seen: list[Any] = []

        @self.app.param("id")
        async def find(req: Any, res: Any, next: Any, value: str) -> None:
            self.seen.append(value)
            if value == "9":
                raise HTTPError(404, "There is no such user")
            req.user = {"id": value}
            await next()

    def show(self, req: Any, res: Any) -> Any:
        """Respond with the user."""
        return req.user

    def test_route(self) -> None:
        """It runs before the route's own handlers, once for a value, and may fail."""
        self.app.use("/:id", lambda req, res, next: next())
        self.app.get("/:id", self.show)
        self.assertEqual(self.client.get("/7").json(), {"id": "7"})
        self.assertEqual(self.seen, ["7"])
        self.assertEqual(self.client.get("/9").status, 404)
        self.assertEqual(self.client.get("/").status, 404)

    def test_values(self) -> None:
        """It runs again for another value, and not for a path without the parameter."""
        self.app.get("/users/:id?", lambda req, res, next: next())
        self.app.get("/:other/:id", self.show)
        self.app.get("/:id/*", lambda req, res: res.json("other"))
        self.assertEqual(self.client.get("/users/7").json(), {"id": "7"})
        self.assertEqual(self.client.get("/users").status, 404)
        self.assertEqual(self.client.get("/a/b/c").json(), "other")
        self.assertEqual(self.seen, ["7", "a"])

    def test_mounted(self) -> None:
        """It runs for the path that a router is mounted at, and not for those in it."""
        router = Router()
        router.get("/", self.show)
        router.get("/:id", lambda req, res: res.json([req.user, req.params["id"], req.baseUrl]))
        self.app.use("/users/:id", router)
        self.assertEqual(self.client.get("/users/7").json(), {"id": "7"})
        self.assertEqual(self.client.get("/users/7/8").json(), [{"id": "7"}, "8", "/users/7"])
        self.assertEqual(self.client.get("/users/7/8/9").status, 404)
        self.assertEqual(self.seen, ["7"] * 3)

    def test_several(self) -> None:
        """Several run in the order of their registration; C{next("route")} leaves the route."""
        self.app.param("id", lambda req, res, next, value, name: self.seen.append(name) or next())
        self.app.param("page", lambda req, res, next, value: next("route"))
        self.app.get("/:id/:page", self.show)
        self.app.get("/:id/*", lambda req, res: res.json("next"))
        self.assertEqual(self.client.get("/7/8").json(), "next")
        self.assertEqual(self.seen, ["7", "id"])

    def test_refused(self) -> None:
        """What is no such handler, or no name, is refused when it is registered."""
        self.assertRaises(TypeError, self.app.param, "id", lambda req, res: None)
        self.assertRaises(ValueError, self.app.param, ":id", lambda req, res, next, value: None)
