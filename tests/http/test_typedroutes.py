"""Routes with types: what a request has to be, and what its response is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

import attrs
import msgspec
from pydantic import BaseModel
from twisted.internet.task import deferLater

from storagegate.core.definitions import DefinitionError
from storagegate.http import Response, Router, json, urlencoded
from tests.http.test_dispatch import PipelineCase
from tests.support.resultforms import FORMS, SECRET


@dataclass
class Line:
    """A line of an order."""

    article: str
    count: int = 1


@dataclass
class Order:
    """What is ordered."""

    customer: str
    lines: list[Line] = field(default_factory=list)


@attrs.frozen
class AttrsLine:
    """The same of attrs."""

    article: str
    count: int = 1


class StructLine(msgspec.Struct):
    """The same of msgspec."""

    article: str
    count: int = 1


class LineDict(TypedDict):
    """The same as a dictionary."""

    article: str
    count: int


class ModelLine(BaseModel):
    """The same of pydantic."""

    article: str
    count: int = 1


@dataclass
class Paging:
    """What a query has."""

    page: int = 1
    deep: bool = False
    tags: list[str] = field(default_factory=list)


@dataclass
class OrderId:
    """What a path has."""

    id: int


SCHEMA = {"type": "object", "properties": {"article": {"type": "string", "required": True}}}

FORM = {"content-type": "application/x-www-form-urlencoded"}


class BodyTests(PipelineCase):
    """C{body}."""

    def see(self, req: Any, res: Any) -> None:
        """Note the body."""
        self.seen.append(req.body)
        res.status(204).end()

    def refusal(self, **request: Any) -> tuple[int, Any]:
        """Return status and body of the response to a request that is refused."""
        response = self.client.post("/orders", **request)
        self.assertEqual(self.seen, [])
        return response.status, response.json()

    def test_kinds(self) -> None:
        """The body is an instance of the type, of each kind; a dictionary for a schema."""
        wanted: list[tuple[Any, Any]] = [
            (Line, Line("pen", 2)),
            (AttrsLine, AttrsLine("pen", 2)),
            (StructLine, StructLine("pen", 2)),
            (LineDict, {"article": "pen", "count": 2}),
            (ModelLine, ModelLine(article="pen", count=2)),
            (SCHEMA, {"article": "pen", "count": 2}),
        ]
        for model, instance in wanted:
            self.setUp()
            self.app.post("/lines", self.see, body=model)
            response = self.client.post("/lines", json={"article": "pen", "count": 2})
            self.assertEqual((response.status, self.seen), (204, [instance]))
            response = self.client.post("/lines", json={"count": 2})
            self.assertEqual(response.status, 400, model)
            self.assertEqual(response.json()["details"][0]["path"], "article", model)

    def test_lists(self) -> None:
        """It may be a list of a type."""
        for model in (Line, ModelLine):
            self.setUp()
            self.app.post("/orders", self.see, body=list[model])  # type: ignore[valid-type]
            self.assertEqual(self.client.post("/orders", json=[{"article": "pen"}]).status, 204)
            self.assertEqual(self.seen.pop(), [model(article="pen")])
            status, answer = self.refusal(json=[{"article": "pen"}, {"article": 1}])
            self.assertEqual(status, 400)
            self.assertEqual(answer["details"][0]["path"], "[1].article")

    def test_envelope(self) -> None:
        """What does not fit is refused as the gateway refuses it, with its path."""
        self.app.post("/orders", self.see, body=Order)
        wrong = {"customer": "Ada", "lines": [{"article": "pen"}, {"article": "ink", "count": "x"}]}
        message = "expected int, got str"
        self.assertEqual(
            self.refusal(json=wrong),
            (
                400,
                {
                    "error": "VALIDATION_ERROR",
                    "message": f"lines[1].count {message}",
                    "details": [{"path": "lines[1].count", "message": message}],
                },
            ),
        )

    def test_errorHandler(self) -> None:
        """An error handler sees the error with its details."""
        self.app.post("/orders", self.see, body=Order)

        def tell(error: Any, req: Any, res: Any, next: Any) -> None:
            res.status(422).json(error.details)

        self.app.use(tell)
        response = self.client.post("/orders", json={})
        self.assertEqual(response.status, 422)
        self.assertEqual(response.json(), [{"path": "customer", "message": "is required"}])

    def test_noJSON(self) -> None:
        """A body that is no JSON, of another type, too long or absent."""
        self.app.withOptions(maxRequestBodySize="1kb").post("/orders", self.see, body=Order)
        kind = {"content-type": "application/json"}
        self.assertEqual(self.refusal(body="{", headers=kind)[0], 400)
        self.assertEqual(self.refusal(body="a", headers={"content-type": "text/csv"})[0], 415)
        self.assertEqual(self.refusal(body=" " * 2000, headers=kind)[0], 413)
        status, answer = self.refusal()
        self.assertEqual((status, answer["message"]), (400, "customer is required"))

    def test_curl(self) -> None:
        """Without a type JSON is meant, and with that of curl; but not from a page."""
        self.app.post("/orders", self.see, body=Order)
        for fields in ({}, FORM):
            response = self.client.post("/orders", body=b'{"customer":"Ada"}', headers=fields)
            self.assertEqual((response.status, self.seen.pop()), (204, Order("Ada")))
        fields = {**FORM, "origin": "http://elsewhere.example"}
        self.assertEqual(self.refusal(body='{"customer":"Ada"}', headers=fields)[0], 415)

    def test_parsed(self) -> None:
        """What a parser has parsed before is taken; texts of a form are converted."""
        self.app.use(json(limit="50b"), urlencoded()).post("/lines", self.see, body=Line)
        self.client.post("/lines", body="article=pen&count=3", headers=FORM)
        self.client.post("/lines", json={"article": "pen", "count": 2})
        self.assertEqual(self.seen, [Line("pen", 3), Line("pen", 2)])
        self.assertEqual(self.client.post("/lines", json={"article": "p" * 50}).status, 413)
        self.assertEqual(
            self.client.post("/lines", json={"article": "p", "count": "2"}).status, 400
        )

    def test_order(self) -> None:
        """The other handlers of the route come first, and may refuse before a body is read."""

        def refuse(req: Any, res: Any, next: Any) -> Any:
            return res.status(401).end() if req.get("x-key") is None else next()

        self.app.post("/orders", refuse, self.see, body=Order)
        self.assertEqual(self.client.post("/orders", json={}).status, 401)
        self.assertEqual(self.client.post("/orders", json={}, headers={"x-key": "1"}).status, 400)

    def test_null(self) -> None:
        """A document that is null is one of another type, not one of another media type."""
        self.app.post("/orders", self.see, body=Order)
        status, shape = self.refusal(body="null", headers={"content-type": "application/json"})
        self.assertEqual((status, shape["error"]), (400, "VALIDATION_ERROR"))

    def test_late(self) -> None:
        """A body that comes in pieces is waited for."""
        self.app.post("/orders", self.see, body=Order)

        async def pieces() -> AsyncIterator[bytes]:
            yield b'{"customer":'
            await deferLater(self.client.clock, 1)
            yield b'"Ada"}'

        call = self.client.start("POST", "/orders", body=pieces())
        self.client.advance(2)
        self.assertEqual((call.response.status, self.seen), (204, [Order("Ada")]))


class PartTests(PipelineCase):
    """C{query} and C{params}."""

    def test_query(self) -> None:
        """The texts of the query are read as the type has them."""
        self.app.get("/orders", lambda req, res: repr(req.query), query=Paging)
        for query, wanted in [
            ("", Paging()),
            ("?page=3&deep=true&tags=a", Paging(3, True, ["a"])),
            ("?tags=a&tags=b", Paging(tags=["a", "b"])),
            ("?deep=1", Paging(deep=True)),
            ("?deep=TRUE", Paging(deep=True)),
            ("?deep=0", Paging()),
        ]:
            self.assertEqual(self.client.get(f"/orders{query}").text, repr(wanted))
        for query, path, message in (
            ("page=x", "page", "must be an integer"),
            ("deep=yes", "deep", "must be true, false, 1 or 0"),
        ):
            answer = self.client.get(f"/orders?{query}").json()
            self.assertEqual(answer["error"], "VALIDATION_ERROR")
            self.assertEqual(answer["details"], [{"path": path, "message": message}])

    def test_params(self) -> None:
        """So are those of the path."""
        self.app.get("/orders/:id", lambda req, res: {"next": req.params.id + 1}, params=OrderId)
        self.assertEqual(self.client.get("/orders/41").json(), {"next": 42})
        self.assertEqual(self.client.get("/orders/x").status, 400)

    def test_flagParam(self) -> None:
        """A boolean of a path or a form has the same texts as one of a query."""
        self.app.use(urlencoded())
        flag = {"properties": {"on": {"type": "boolean"}}, "type": "object"}
        self.app.get("/flags/:on", lambda req, res: req.params, params=flag)
        self.app.post("/flags", lambda req, res: req.body, body=flag)
        for text, value in (("1", True), ("False", False)):
            self.assertEqual(self.client.get(f"/flags/{text}").json(), {"on": value})
            form = self.client.post("/flags", headers=FORM, body=f"on={text}")
            self.assertEqual(form.json(), {"on": value})
        for answer in (
            self.client.get("/flags/x"),
            self.client.post("/flags", headers=FORM, body="on=x"),
        ):
            self.assertEqual(answer.json()["message"], "on must be true, false, 1 or 0")


class ResponseTests(PipelineCase):
    """C{response}."""

    def answered(self, value: Any, response: Any) -> tuple[int, str]:
        """Return status and text of the response to each kind of handler."""

        async def coroutine(req: Any, res: Any) -> Any:
            return value

        async def slow(req: Any, res: Any) -> Any:
            return await deferLater(self.client.clock, 1, lambda: value)

        def middle(req: Any, res: Any, next: Any) -> Any:
            return value

        found = set()
        for handler in (lambda req, res: value, coroutine, slow, middle):
            self.setUp()
            self.app.get("/", handler, response=response)
            call = self.client.start("GET", "/")
            self.client.advance(2)
            found.add((call.response.status, call.response.text))
        (one,) = found
        return one

    def test_fits(self) -> None:
        """What fits is JSON: instances, and mappings with the same fields."""
        text = '{"article":"pen","count":2}'
        for model in (Line, AttrsLine, StructLine, ModelLine):
            for value in (model(article="pen", count=2), {"article": "pen", "count": 2}):
                self.assertEqual(self.answered(value, model), (200, text))
        self.assertEqual(self.answered([Line("pen", 2)], list[Line]), (200, f"[{text}]"))
        self.assertEqual(self.answered([ModelLine(article="a")], list[ModelLine])[0], 200)

    def test_unfit(self) -> None:
        """What does not is a fault of the handler: 500, and the log names the route."""
        for value in ({"count": 2}, "text", [Line("pen")], Line("pen", "many")):  # type: ignore[arg-type]
            status, text = self.answered(value, Line)
            self.assertEqual((status, text), (500, '{"error":"Internal Server Error"}'))
            logged = self.flushLoggedErrors(ValueError)
            self.assertEqual(len(logged), 4)
            self.assertIn("GET /", str(logged[0].value))

    def test_own(self) -> None:
        """What a handler sends itself is its own affair, as a Response of the standard is."""
        self.app.get("/own", lambda req, res: Response("own", status=202), response=Line)
        self.assertEqual(self.client.get("/own").status, 202)
        self.app.get("/sent", lambda req, res: res.status(204).end(), response=Line)
        self.assertEqual(self.client.get("/sent").status, 204)
        self.app.get("/next", lambda req, res, next: next(), response=Line)
        self.app.get("/next", lambda req, res: "after")
        self.assertEqual(self.client.get("/next").text, "after")

    def test_silent(self) -> None:
        """A handler that has forgotten its response is named."""
        self.app.get("/", lambda req, res: None, response=Line)
        self.assertEqual(self.client.get("/").status, 500)
        [error] = self.flushLoggedErrors()
        self.assertIn("ResponseTests", str(error.value))

    def test_untagged(self) -> None:
        """Structs of a union need no tags: the class of a result chooses, else its fields."""

        class Known(msgspec.Struct):
            """A known user."""

            name: str

        class Unknown(msgspec.Struct):
            """Another user."""

            known: bool = False

        results: list[Any] = [Known("Ada"), Unknown(), {"name": "Ada", "more": 1}, {"x": 1}, 7]
        self.app.get("/", lambda req, res: results.pop(0), response=Known | Unknown)
        for wanted in ({"name": "Ada"}, {"known": False}, {"name": "Ada"}, {"known": False}):
            self.assertEqual(self.client.get("/").json(), wanted)
        self.assertEqual(self.client.get("/").status, 500)
        [error] = self.flushLoggedErrors()
        self.assertIn("none of the declared values", str(error.value))

    def test_status(self) -> None:
        """The status that the handler has set stays."""
        self.app.get("/", lambda req, res: res.status(201) and Line("pen"), response=Line)
        self.assertEqual(self.client.get("/").status, 201)


class RegistrationTests(PipelineCase):
    """How types are given."""

    def test_forms(self) -> None:
        """By a decorator, a chain, a router, and for all methods."""
        self.app.post("/a", body=Line)(lambda req, res: {"got": req.body.article})
        self.app.route("/b").post(lambda req, res: {"got": req.body.article}, body=Line)
        self.app.route("/c").put(body=Line)(lambda req, res: {"got": req.body.article})
        self.app.use("/d", Router().all("/", lambda req, res: {"got": req.body.article}, body=Line))
        for method, path in (("POST", "/a"), ("POST", "/b"), ("PUT", "/c"), ("PATCH", "/d")):
            call = self.client.start(method, path, json={"article": "pen"})
            self.assertEqual(call.response.json(), {"got": "pen"}, path)

    def test_listed(self) -> None:
        """The list of routes names the handler itself, and its types."""

        def create(req: Any, res: Any) -> None:
            """Create."""

        self.app.post("/orders", self.note(1), create, body=Order)
        self.app.get("/orders", create)
        typed, plain = self.app.getRoutes()
        self.assertIs(typed.handler, create)
        self.assertIs(plain.handler, create)
        self.assertIsNone(plain.types)
        assert typed.types is not None
        self.assertEqual(typed.types.body.document["required"], ["customer"])
        self.assertIsNone(typed.types.query)

    def test_lateTypes(self) -> None:
        """A function that returns a type is called for the first request, and once."""
        asked: list[str] = []

        def late(name: str, found: Any) -> Any:
            return lambda: asked.append(name) or found

        self.app.post(
            "/orders/:id",
            lambda req, res: Line(req.body.customer, req.params.id + req.query.page),
            body=late("body", Order),
            params=late("params", OrderId),
            query=late("query", Paging),
            response=late("response", Line),
        )
        self.assertEqual(self.app.getAllowedMethods("/orders/1"), ["POST"])
        self.assertEqual(asked, [])
        for _ in range(2):
            reply = self.client.post("/orders/7?page=2", json={"customer": "Ada"})
            self.assertEqual(reply.json(), {"article": "Ada", "count": 9})
        self.assertEqual(sorted(asked), ["body", "params", "query", "response"])
        self.assertEqual(self.client.post("/orders/x", json={"customer": "Ada"}).status, 400)

    def test_lateMistake(self) -> None:
        """A function that returns no type is an error of the first request."""
        self.app.get("/", self.answer, query=lambda: 7)
        self.assertEqual(self.client.get("/").status, 500)
        [error] = self.flushLoggedErrors(DefinitionError)
        self.assertIn("query of GET /", str(error.value))

    def test_refused(self) -> None:
        """What is no type is refused with its route; so is a list where there is none."""
        for types in ({"body": 7}, {"response": int}, {"query": list[Line]}, {"params": str}):
            error = self.assertRaises(
                DefinitionError, self.app.post, "/orders", self.answer, **types
            )
            self.assertIn(f"{next(iter(types))} of POST /orders", str(error))
        self.assertRaises(TypeError, self.app.post, "/orders", self.tell, body=Line)
        self.assertRaises(TypeError, self.app.post, "/orders", self.answer, bdy=Line)


class ShapeTests(PipelineCase):
    """The result of a route has the shape that was declared."""

    def test_forms(self) -> None:
        """No further field leaves, in any form of a declared type or schema."""
        for index, (_, declared, make, _) in enumerate(FORMS):
            answer: Any = lambda req, res, make=make: make()  # noqa: E731
            self.app.get(f"/{index}", answer, response=declared)
        for index, (name, _, _, wanted) in enumerate(FORMS):
            response = self.client.get(f"/{index}")
            self.assertEqual(response.status, 200, name)
            self.assertNotIn(SECRET, response.text, name)
            self.assertEqual(response.json(), wanted, name)

    def test_defaults(self) -> None:
        """An instance of a request has each field when it is sent, with and without a type."""

        def echo(req: Any, res: Any) -> Any:
            return req.body

        def query(req: Any, res: Any) -> Any:
            return res.json(req.query)

        self.app.post("/typed", echo, body=Order, response=Order)
        self.app.post("/plain", lambda req, res: res.json(req.body), body=Order)
        self.app.get("/query", query, query=Paging)
        wanted = {"customer": "Ada", "lines": [{"article": "pen", "count": 1}]}
        for path in ("/typed", "/plain"):
            sent = {"customer": "Ada", "lines": [{"article": "pen"}]}
            self.assertEqual(self.client.post(path, json=sent).json(), wanted, path)
        found = self.client.get("/query?page=2").json()
        self.assertEqual(found, {"page": 2, "deep": False, "tags": []})

    def test_wrong(self) -> None:
        """A wrong kind is 500: the log has the path, and neither it nor the client the value."""
        self.app.get("/", lambda req, res: {"article": "a", "count": SECRET}, response=Line)
        response = self.client.get("/")
        self.assertEqual(response.status, 500)
        self.assertNotIn(SECRET, response.text)
        [logged] = self.flushLoggedErrors(ValueError)
        self.assertIn("'path': 'count'", str(logged.value))
        self.assertNotIn(SECRET, logged.getTraceback())
