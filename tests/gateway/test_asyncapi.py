"""The description of services over WebSocket, TCP and UDP."""

from typing import Any

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.schemas import Schema
from storagegate.gateway.asyncapi import describeMessages
from storagegate.gateway.messages.frames import frameError, frameResult
from storagegate.gateway.messages.json import messageEnd, messageError, messageItem, messageResult
from storagegate.gateway.options import GatewayOptions, readOptions
from tests.gateway.describing import ORDERS, references, resolved
from tests.gateway.httpcase import HTTPCase
from tests.support.selection import long

REQUEST = {"id": 1, "service": "Orders", "method": "get", "data": {"id": "a", "all": True}}


class AsyncAPITests(HTTPCase):
    """GET {basePath}/asyncapi.json."""

    def setUp(self) -> None:
        """Serve, and read the description."""
        self.serve([ORDERS])
        self.document = self.client.get("/api/asyncapi.json").json()

    def check(self, name: str, message: Any) -> None:
        """Hold a message against its description."""
        described = self.document["components"]["messages"][name]["payload"]
        # As the root of a document: its references begin there.
        whole = {**described, "components": self.document["components"]}
        Schema(whole, name).check(message)

    def test_references(self) -> None:
        """Every reference leads somewhere."""
        found = set(references(self.document))
        self.assertIn("#/components/schemas/Orders.put.request/definitions/line", found)
        for reference in found:
            resolved(self.document, reference)

    def test_servers(self) -> None:
        """Servers are the wires that are on, where they are."""
        servers = self.document["servers"]
        self.assertEqual(
            {name: server["host"] for name, server in servers.items()},
            {"websocket": "127.0.0.1:8080", "tcp": "127.0.0.1:9102", "udp": "127.0.0.1:9103"},
        )
        self.assertEqual(servers["websocket"]["pathname"], "/ws")
        changes = {"protocols": ["http", "tcp"], "tcp": {"hostname": "::1", "port": 5}}
        options = readOptions(GatewayOptions(), changes)
        own = describeMessages([self.host.invoker.find("Probe", "echo")], options)["servers"]
        self.assertEqual({name: each["host"] for name, each in own.items()}, {"tcp": "[::1]:5"})

    def test_operations(self) -> None:
        """Every method is an operation on every wire, a request with its replies."""
        methods = sum(len(each.methods) for each in self.host.invoker.services.values())
        self.assertEqual(len(self.document["operations"]), 3 * methods)
        unary = self.document["operations"]["udp.Orders.get"]
        messages = "#/channels/udp/messages/"
        self.assertEqual(unary["messages"], [{"$ref": messages + "Orders.get.request"}])
        self.assertEqual(
            [each["$ref"].removeprefix(messages) for each in unary["reply"]["messages"]],
            ["Orders.get.response", "error"],
        )
        watch = self.document["operations"]["tcp.Orders.watch"]
        messages = "#/channels/tcp/messages/"
        self.assertEqual(
            [each["$ref"].removeprefix(messages) for each in watch["reply"]["messages"]],
            ["Orders.watch.item", "error", "end"],
        )
        load = self.document["operations"]["websocket.Orders.load"]
        self.assertEqual(len(load["messages"]), 3)

    @long("takes seconds")
    def test_requests(self) -> None:
        """A request that the gateway takes fits; one of another method does not."""
        for wire in ("websocket", "tcp", "udp"):
            name = f"{wire}.Orders.get.request"
            self.check(name, REQUEST)
            self.check(name, {**REQUEST, "id": "x", "auth": {"token": "t"}, "deadlineMs": 5})
            for wrong in ({"method": "put"}, {"data": {"id": 5}}, {"deadlineMs": 0}, {"id": 1.5}):
                self.assertRaises(ServiceError, self.check, name, {**REQUEST, **wrong})

    def test_messages(self) -> None:
        """What the gateway sends over WebSocket fits its description."""
        order = {"id": "a", "lines": [{"sku": "s"}]}
        self.check("websocket.Orders.get.response", messageResult(1, "get", order))
        self.check("websocket.Orders.watch.item", messageItem("x", order))
        self.check("websocket.end", messageEnd(1))
        self.check("websocket.Orders.get.response", messageResult(None, "get", order))
        self.check("websocket.Orders.watch.item", messageItem(None, order))
        self.check("websocket.end", messageEnd(None))
        self.check("websocket.error", messageError(1, codedError("NOT_FOUND", "no")))
        wrong = messageResult(1, "get", {"lines": 5})
        self.assertRaises(ServiceError, self.check, "websocket.Orders.get.response", wrong)

    def test_frames(self) -> None:
        """What it sends in frames does, too, with an id and without."""
        order = {"id": "a", "lines": [{"sku": "s"}]}
        for id in (None, 1):
            self.check("tcp.Orders.get.response", frameResult(id, order))
            self.check("udp.error", frameError(id, codedError("NOT_FOUND", "no", [1])))
        self.check("udp.Orders.watch.item", {"id": 1, "seq": 0, "data": order})
        wrong = frameResult(1, {"lines": 5})
        self.assertRaises(ServiceError, self.check, "tcp.Orders.get.response", wrong)
