"""Types of Python as schemas of services."""

import datetime
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.definitions import DefinitionError, readService
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import Invoker
from storagegate.core.typeschemas import TypeSchema, documentOf, handlerTypes


@dataclass
class Line:
    """A dataclass."""

    sku: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


@attrs.frozen
class Order:
    """A class of attrs, with another model in it."""

    lines: list[Line]
    when: datetime.datetime | None = None
    blob: bytes = b""


class Node(msgspec.Struct):
    """A class of msgspec that refers to itself."""

    name: str
    child: "Node | None" = None


class Words(TypedDict):
    """A typed dictionary."""

    text: str
    size: NotRequired[int]


class People(pydantic.BaseModel):
    """A model of pydantic with a list of any length."""

    ages: list[int]


class Person(pydantic.BaseModel):
    """A model of pydantic."""

    name: str = pydantic.Field(min_length=1)
    lines: list[Line] = []


class HandlerTests(SynchronousTestCase):
    """What the annotations of a handler say."""

    def test_manyMistakes(self) -> None:
        """The mistakes of pydantic's models are listed up to a limit, and counted beyond it."""
        schema = TypeSchema(People, documentOf(People))
        error = self.assertRaises(ServiceError, schema.read, {"ages": ["x"] * 10_000})
        self.assertEqual(len(error.details), 20)
        self.assertEqual(error.details[1]["path"], "ages[1]")
        error = self.assertRaises(ServiceError, schema.read, {"ages": ["x"] * 10_001})
        self.assertEqual(error.details, [{"path": "", "message": "has 10001 mistakes"}])

    def test_models(self) -> None:
        """Models are taken, of whichever kind; everything else is any value."""

        async def create(order: Order, context: Any) -> Person: ...  # type: ignore[empty-body]

        async def loose(request: dict[str, Any], context: Any) -> Any: ...

        async def bare(request, context):  # type: ignore[no-untyped-def]
            ...

        self.assertEqual(handlerTypes(create), (Order, Person))
        self.assertEqual(handlerTypes(loose), (None, None))
        self.assertEqual(handlerTypes(bare), (None, None))

    def test_streams(self) -> None:
        """Of a stream it is the type of its items."""

        async def chat(lines: AsyncIterator[Line]) -> AsyncIterator[Words]:
            async for line in lines:
                yield {"text": line.sku}

        self.assertEqual(handlerTypes(chat), (Line, Words))

    def test_methods(self) -> None:
        """Methods and objects that can be called have them, too."""

        class Service:
            async def get(self, words: Words) -> Node: ...  # type: ignore[empty-body]

            async def __call__(self, node: Node) -> Line: ...  # type: ignore[empty-body]

        self.assertEqual(handlerTypes(Service().get), (Words, Node))
        self.assertEqual(handlerTypes(Service()), (Node, Line))

    def test_undefined(self) -> None:
        """An annotation that names nothing is refused where the service is defined."""

        async def create(order: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        error = self.assertRaises(DefinitionError, readService, {"methods": {"go": create}}, "S")
        self.assertIn("S.go has an annotation", str(error))

    def test_given(self) -> None:
        """C{input} and C{output} take models, and win over annotations; other types are refused."""

        async def create(order: Order) -> None: ...

        method = {"handler": create, "input": Words, "output": Line}
        made = readService({"methods": {"go": method}}, "S").methods["go"]
        self.assertEqual((made.inputType, made.outputType), (Words, Line))
        bad = {"methods": {"go": {"handler": create, "input": int}}}
        error = self.assertRaises(DefinitionError, readService, bad, "S")
        self.assertIn("the input of S.go is a schema or a model", str(error))


class DocumentTests(SynchronousTestCase):
    """The schema of a model."""

    def test_whole(self) -> None:
        """What it refers to stands in it."""
        document = documentOf(Order)
        line = document["properties"]["lines"]["items"]
        self.assertEqual(line["properties"]["sku"], {"type": "string"})
        self.assertEqual(line["required"], ["sku"])
        self.assertEqual(document["required"], ["lines"])
        person = documentOf(Person)
        self.assertEqual(person["properties"]["name"]["minLength"], 1)
        self.assertEqual(person["properties"]["lines"]["items"]["required"], ["sku"])

    def test_recursive(self) -> None:
        """A model within itself is any value there."""
        child = documentOf(Node)["properties"]["child"]
        self.assertEqual(child["anyOf"], [{}, {"type": "null"}])


class ValueTests(SynchronousTestCase):
    """Requests and responses."""

    def schema(self, model: Any) -> TypeSchema:
        """Make the schema of a model."""
        return TypeSchema(model, documentOf(model))

    def violation(self, model: Any, value: Any) -> tuple[str, str]:
        """Give the path and the message of what is invalid."""
        error = self.assertRaises(ServiceError, self.schema(model).read, value)
        self.assertEqual((error.code, error.statusCode), ("VALIDATION_ERROR", 400))
        [detail] = error.details
        return detail["path"], detail["message"]

    def test_read(self) -> None:
        """A request becomes an instance: text of bytes is decoded, times are read."""
        wanted = Order([Line("a", 2)], datetime.datetime(2026, 1, 2), b"hi")
        value = {"lines": [{"sku": "a", "count": 2}], "when": "2026-01-02T00:00:00"}
        for blob in ("aGk=", b"hi"):
            self.assertEqual(self.schema(Order).read({**value, "blob": blob}), wanted)
        self.assertEqual(self.schema(Words).read({"text": "a"}), {"text": "a"})
        self.assertEqual(self.schema(Person).read({"name": "Ada"}), Person(name="Ada"))

    def test_numberedKeys(self) -> None:
        """Integers as keys are text on transports, and integers in handlers."""

        class Shelf(msgspec.Struct):
            books: dict[int, str]

        schema = TypeSchema(Shelf, documentOf(Shelf))
        for key in (7, "7"):
            self.assertEqual(schema.read({"books": {key: "a"}}), Shelf({7: "a"}))
        self.assertEqual(schema.check(Shelf({7: "a"})), {"books": {"7": "a"}})
        error = self.assertRaises(ServiceError, schema.read, {"books": {"x": "a"}})
        self.assertEqual(error.code, "VALIDATION_ERROR")

    def test_violations(self) -> None:
        """What is invalid is named by its path."""
        self.assertEqual(self.violation(Order, {}), ("lines", "is required"))
        self.assertEqual(self.violation(Order, {"lines": [{}]}), ("lines[0].sku", "is required"))
        path, message = self.violation(Order, {"lines": [{"sku": "a", "count": "2"}]})
        self.assertEqual((path, message), ("lines[0].count", "expected int, got str"))
        path, message = self.violation(Line, {"sku": "a", "count": 0})
        self.assertEqual((path, message), ("count", "expected int >= 1"))
        self.assertEqual(self.violation(Order, [])[0], "")
        path, message = self.violation(Person, {"name": ""})
        self.assertEqual(path, "name")
        self.assertIn("at least 1 character", message)
        self.assertEqual(self.violation(Person, {"name": "a", "lines": [{}]})[0], "lines[0].sku")

    def test_check(self) -> None:
        """A response becomes plain values, with bytes as they are; a mapping is checked as well."""
        plain = {"lines": [{"sku": "a", "count": 1}], "when": None, "blob": b"x"}
        self.assertEqual(self.schema(Order).check(Order([Line("a")], blob=b"x")), plain)
        self.assertEqual(self.schema(Words).check({"text": "a"}), {"text": "a"})
        person = self.schema(Person).check(Person(name="Ada"))
        self.assertEqual(person, {"name": "Ada", "lines": []})
        for wrong in (Line(3), {"count": 1}, Line("a", 0)):  # type: ignore[arg-type]
            self.assertRaises(ServiceError, self.schema(Line).check, wrong)


class CallTests(SynchronousTestCase):
    """Calls of handlers with types."""

    def call(self, handler: Any, request: Any) -> Any:
        """Call a method."""

        class Anybody:
            def authenticate(self, *arguments: Any) -> None: ...

        invoker = Invoker(Anybody())
        invoker.add(readService({"methods": {"go": handler}}, "S"))
        caller = ClientInfo("1", "127.0.0.1", 1)
        context = RequestContext("test", "S", "go", caller, Tracing("0" * 32))
        running = invoker.call(context, request)
        try:
            running.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    def test_call(self) -> None:
        """The handler has an instance, the caller plain values."""

        async def total(order: Order, context: Any) -> Line:
            return Line(order.lines[0].sku, sum(line.count for line in order.lines))

        found = self.call(total, {"lines": [{"sku": "a"}, {"sku": "b", "count": 4}]})
        self.assertEqual(found, {"sku": "a", "count": 5})
        self.assertRaises(ServiceError, self.call, total, {"lines": 1})

    def test_badResult(self) -> None:
        """A result that is invalid is an error of the method, which is logged."""

        async def wrong(line: Line) -> Line:
            return Line(3)  # type: ignore[arg-type]

        error = self.assertRaises(ServiceError, self.call, wrong, {"sku": "a"})
        self.assertEqual(error.code, "INTERNAL_ERROR")
        [logged] = self.flushLoggedErrors(ValueError)
        self.assertIn("'path': 'sku'", str(logged.value))
