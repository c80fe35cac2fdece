"""Dependencies of typed handlers: their values, their scopes and their ends."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError
from storagegate.http import (
    Body,
    CallContext,
    Depends,
    Header,
    HTTPRequest,
    HTTPResponse,
    Next,
    Query,
    WebSocket,
)
from storagegate.http.testing import WebSocketRefused
from tests.http.test_typedhandlers import HandlerCase

UPGRADE = {
    "connection": "upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""Fields of a handshake."""


@dataclass
class User:
    """Who calls."""

    name: str


async def currentUser(context: CallContext[User]) -> User:
    """Return the user of a call, by its token."""
    if context.token is None:
        raise ServiceError("UNAUTHENTICATED", "Log in first", 401)
    context.user = User(context.token)
    return context.user


class DependencyCase(HandlerCase):
    """A test with a log of what ran."""

    def setUp(self) -> None:
        """Make the log."""
        super().setUp()
        self.log: list[str] = []

    def connection(self) -> Iterator[str]:
        """Give a connection, which has to be closed."""
        self.log.append("open")
        try:
            yield "connection"
        except Exception as error:
            self.log.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.log.append("closed")

    async def slowConnection(self) -> AsyncIterator[str]:
        """Give one that takes time to open and to close."""
        await deferLater(self.client.clock, 1)
        self.log.append("open")
        try:
            yield "slow"
        finally:
            await deferLater(self.client.clock, 1)
            self.log.append("closed")


class ValueTests(DependencyCase):
    """The values of dependencies."""

    def test_login(self) -> None:
        """A coroutine makes a value from the context of the call, or refuses the request."""

        @self.app.get("/")
        def show(req: HTTPRequest, user: User = Depends(currentUser)) -> User:
            assert req.user is user
            return user

        response = self.client.get("/", headers={"authorization": "Bearer ada"})
        self.assertEqual(response.json(), {"name": "ada"})
        response = self.client.get("/")
        self.assertEqual(response.status, 401)
        self.assertEqual(response.json(), {"error": "UNAUTHENTICATED", "message": "Log in first"})

    def test_kinds(self) -> None:
        """Plain functions, Deferreds, generators, classes, methods; by default or in Annotated."""

        class Paging:
            def __init__(self, page: int = 1, size: Annotated[int, Query(le=50)] = 10) -> None:
                self.start = (page - 1) * size

        def deferred() -> Deferred[int]:
            return deferLater(self.client.clock, 0, int, "5")

        def plain(req: HTTPRequest) -> str:
            return req.path

        @self.app.get("/p")
        def show(
            paging: Annotated[Paging, Depends(Paging)],
            connection: Annotated[str, Depends(self.connection)],
            path: str = Depends(plain),
            number: int = Depends(deferred),
            slow: str = Depends(self.slowConnection),
        ) -> list[Any]:
            return [paging.start, connection, path, number, slow]

        call = self.client.start("GET", "/p?page=3&size=20")
        self.client.flush()
        self.client.advance(1)
        self.assertEqual(call.response.json(), [40, "connection", "/p", 5, "slow"])
        self.client.advance(1)
        self.assertEqual(self.log, ["open", "open", "closed", "closed"])

    def test_cached(self) -> None:
        """A function is called once in a request, however often it is depended on."""
        calls: list[int] = []

        def count() -> int:
            calls.append(1)
            return len(calls)

        async def nested(first: int = Depends(count)) -> int:
            return 10 * first

        @self.app.get("/")
        def show(
            a: int = Depends(nested), b: int = Depends(count), c: Any = Depends(nested)
        ) -> list[int]:
            return [a, b, c]

        self.assertEqual(self.client.get("/").json(), [10, 1, 10])
        self.assertEqual(self.client.get("/").json(), [20, 2, 20])

    def test_awaitableValue(self) -> None:
        """A value that could be awaited itself is passed as it is."""
        pool: Deferred[None] = Deferred()

        async def make() -> Any:
            return pool

        def use(first: Any = Depends(make)) -> bool:
            return first is pool

        @self.app.get("/")
        def show(isSame: bool = Depends(use), again: Any = Depends(make)) -> list[bool]:
            return [isSame, again is pool]

        self.assertEqual(self.client.get("/").json(), [True, True])

    def test_first(self) -> None:
        """Dependencies run before the body is read, and refuse before its mistakes are named."""

        @self.app.post("/")
        def take(name: Annotated[str, Body()], user: User = Depends(currentUser)) -> None:
            raise AssertionError("it was called")

        self.assertEqual(self.client.post("/", body=b"{").status, 401)
        headers = {"authorization": "ada"}
        self.assertEqual(self.client.post("/", json=7, headers=headers).status, 400)

    def test_mistakes(self) -> None:
        """Mistakes of dependencies are named with those of the handler; they are not called."""

        def tenant(xTenant: Annotated[int, Header(ge=1)]) -> int:
            self.log.append("tenant")
            return xTenant

        def database(tenant: int = Depends(tenant), shard: int = 0) -> str:
            self.log.append("database")
            return f"{tenant} {shard}"

        @self.app.get("/")
        def show(page: int, name: str = Depends(database)) -> list[Any]:
            return [page, name]

        response = self.client.get("/?page=x&shard=y", headers={"x-tenant": "0"})
        self.assertEqual(
            self.details(response),
            [
                ("x-tenant", "expected int >= 1"),
                ("shard", "must be an integer"),
                ("page", "must be an integer"),
            ],
        )
        self.assertEqual(self.log, [])
        response = self.client.get("/?page=1&shard=2", headers={"x-tenant": "3"})
        self.assertEqual(response.json(), [1, "3 2"])

    def test_errors(self) -> None:
        """What cannot work is refused at registration."""

        def body(given: Annotated[int, Body()]) -> int:
            return given

        def unknown(thing: Any) -> int:
            return 1

        def shared(page: int) -> int:
            return page

        def sharedOfRequest(one: int = Depends(lambda: 1)) -> int:
            return one

        def cycle(one: int = Depends(lambda: 1)) -> int:
            return one

        cycle.__defaults__ = (Depends(cycle),)

        def handler(dependency: Any) -> Callable[..., None]:
            def handle(value: Any = dependency) -> None: ...

            return handle

        for dependency, text in (
            (Depends(body), "belongs to the body"),
            (Depends(unknown), "thing of .*unknown has no source"),
            (Depends(shared, scope="application"), "page of .* belongs to a request"),
            (Depends(sharedOfRequest, scope="application"), "has the scope of the application"),
            (Depends(cycle), "cycle depends on itself"),
        ):
            found = handler(dependency)
            error = self.assertRaises(DefinitionError, self.app.post, "/", found)
            self.assertRegex(str(error), text)
        self.assertRaises(TypeError, Depends, 7)
        self.assertRaises(ValueError, Depends, currentUser, scope="session")


class EndTests(DependencyCase):
    """The rest of a generator runs when the answer has gone."""

    def test_afterAnswer(self) -> None:
        """Not before the response is complete, in the reverse order."""

        def outer() -> Iterator[str]:
            yield "outer"
            self.log.append("outer closed")

        @self.app.get("/")
        async def stream(
            res: HTTPResponse, a: str = Depends(outer), b: str = Depends(self.connection)
        ) -> None:
            await res.write("first")
            await deferLater(self.client.clock, 1)
            self.log.append("handler")
            res.end("last")

        res: list[Any] = []

        def watch(req: HTTPRequest, response: HTTPResponse, next: Next) -> Any:
            response.on("finish", lambda: self.log.append("finish"))
            return next()

        self.app.get("/watched", watch, stream)
        call = self.client.start("GET", "/watched")
        self.assertEqual(self.log, ["open"])
        self.client.advance(1)
        self.assertEqual(call.response.text, "firstlast")
        self.assertEqual(self.log, ["open", "handler", "finish", "closed", "outer closed"])
        self.assertEqual(res, [])

    def test_plainLater(self) -> None:
        """A plain handler that answers later keeps its dependencies until then."""

        @self.app.get("/")
        def later(res: HTTPResponse, a: str = Depends(self.connection)) -> None:
            self.client.clock.callLater(5, res.json, {"a": a})

        call = self.client.start("GET", "/")
        self.client.advance(4)
        self.assertEqual(self.log, ["open"])
        self.client.advance(1)
        self.assertEqual(call.response.json(), {"a": "connection"})
        self.assertEqual(self.log, ["open", "closed"])

    def test_error(self) -> None:
        """An error of the handler is raised in it, once it is answered."""

        @self.app.get("/now")
        def now(a: str = Depends(self.connection)) -> None:
            raise ServiceError("NOT_FOUND", "no", 404)

        @self.app.get("/later")
        async def later(a: str = Depends(self.connection)) -> None:
            await deferLater(self.client.clock, 0)
            raise ServiceError("NOT_FOUND", "no", 404)

        for path in ("now", "later"):
            self.log.clear()
            self.assertEqual(self.client.get(f"/{path}").status, 404)
            self.assertEqual(self.log, ["open", "ServiceError: NOT_FOUND: no", "closed"])

    def test_mistake(self) -> None:
        """So is the refusal of a request with mistakes, and that of another dependency."""

        def refuse(a: str = Depends(self.connection)) -> None:
            raise ServiceError("PERMISSION_DENIED", "no", 403)

        @self.app.get("/a")
        def mistaken(page: int, a: str = Depends(self.connection)) -> None: ...

        @self.app.get("/b")
        def refused(a: None = Depends(refuse)) -> None: ...

        self.assertEqual(self.client.get("/a").status, 400)
        self.assertEqual(self.client.get("/b").status, 403)
        self.assertEqual([self.log[1][:12], self.log[4][:12]], ["ServiceError"] * 2)
        self.assertEqual(self.log[2::3], ["closed", "closed"])

    def test_lost(self) -> None:
        """A client that leaves: once the handler has ended, which continues."""

        @self.app.get("/")
        async def work(a: str = Depends(self.connection)) -> None:
            await deferLater(self.client.clock, 3)
            self.log.append("handler")

        call = self.client.start("GET", "/")
        call.disconnect()
        self.client.advance(2)
        self.assertEqual(self.log, ["open"])
        self.client.advance(1)
        self.assertEqual(self.log, ["open", "handler", "closed"])

    def test_cancelled(self) -> None:
        """A handler that is cancelled for it ends at once, with the error at the yield."""

        def connection() -> Iterator[str]:
            try:
                yield "x"
            except CancelledError:
                self.log.append("cancelled")
                raise

        @self.app.get("/", cancelOnDisconnect=True)
        async def work(a: str = Depends(connection)) -> None:
            await deferLater(self.client.clock, 3)

        self.client.start("GET", "/").disconnect()
        self.assertEqual(self.log, ["cancelled"])

    def test_failingEnd(self) -> None:
        """An error of the end is logged, and the others still run; the answer has gone."""

        def failing(a: str = Depends(self.connection)) -> Iterator[str]:
            yield "failing"
            raise KeyError("lost")

        def twice() -> Iterator[str]:
            yield "one"
            yield "two"

        def none() -> Iterator[str]:
            yield from ()

        @self.app.get("/a")
        def show(a: str = Depends(failing)) -> list[str]:
            return [a]

        @self.app.get("/b")
        def showTwice(a: str = Depends(twice)) -> list[str]:
            return [a]

        @self.app.get("/c")
        def fail(a: str = Depends(none)) -> None: ...

        self.assertEqual(self.client.get("/a").json(), ["failing"])
        self.assertEqual(self.log, ["open", "KeyError: 'lost'", "closed"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual(self.client.get("/b").json(), ["one"])
        [error] = self.flushLoggedErrors(RuntimeError)
        self.assertIn("yields once", str(error.value))
        self.assertEqual(self.client.get("/c").status, 500)
        [error] = self.flushLoggedErrors(RuntimeError)
        self.assertIn("ended without a yield", str(error.value))

    def test_swallowed(self) -> None:
        """A generator that handles the error ends well, and so do the ones around it."""

        def swallow(a: str = Depends(self.connection)) -> Iterator[str]:
            try:
                yield "x"
            except ServiceError:
                self.log.append("handled")

        @self.app.get("/")
        def fail(a: str = Depends(swallow)) -> None:
            raise ServiceError("NOT_FOUND", "no", 404)

        self.assertEqual(self.client.get("/").status, 404)
        self.assertEqual(self.log, ["open", "handled", "closed"])


class ApplicationTests(DependencyCase):
    """Values of the application, and overrides."""

    def test_once(self) -> None:
        """A value of the application is made once, and ends when the application closes."""

        def pool(name: str = Depends(lambda: "p", scope="application")) -> Iterator[str]:
            self.log.append("made")
            yield name
            self.log.append("ended")

        def connection(pool: str = Depends(pool, scope="application")) -> str:
            return pool + "c"

        @self.app.get("/")
        def show(
            a: str = Depends(connection), b: str = Depends(pool, scope="application")
        ) -> list[str]:
            return [a, b]

        for _ in range(2):
            self.assertEqual(self.client.get("/").json(), ["pc", "p"])
        self.assertEqual(self.log, ["made"])
        self.successResultOf(self.app.close())
        self.assertEqual(self.log, ["made", "ended"])

    def test_concurrent(self) -> None:
        """Requests that need it at once share it; one that leaves does not stop it."""

        async def inner() -> str:
            self.log.append("inner")
            await deferLater(self.client.clock, 1)
            return "inner"

        async def pool(inner: str = Depends(inner, scope="application")) -> str:
            self.log.append("made")
            await deferLater(self.client.clock, 2)
            return "pool"

        @self.app.get("/a", cancelOnDisconnect=True)
        async def show(a: str = Depends(pool, scope="application")) -> list[str]:
            return [a]

        @self.app.get("/b")
        async def other(a: str = Depends(inner, scope="application")) -> list[str]:
            return [a]

        first = self.client.start("GET", "/a")
        second, third = self.client.start("GET", "/a"), self.client.start("GET", "/b")
        first.disconnect()
        self.client.advance(3)
        self.assertEqual(second.response.json(), ["pool"])
        self.assertEqual(third.response.json(), ["inner"])
        self.assertEqual(self.log, ["inner", "made"])

    def test_failed(self) -> None:
        """One that fails is made anew for the next request."""

        async def pool() -> str:
            self.log.append("made")
            await deferLater(self.client.clock, 0)
            if len(self.log) == 1:
                raise ServiceError("UNAVAILABLE", "no", 503)
            return "pool"

        @self.app.get("/")
        def show(a: str = Depends(pool, scope="application")) -> list[str]:
            return [a]

        self.assertEqual(self.client.get("/").status, 503)
        self.assertEqual(len(self.flushLoggedErrors(ServiceError)), 1)
        self.assertEqual(self.client.get("/").json(), ["pool"])

    def test_overrides(self) -> None:
        """A test puts another function in the place of a dependency, and takes it away."""

        def pool() -> str:
            return "pool"

        @self.app.get("/")
        def show(
            user: User = Depends(currentUser), a: str = Depends(pool, scope="application")
        ) -> list[str]:
            return [user.name, a]

        async def other(xName: Annotated[str, Header()] = "eve") -> User:
            return User(xName)

        headers = {"authorization": "ada"}
        self.assertEqual(self.client.get("/", headers=headers).json(), ["ada", "pool"])
        self.app.overrides[currentUser] = other
        self.app.overrides[pool] = lambda: "fake"
        self.assertEqual(self.client.get("/").json(), ["eve", "fake"])
        self.assertEqual(self.client.get("/", headers={"x-name": "bob"}).json(), ["bob", "fake"])
        self.app.overrides.clear()
        self.assertEqual(self.client.get("/", headers=headers).json(), ["ada", "pool"])

    def test_waits(self) -> None:
        """Closing waits for the ends of requests."""

        @self.app.get("/")
        def show(a: str = Depends(self.slowConnection)) -> list[str]:
            return [a]

        call = self.client.start("GET", "/")
        self.client.advance(1)
        self.assertEqual(call.response.json(), ["slow"])
        closing = self.app.close()
        self.assertNoResult(closing)
        self.client.advance(1)
        self.successResultOf(closing)
        self.assertEqual(self.log, ["open", "closed"])


class SocketTests(DependencyCase):
    """Handlers of WebSockets have parameters, too."""

    def test_socket(self) -> None:
        """From the handshake; dependencies end when the handler has ended."""

        @self.app.ws("/rooms/:room")
        async def chat(
            socket: WebSocket,
            room: int,
            name: Annotated[str, Query()] = "-",
            user: User = Depends(currentUser),
            connection: str = Depends(self.connection),
        ) -> None:
            async for message in socket:
                await socket.send(f"{room} {name} {user.name} {message}")  # type: ignore[str-bytes-safe]

        headers = {"authorization": "Bearer ada"}
        socket = self.client.webSocket("/rooms/7?name=x", headers=headers)
        socket.send("hello")
        self.assertEqual(socket.receive(), "7 x ada hello")
        self.assertEqual(self.log, ["open"])
        socket.close()
        self.assertEqual(self.log, ["open", "closed"])

    def test_refused(self) -> None:
        """A dependency or a mistake refuses the handshake with an ordinary response."""

        @self.app.ws("/:room")
        async def chat(
            connection: Annotated[str, Depends(self.connection)],
            socket: WebSocket,
            room: int,
            user: User = Depends(currentUser),
        ) -> None: ...

        error = self.assertRaises(WebSocketRefused, self.client.webSocket, "/7")
        self.assertEqual(error.response.status, 401)
        headers = {"authorization": "ada"}
        error = self.assertRaises(WebSocketRefused, self.client.webSocket, "/x", headers=headers)
        self.assertEqual(self.details(error.response), [("room", "must be an integer")])
        self.assertEqual(self.log.count("closed"), 2)

    def test_failedHandshake(self) -> None:
        """The dependencies of a handshake that fails after they are made end, too."""

        def broken() -> None:
            raise KeyError("boom")

        def hold(req: HTTPRequest, res: HTTPResponse, next: Next) -> None:
            res.beforeHead(broken)
            next()

        async def chat(
            socket: WebSocket, connection: str = Depends(self.slowConnection)
        ) -> None: ...

        self.app.ws("/", hold, chat)
        call = self.client.start("GET", "/", headers=UPGRADE)
        self.client.advance(1)
        self.assertEqual(call.response.status, 500)
        self.client.advance(1)
        self.assertEqual(self.log, ["open", "closed"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_errors(self) -> None:
        """A handler without its WebSocket, or with a body, is refused at registration."""

        async def none(a: int, b: int) -> None: ...
        async def body(socket: WebSocket, given: Annotated[int, Body()]) -> None: ...

        self.assertRaises(DefinitionError, self.app.ws, "/", none)
        self.assertRaises(DefinitionError, self.app.ws, "/", body)
