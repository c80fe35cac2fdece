"""Results over every transport: what was declared leaves, and nothing besides."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import GrpcError, ServiceError, createProtocolGateway
from storagegate.gateway.testing import GatewayClient
from tests.support.resultforms import FORMS, NAME, SECRET, StoredUser, User

TRANSPORTS = ("http", "websocket", "grpc", "tcp", "udp")


def plain(value: Any) -> Any:
    """Return a value as JSON has it, without what is null: gRPC leaves such fields out."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ResultCase(SynchronousTestCase):
    """Calls of one gateway over each transport."""

    def begin(self, methods: dict[str, Any]) -> None:
        """Serve methods."""
        gateway = createProtocolGateway(tcp={}, udp={}, websocket={}, grpc={})
        gateway.addService("Forms", {"methods": methods})
        self.client = GatewayClient(gateway)

    def ask(self, transport: str, method: str, request: Any = None) -> Any:
        """Call a method, and return its result."""
        request = {} if request is None else request
        connection = self.client.connect(transport)
        if transport != "http":
            # Replies of UDP are in proportion to requests.
            padded = {"padding": "x" * 600} if transport == "udp" else {}
            return connection.call("Forms", method, request, **padded)
        response = connection.post(f"/api/Forms/{method}", json=request)
        self.assertNotIn(SECRET, response.text)
        if response.status != 200:
            raise ServiceError("INTERNAL_ERROR", response.text)
        if "ndjson" in (response.headers.get("content-type") or ""):
            return [json.loads(line)["data"] for line in response.text.splitlines()]
        return response.json()["data"]


class FormTests(ResultCase):
    """Every form of a declared result."""

    def setUp(self) -> None:
        """Serve a method and a stream for each."""

        def unary(make: Any) -> Any:
            return lambda request, context: make()

        def stream(make: Any) -> Any:
            async def items(request: Any, context: Any) -> Any:
                yield make()
                yield make()

            return items

        methods = {}
        for index, (_, declared, make, _) in enumerate(FORMS):
            methods[f"unary{index}"] = {"handler": unary(make), "output": declared}
            methods[f"stream{index}"] = {"handler": stream(make), "output": declared}
        self.begin(methods)

    def test_forms(self) -> None:
        """No transport carries a secret, of a result or of an item."""
        for transport in TRANSPORTS:
            for index, (name, _, _, wanted) in enumerate(FORMS):
                case = (transport, name)
                if case == ("grpc", "schema: condition"):
                    # Messages have fields for what properties names.
                    wanted = {"name": "Ada"}
                if case == ("grpc", "recursive"):
                    # An empty list is absent in a message.
                    wanted = {"name": "a", "children": [{"name": "b"}]}
                found = self.ask(transport, f"unary{index}")
                self.assertNotIn(SECRET, repr(found), case)
                self.assertEqual(plain(found), plain(wanted), case)
                items = self.ask(transport, f"stream{index}")
                self.assertNotIn(SECRET, repr(items), case)
                self.assertEqual(plain(items), plain([wanted, wanted]), case)


@dataclass
class Todo:
    """A model with defaults."""

    title: str
    done: bool = False
    count: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A frozen one, with others in it."""

    first: Todo
    others: list[Todo] = field(default_factory=list)
    priority: int = 3


class AnnotationTests(ResultCase):
    """What the annotations of handlers declare."""

    def test_lists(self) -> None:
        """A list, a mapping, an optional model and an awaitable declare as a model does."""

        async def listed(request: Any, context: Any) -> list[User]:
            return [StoredUser("Ada")]

        def mapped(request: Any, context: Any) -> dict[str, User]:
            return {"k": StoredUser("Ada")}

        async def optional(request: Any, context: Any) -> User | None:
            return StoredUser("Ada")

        async def items(request: Any, context: Any) -> AsyncIterator[User]:
            yield StoredUser("Ada")

        self.begin({each.__name__: each for each in (listed, mapped, optional, items)})
        user = {"name": "Ada", "done": False, "level": 5}
        for transport in ("http", "websocket", "tcp", "grpc"):
            for name, wanted in (
                ("listed", [user]),
                ("mapped", {"k": user}),
                ("optional", user),
                ("items", [user]),
            ):
                self.assertEqual(plain(self.ask(transport, name)), wanted, (transport, name))

    def test_defaults(self) -> None:
        """What a request left out is in the result that gives it back, on every transport."""

        async def todo(request: Todo, context: Any) -> Todo:
            return request

        async def plan(request: Plan, context: Any) -> Plan:
            return request

        self.begin({"todo": todo, "plan": plan})
        one = {"title": "tea", "done": False, "count": 1, "tags": []}
        for transport in TRANSPORTS:
            found = {"tags": [], **self.ask(transport, "todo", {"title": "tea"})}
            self.assertEqual(found, one, transport)
            found = self.ask(
                transport, "plan", {"first": {"title": "tea"}, "others": [{"title": "tea"}]}
            )
            for each in (found["first"], *found["others"]):
                self.assertEqual({"tags": [], **each}, one, transport)
            self.assertEqual(found["priority"], 3, transport)

    def test_further(self) -> None:
        """Members that a schema allows stay; messages of gRPC have no field for them."""
        schema = {**NAME, "additionalProperties": True}
        value = {"name": "Ada", "more": "allowed"}
        self.begin({"go": {"handler": lambda request, context: value, "output": schema}})
        for transport in TRANSPORTS:
            wanted = {"name": "Ada"} if transport == "grpc" else value
            self.assertEqual(self.ask(transport, "go"), wanted, transport)

    def test_wrong(self) -> None:
        """A wrong kind is an internal error: the log has the path, and no one the value."""

        def wrong(request: Any, context: Any) -> User:
            return User(name=[SECRET])  # type: ignore[arg-type]

        schema = {"type": "object", "properties": {"name": {"enum": ["a"]}}}
        self.begin(
            {
                "typed": wrong,
                "schema": {"handler": lambda request, context: {"name": SECRET}, "output": schema},
            }
        )
        for transport in ("http", "websocket", "tcp", "grpc"):
            for name in ("typed", "schema"):
                error = self.assertRaises((ServiceError, GrpcError), self.ask, transport, name)
                self.assertNotIn(SECRET, str(error))
                self.assertIn("nternal", str(error))
                [logged] = self.flushLoggedErrors(ValueError)
                self.assertIn("'path': 'name'", str(logged.value))
                self.assertNotIn(SECRET, logged.getTraceback())
