"""Typed handlers: parameters by name and type, and results of the declared type."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import msgspec
from pydantic import BaseModel
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.definitions import DefinitionError
from storagegate.http import (
    Application,
    Body,
    CallContext,
    Cookie,
    Depends,
    File,
    Form,
    Header,
    HTTPRequest,
    HTTPResponse,
    Next,
    Path,
    Query,
    Response,
    Router,
    Session,
    UploadedFile,
    json,
    session,
    upload,
    urlencoded,
)
from storagegate.http.testing import Client


@dataclass
class Order:
    """What is ordered."""

    customer: str
    count: int = 1


class Invoice(msgspec.Struct):
    """The answer to an order."""

    id: int
    text: str


class PaidInvoice(Invoice):
    """An invoice with a secret."""

    card: str = "4111"


class Size(enum.IntEnum):
    """Numbers with names."""

    small = 1
    large = 2


class Color(enum.Enum):
    """Texts with names."""

    red = "red"


class Paging(BaseModel):
    """A model of pydantic."""

    page: int = 1
    tags: list[str] = []


class HandlerCase(SynchronousTestCase):
    """A test with an application and its client."""

    def setUp(self) -> None:
        """Make both."""
        self.app = server.http()
        self.client = Client(self.app)

    def details(self, response: Any) -> list[tuple[str, str]]:
        """Return the mistakes that a response names."""
        self.assertEqual(response.status, 400, response.text)
        body = response.json()
        self.assertEqual(body["error"], "VALIDATION_ERROR")
        self.assertEqual(
            body["message"], "; ".join(f"{e['path']} {e['message']}" for e in body["details"])
        )
        return [(each["path"], each["message"]) for each in body["details"]]


class SourceTests(HandlerCase):
    """Where values come from."""

    def test_pathQueryBody(self) -> None:
        """A parameter of the path, one of the query and a body; the result is JSON."""

        @self.app.post("/orders/:id")
        async def make(id: int, body: Order, page: Annotated[int, Query(ge=1)] = 1) -> Invoice:
            return Invoice(id, f"{body.customer} {body.count} {page}")

        response = self.client.post("/orders/7", json={"customer": "ada", "count": 2})
        self.assertEqual(response.json(), {"id": 7, "text": "ada 2 1"})
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")
        response = self.client.post("/orders/7?page=3", json={"customer": "ada"})
        self.assertEqual(response.json()["text"], "ada 1 3")

    def test_types(self) -> None:
        """Texts of the query become values of the declared types."""
        seen: list[Any] = []

        @self.app.get("/")
        def see(
            flag: bool,
            ratio: float,
            price: Decimal,
            id: UUID,
            at: datetime,
            day: date,
            size: Size,
            color: Color,
            order: Literal["up", "down"],
            several: list[int],
            either: int | str,
            absent: int | None,
            tags: set[str] = frozenset(),  # type: ignore[assignment]
        ) -> None:
            seen.extend([flag, ratio, price, id, at, day, size, color, order])
            seen.extend([several, either, absent, tags])

        uuid = "00000000-0000-0000-0000-000000000007"
        response = self.client.get(
            f"/?flag=TRUE&ratio=1.5&price=2.50&id={uuid}&at=2026-01-02T03:04:05Z&day=2026-01-02"
            "&size=2&color=red&order=up&several=1&several=2&either=x&tags=a"
        )
        self.assertEqual(response.status, 204, response.text)
        moment = datetime(2026, 1, 2, 3, 4, 5, 0, UTC)
        self.assertEqual(seen[:5], [True, 1.5, Decimal("2.50"), UUID(uuid), moment])
        self.assertEqual(seen[5:9], [date(2026, 1, 2), Size.large, Color.red, "up"])
        self.assertEqual(seen[9:], [[1, 2], "x", None, {"a"}])

    def test_strictTexts(self) -> None:
        """A text that is no number of JSON is refused, as for typed routes."""

        @self.app.get("/")
        def see(
            number: int = 0, ratio: float = 0, flag: bool = False, at: date | None = None
        ) -> None:
            raise AssertionError("it was called")

        for query, message in (
            ("number=%2B1", "must be an integer"),
            ("number=1_0", "must be an integer"),
            ("number=%201", "must be an integer"),
            ("number=01", "must be an integer"),
            ("number=", "must be an integer"),
            ("number=1&number=2", "expected int, got array"),
            ("ratio=nan", "must be a number"),
            ("ratio=inf", "must be a number"),
            ("flag=yes", "must be true, false, 1 or 0"),
            ("at=1700000000", "invalid RFC3339 encoded date"),
        ):
            [(path, found)] = self.details(self.client.get(f"/?{query}"))
            self.assertEqual((path, found), (query.partition("=")[0], message))

    def test_markers(self) -> None:
        """Header fields, cookies and other names."""

        @self.app.get("/:order-:id")
        def see(
            order: str,
            number: Annotated[int, Path("id")],
            userAgent: Annotated[str, Header()],
            kinds: Annotated[list[str], Header("x-kinds")],
            theme: Annotated[str, Cookie(min_length=2)],
            size: Annotated[int, Query("page-size", le=50)] = 10,
            none: Annotated[str | None, Header()] = None,
        ) -> list[Any]:
            return [order, number, userAgent, kinds, theme, size, none]

        fields = {"user-agent": "test", "x-kinds": "a, b,c", "cookie": "theme=dark"}
        response = self.client.get("/x-7?page-size=20", headers=fields)
        self.assertEqual(response.json(), ["x", 7, "test", ["a", "b", "c"], "dark", 20, None])
        self.assertEqual(
            self.details(self.client.get("/x-7?page-size=51", cookies={"theme": "d"})),
            [
                ("user-agent", "is required"),
                ("x-kinds", "is required"),
                ("theme", "expected str of length >= 2"),
                ("page-size", "expected int <= 50"),
            ],
        )

    def test_signedCookie(self) -> None:
        """A cookie that has to be signed is absent without its signature."""
        self.app.withOptions(cookieSecret="secret")

        @self.app.get("/")
        def see(user: Annotated[str, Cookie(signed=True)] = "none") -> list[str]:
            return [user]

        self.app.get("/set", lambda req, res: res.cookie("user", "ada", signed=True).end())
        self.assertEqual(self.client.get("/", cookies={"user": "eve"}).json(), ["none"])
        self.client.get("/set")
        self.assertEqual(self.client.get("/").json(), ["ada"])

    def test_framework(self) -> None:
        """The request, the response, the context and the session are found by their types."""
        self.app.use(session(secret="s"))

        @self.app.get("/:id")
        def see(
            res: HTTPResponse, id: int, req: HTTPRequest, kept: Session, context: CallContext
        ) -> None:
            kept["seen"] = id
            res.status(202).json([req.path, id, context.token, context.client.address])

        response = self.client.get("/7", headers={"authorization": "Bearer abc"})
        self.assertEqual(response.status, 202)
        self.assertEqual(response.json(), ["/7", 7, "abc", "127.0.0.1"])
        self.assertIn("connect.sid", list(self.client.cookies))

    def test_models(self) -> None:
        """A model has all parameters of the query, of the path or of a form."""

        @attrs.frozen
        class Place:
            x: int
            y: int

        @self.app.post("/:x/:y")
        def see(
            paging: Annotated[Paging, Query()],
            place: Annotated[Place, Path()],
            order: Annotated[Order, Form()],
        ) -> list[Any]:
            return [paging.page, paging.tags, place.x, place.y, order.customer, order.count]

        form = {"customer": "ada", "count": 3}
        response = self.client.post("/1/2?page=2&tags=a", form=form)
        self.assertEqual(response.json(), [2, ["a"], 1, 2, "ada", 3])
        response = self.client.post("/1/z?page=q", form={"count": "x"})
        paths = [path for path, _ in self.details(response)]
        self.assertEqual(paths, ["page", "y", "count"])

    def test_keywordOnly(self) -> None:
        """A parameter after the star is passed by name, and defaults stay."""

        @self.app.get("/")
        def see(a: int, *, b: int = 5, c: int) -> list[int]:
            return [a, b, c]

        self.assertEqual(self.client.get("/?c=3&a=1").json(), [1, 5, 3])

    def test_pathText(self) -> None:
        """A parameter of the path needs no annotation, and may be optional."""

        @self.app.get("/:a/:b?")
        def see(a, b=None):  # type: ignore[no-untyped-def]
            return {"a": a, "b": b}

        self.assertEqual(self.client.get("/x").json(), {"a": "x", "b": None})
        self.assertEqual(self.client.get("/x/y").json(), {"a": "x", "b": "y"})

    def test_callables(self) -> None:
        """Methods, partial functions and callable objects are typed handlers as functions are."""

        class Pens:
            def show(self, id: int) -> list[int]:
                return [id]

            def __call__(self, id: int) -> list[int]:
                return [id + 1]

        def add(more: int, id: int) -> list[int]:
            return [id + more]

        handlers: list[Callable[..., Any]] = [Pens().show, Pens(), partial(add, 5)]
        for position, each in enumerate(handlers):
            self.app.get(f"/{position}/:id", each)
        found = [self.client.get(f"/{position}/7").json() for position in range(3)]
        self.assertEqual(found, [[7], [8], [12]])


class BodyTests(HandlerCase):
    """Bodies: JSON, forms and files."""

    def test_absent(self) -> None:
        """Without a body its required members are missing; a default stands for it."""

        @self.app.post("/a")
        def required(order: Order) -> None:
            raise AssertionError("it was called")

        @self.app.post("/b")
        def optional(order: Order | None = None) -> list[bool]:
            return [order is None]

        self.assertEqual(self.details(self.client.post("/a")), [("customer", "is required")])
        self.assertEqual(self.client.post("/b").json(), [True])
        self.assertEqual(self.client.post("/b", json={"customer": "a"}).json(), [False])

    def test_mediaType(self) -> None:
        """Another type of body is 415."""

        @self.app.post("/json")
        def takeJSON(order: Order) -> None:
            raise AssertionError("it was called")

        @self.app.post("/form")
        def takeForm(customer: Annotated[str, Form()]) -> None:
            raise AssertionError("it was called")

        for path, kind in (("/json", "application/xml"), ("/form", "application/json")):
            response = self.client.post(path, body=b"{}", headers={"content-type": kind})
            self.assertEqual(response.status, 415, path)
            self.assertEqual(response.json()["error"], "UNSUPPORTED_MEDIA_TYPE")

    def test_members(self) -> None:
        """Two bodies, or one with a name, are members of an object."""

        @self.app.post("/two")
        def two(order: Order, note: Annotated[str, Body(max_length=3)] = "-") -> list[str]:
            return [order.customer, note]

        @self.app.post("/one")
        def one(counts: Annotated[list[int], Body("n")]) -> int:
            return sum(counts)

        answer = self.client.post("/two", json={"order": {"customer": "ada"}, "note": "hi"})
        self.assertEqual(answer.json(), ["ada", "hi"])
        answer = self.client.post("/two", json={"order": {"count": "x"}, "note": "long"})
        self.assertEqual(
            self.details(answer),
            [
                ("order.customer", "is required"),
                ("order.count", "expected int, got str"),
                ("note", "expected str of length <= 3"),
            ],
        )
        self.assertEqual(self.client.post("/one", json={"n": [1, 2]}).json(), 3)
        self.assertEqual(
            self.details(self.client.post("/one", json={"n": [1, "x"]})),
            [("n[1]", "expected int, got str")],
        )
        answer = self.client.post("/one", json=[])
        self.assertEqual(answer.json()["details"], [{"path": "", "message": "must be an object"}])

    def test_any(self) -> None:
        """A marker lets any type be the body."""

        @self.app.post("/")
        def take(given: Annotated[dict[str, Any], Body()]) -> list[str]:
            return sorted(given)

        self.assertEqual(self.client.post("/", json={"b": 1, "a": 2}).json(), ["a", "b"])

    def test_parsedBefore(self) -> None:
        """The parser of an earlier middleware keeps its limits, and its kind of body."""

        def take(order: Order) -> list[Any]:
            return [order.customer, order.count]

        self.app.post("/form", urlencoded(), take).post("/small", json(limit=10), take)
        self.assertEqual(
            self.client.post("/form", form={"customer": "a", "count": 2}).json(), ["a", 2]
        )
        self.assertEqual(self.client.post("/small", json={"customer": "ada"}).status, 413)

    def test_streamed(self) -> None:
        """A body that arrives later is awaited, by a plain function as well."""

        @self.app.post("/")
        def take(order: Order) -> list[str]:
            return [order.customer]

        async def pieces() -> Any:
            yield b'{"cust'
            yield b'omer": "ada"}'

        headers = {"content-type": "application/json"}
        response = self.client.post("/", body=pieces(), headers=headers)
        self.assertEqual(response.json(), ["ada"])

    def test_files(self) -> None:
        """Files and fields of a form; a list takes all files of its field."""

        @self.app.post("/")
        async def take(
            title: Annotated[str, Form()],
            picture: UploadedFile,
            others: list[UploadedFile] = [],  # noqa: B006
            last: Annotated[UploadedFile | None, File("end")] = None,
        ) -> list[Any]:
            names = [each.originalname for each in others]
            return [title, picture.size, names, last is None]

        files: Any = {"picture": ("a.png", b"123"), "others": [("b", b""), ("c", b"")]}
        response = self.client.post("/", form={"title": "t"}, files=files)
        self.assertEqual(response.json(), ["t", 3, ["b", "c"], True])
        response = self.client.post("/", files={"end": b"1"})
        self.assertEqual(
            self.details(response), [("title", "is required"), ("picture", "is required")]
        )
        response = self.client.post("/", files={**files, "picture": [b"1", b"2"]})
        self.assertEqual(response.status, 400)
        self.assertIn("not expected", response.json()["error"])

    def test_uploadBefore(self) -> None:
        """The middleware C{upload} decides where files are kept."""
        folder = self.mktemp()

        def take(picture: UploadedFile) -> list[bool]:
            return [picture.path.startswith(folder)]

        made = upload(folder)
        for path, each in (
            ("/a", made.single("picture")),
            ("/b", made.array("picture")),
            ("/c", made.fields([{"name": "picture"}])),
            ("/d", made.any()),
        ):
            self.app.post(path, each, take)
            self.assertEqual(self.client.post(path, files={"picture": b"1"}).json(), [True], path)


class MistakeTests(HandlerCase):
    """All mistakes of a request are one answer."""

    def test_together(self) -> None:
        """Those of the path, the query, a header field and the body, in the order of parameters."""

        @dataclass
        class Deep:
            orders: list[Order]

        @self.app.post("/:id")
        def see(id: int, body: Deep, page: int, xKey: Annotated[str, Header()]) -> None:
            raise AssertionError("it was called")

        orders = [{"customer": 1, "count": "x"}, {"customer": "a"}, {}]
        self.assertEqual(
            self.details(self.client.post("/x?page=y", json={"orders": orders})),
            [
                ("id", "must be an integer"),
                ("orders[0].customer", "expected str, got int"),
                ("orders[0].count", "expected int, got str"),
                ("orders[2].customer", "is required"),
                ("page", "must be an integer"),
                ("x-key", "is required"),
            ],
        )

    def test_bounded(self) -> None:
        """No more than twenty are named."""

        @self.app.post("/")
        def see(numbers: Annotated[list[int], Body()]) -> None:
            raise AssertionError("it was called")

        found = self.details(self.client.post("/", json=["x"] * 1000))
        self.assertEqual(len(found), 20)
        self.assertEqual(found[-1], ("[19]", "expected int, got str"))

    def test_pydantic(self) -> None:
        """pydantic's mistakes are all there, too."""

        @self.app.post("/")
        def see(paging: Paging) -> None:
            raise AssertionError("it was called")

        found = self.details(self.client.post("/", json={"page": "x", "tags": [1]}))
        self.assertEqual([path for path, _ in found], ["page", "tags[0]"])


class ResultTests(HandlerCase):
    """What leaves is what the annotation says."""

    def test_filtered(self) -> None:
        """Fields of a subclass, of a dictionary and of a list's items do not leave."""
        self.app.get("/a", self.handler(PaidInvoice(1, "x"), Invoice))
        self.app.get("/b", self.handler({"id": 1, "text": "x", "card": "4"}, Invoice))
        self.app.get("/c", self.handler([PaidInvoice(1, "x")], list[Invoice]))
        self.app.get("/d", self.handler(PaidInvoice(1, "x"), Invoice | None))
        self.app.get("/e", self.handler(PaidInvoice(1, "x"), Deferred[Invoice]))
        for path in "abcde":
            response = self.client.get(f"/{path}")
            found = response.json()
            self.assertEqual(found[0] if path == "c" else found, {"id": 1, "text": "x"}, path)

    def handler(self, result: Any, declared: Any) -> Callable[..., Any]:
        """Make a typed handler with a result and its annotation."""

        def handle() -> Any:
            return result

        handle.__annotations__["return"] = declared
        return handle

    def test_misfit(self) -> None:
        """A result that does not fit is an error of the handler, and not shown to the client."""
        self.app.get("/", self.handler({"id": "secret"}, Invoice))
        response = self.client.get("/")
        self.assertEqual(
            (response.status, response.json()), (500, {"error": "Internal Server Error"})
        )
        [error] = self.flushLoggedErrors(ValueError)
        self.assertIn("the result of GET / does not fit", str(error.value))
        self.assertNotIn("secret", str(error.value))

    def test_none(self) -> None:
        """None is 204 if nothing else is declared, null if it is one of the values."""
        self.app.get("/a", self.handler(None, None))
        self.app.get("/b", self.handler(None, Invoice | None))
        self.app.get("/c", self.handler(None, Invoice))
        self.assertEqual(self.client.get("/a").status, 204)
        response = self.client.get("/b")
        self.assertEqual((response.status, response.text), (200, "null"))
        self.assertEqual(self.client.get("/c").status, 500)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_unshaped(self) -> None:
        """Text, bytes, responses and values of any type are results as those of other handlers."""
        self.app.get("/a", self.handler("text", str))
        self.app.get("/b", self.handler(b"bytes", bytes))
        self.app.get("/c", self.handler(Response("made", status=201), Response))
        self.app.get("/d", self.handler(Response("made", status=201), Response | Invoice))
        self.app.get("/e", self.handler(PaidInvoice(1, "x"), Response | Invoice))
        self.app.get("/f", self.handler(PaidInvoice(1, "x"), Any))
        self.assertEqual(self.client.get("/a").headers["content-type"], "text/html; charset=utf-8")
        self.assertEqual(self.client.get("/b").body, b"bytes")
        for path in "cd":
            response = self.client.get(f"/{path}")
            self.assertEqual((response.status, response.text), (201, "made"))
        self.assertEqual(self.client.get("/e").json(), {"id": 1, "text": "x"})
        self.assertEqual(self.client.get("/f").json()["card"], "4111")

    def test_own(self) -> None:
        """A handler with the response may send it itself, or set its status."""

        @self.app.get("/a")
        def send(res: HTTPResponse) -> Invoice | None:
            res.status(202).json({"own": True})
            return None

        @self.app.get("/b")
        def status(res: HTTPResponse) -> Invoice:
            res.status(201)
            return Invoice(1, "x")

        self.assertEqual(self.client.get("/a").json(), {"own": True})
        self.assertEqual(self.client.get("/b").status, 201)

    def test_keyword(self) -> None:
        """The keyword C{response} goes before the annotation."""

        @self.app.get("/", response=Invoice)
        def get() -> Any:
            return PaidInvoice(1, "x")

        self.assertEqual(self.client.get("/").json(), {"id": 1, "text": "x"})

    def test_later(self) -> None:
        """A coroutine that waits is answered when it ends, a Deferred as well."""

        @self.app.get("/a")
        async def wait(seconds: int) -> Invoice:
            await deferLater(self.client.clock, seconds)
            return Invoice(seconds, "x")

        @self.app.get("/b")
        def defer(seconds: int) -> Deferred[Invoice]:
            return deferLater(self.client.clock, seconds, PaidInvoice, seconds, "x")

        for path in "ab":
            call = self.client.start("GET", f"/{path}?seconds=3")
            self.client.advance(3)
            self.assertEqual(call.response.json(), {"id": 3, "text": "x"})


class RuleTests(HandlerCase):
    """Which functions are typed handlers."""

    def kind(self, function: Callable[..., Any], path: str = "/") -> str:
        """Return the kind of handler that a function becomes."""
        app = server.http()
        app.get(path, function)
        [info] = app.getRoutes()
        self.assertIs(info.handler, function)
        return "classical" if info.types is None else "typed"

    def test_classical(self) -> None:
        """A function that could always be called as (req, res, next) still is."""

        def plain(req, res): ...  # type: ignore[no-untyped-def]
        def withNext(a, b, next=None): ...  # type: ignore[no-untyped-def]
        def annotated(req: HTTPRequest, res: HTTPResponse, next: Next) -> Any: ...
        def text(req: "HTTPRequest", res: "HTTPResponse") -> "list[Invoice]": ...  # type: ignore[empty-body]
        def foreign(req: Application, res: "Undefined") -> None: ...  # type: ignore[name-defined] # noqa: F821
        def bound(
            req: HTTPRequest, res: HTTPResponse, id: int = 5, order: Order | None = None
        ) -> None: ...
        def star(*arguments: Any) -> None: ...
        def mapping(req: Any, res: dict) -> None: ...  # type: ignore[type-arg]

        for each in (plain, withNext, annotated, text, foreign, bound, star, mapping):
            self.assertEqual(self.kind(each), "classical", each)

    def test_bound(self) -> None:
        """A default that binds a value of a loop keeps it, whatever its annotation."""
        for number in (1, 2):

            def show(req: HTTPRequest, res: HTTPResponse, number: int = number) -> None:
                res.json(number)

            self.app.get(f"/{number}", show)
        self.assertEqual(self.client.get("/1?number=7").json(), 1)

    def test_typed(self) -> None:
        """Other functions are typed: by their number of parameters, a marker, or a type of data."""

        def nothing() -> None: ...
        def one(page: int = 1) -> None: ...
        def two(a: int, b: str) -> None: ...
        def data(req: HTTPRequest, order: list[int]) -> None: ...
        def swapped(res: HTTPResponse, req: HTTPRequest) -> None: ...
        def single(req: HTTPRequest) -> None: ...
        def marked(req: HTTPRequest, res: HTTPResponse, a: Annotated[int, Query()] = 1) -> None: ...
        def depends(req: HTTPRequest, res: HTTPResponse, a: int = Depends(lambda: 1)) -> None: ...
        def kept(req: HTTPRequest, kept: Session) -> None: ...

        for each in (nothing, one, two, data, swapped, single, marked, depends, kept):
            self.assertEqual(self.kind(each), "typed", each)

    def test_errors(self) -> None:
        """A parameter without a source is an error that says what to write."""

        def ambiguous(req, res, order: Order): ...  # type: ignore[no-untyped-def]
        def unknown(thing: Application) -> None: ...
        def bodyOfGet(order: Order) -> None: ...
        def undefined(order: "Undefined", a: int) -> None: ...  # type: ignore[name-defined] # noqa: F821
        def asDefault(page: int = Query()) -> None: ...  # type: ignore[assignment]
        def asClass(page: Annotated[int, Query]) -> None: ...
        def twice(page: Annotated[int, Query(), Header()]) -> None: ...
        def inside(page: Annotated[int, Query()] | None = None) -> None: ...
        def noPath(page: Annotated[int, Path()]) -> None: ...
        def noFile(page: Annotated[int, File()]) -> None: ...
        def noResult() -> Application: ...  # type: ignore[empty-body]

        for function, text in (
            (ambiguous, "req of .*ambiguous has no source: annotate it as HTTPRequest"),
            (unknown, "thing of .*unknown has no source"),
            (bodyOfGet, r"order of .* a GET request does not have: write Annotated\[..., Query"),
            (undefined, "order of .* has an annotation that is not defined: .*Undefined"),
            (asDefault, r"page of .*asDefault has a marker as its default: write Annotated"),
            (asClass, r"has a class as its marker: call it, as in Query\(\)"),
            (twice, "has more than one marker"),
            (inside, "has its marker inside of a union"),
            (noPath, "page of .*noPath is no parameter of the path /"),
            (noFile, "page of .* is a file: its type is UploadedFile"),
            (noResult, "result of GET /.*has no schema"),
        ):
            error = self.assertRaises(DefinitionError, self.app.get, "/", function)
            self.assertRegex(str(error), text)
        for function in (lambda a: None, lambda a, b, c, d, e: None):
            error = self.assertRaises(TypeError, self.app.get, "/", function)
            self.assertRegex(str(error), "takes neither .*has no source")
        self.assertEqual(self.app.getRoutes(), [])

    def test_bodyAndForm(self) -> None:
        """JSON and a form, or a keyword and a parameter, are two ways for one thing."""

        def both(order: Order, title: Annotated[str, Form()]) -> None: ...
        def typed(order: Order) -> None: ...

        error = self.assertRaises(DefinitionError, self.app.post, "/", both)
        self.assertIn("takes a JSON body and a form", str(error))
        error = self.assertRaises(DefinitionError, partial(self.app.post, body=Order), "/", typed)
        self.assertIn("use one", str(error))

    def test_generators(self) -> None:
        """A generator would not run, typed or not."""

        async def stream(page: int) -> Any:
            yield page

        error = self.assertRaises(TypeError, self.app.get, "/", stream)
        self.assertIn("is a generator", str(error))

    def test_onlyLast(self) -> None:
        """Middleware is no typed handler, and the handlers before the last one are not."""

        def typed(page: int) -> None: ...

        self.assertRaises(TypeError, self.app.use, typed)
        self.assertRaises(TypeError, self.app.get, "/", typed, lambda req, res: None)


class PlaceTests(HandlerCase):
    """Where typed handlers work."""

    def test_routers(self) -> None:
        """On routers in routers, in chains, and after middleware."""
        outer, inner = Router(), Router(mergeParams=True)

        def count(req: HTTPRequest, res: HTTPResponse, next: Next) -> Any:
            res.header("X-Seen", "1")
            return next()

        def show(user: Annotated[int, Path()], post: int, page: int = 1) -> list[int]:
            return [user, post, page]

        inner.route("/posts/:post").get(count, show)
        outer.use("/:user", inner)
        self.app.use("/users", outer)
        response = self.client.get("/users/7/posts/9?page=2")
        self.assertEqual((response.json(), response.headers["x-seen"]), ([7, 9, 2], "1"))

    def test_refusedBefore(self) -> None:
        """Middleware refuses before anything is read."""

        def refuse(req: HTTPRequest, res: HTTPResponse, next: Next) -> Any:
            return res.status(401).json({})

        def take(order: Order) -> None: ...

        self.app.post("/", refuse, take)
        self.assertEqual(self.client.post("/", body=b"x").status, 401)

    def test_head(self) -> None:
        """HEAD is answered as for any route."""

        @self.app.get("/")
        def show() -> list[int]:
            return [1]

        response = self.client.head("/")
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertEqual(response.headers["content-length"], "3")

    def test_openapi(self) -> None:
        """One writer describes the parameters, the body, the response and the errors."""

        async def currentUser(xKey: Annotated[str, Header(description="The key.")]) -> str:
            return xKey

        @self.app.post("/orders/:id")
        def make(
            id: int,
            body: Order,
            page: Annotated[int, Query(ge=1)] = 1,
            theme: Annotated[str | None, Cookie()] = None,
            user: str = Depends(currentUser),
        ) -> Invoice:
            """Make an order."""
            raise AssertionError("it was called")

        @self.app.post("/files")
        def take(title: Annotated[str, Form()], file: UploadedFile) -> None: ...

        document = self.app.openapi()
        found = document["paths"]["/orders/{id}"]["post"]
        self.assertEqual(found["summary"], "Make an order.")
        self.assertEqual(
            [(e["name"], e["in"], e["required"], e["schema"]) for e in found["parameters"]],
            [
                ("id", "path", True, {"type": "integer"}),
                ("page", "query", False, {"type": "integer", "minimum": 1, "default": 1}),
                ("theme", "cookie", False, {"type": "string"}),
                ("x-key", "header", True, {"type": "string", "description": "The key."}),
            ],
        )
        content = found["requestBody"]["content"]["application/json"]
        self.assertEqual(content["schema"], {"$ref": "#/components/schemas/Order"})
        answer = found["responses"]["2XX"]["content"]["application/json"]["schema"]
        self.assertEqual(answer, {"$ref": "#/components/schemas/Invoice"})
        self.assertEqual(sorted(found["responses"]), ["2XX", "400", "415"])
        form = document["paths"]["/files"]["post"]["requestBody"]["content"]
        self.assertEqual(list(form), ["multipart/form-data"])
        schema = form["multipart/form-data"]["schema"]
        self.assertEqual(schema["required"], ["title", "file"])
        self.assertEqual(
            schema["properties"]["file"],
            {"type": "string", "contentMediaType": "application/octet-stream"},
        )
