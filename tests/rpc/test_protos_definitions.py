"""Services as both sides see them."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import STREAMING
from storagegate.rpc.codec import codecOf
from storagegate.rpc.protos import RPCService, camelCase, loadProto
from tests.support.protofiles import writeFiles

PROTO = """
syntax = "proto3";
package shop.v1;
message Question {}
message Answer {}
service Orders {
  rpc GetOrder(Question) returns (Answer);
  rpc Follow(Question) returns (stream Answer);
  rpc Upload(stream Question) returns (Answer);
  rpc Talk(stream Question) returns (stream Answer);
  rpc list_all(Question) returns (Answer);
  rpc PutItem(Question) returns (Answer);
  rpc put_item(Question) returns (Answer);
}
"""


class ServiceTests(SynchronousTestCase):
    """A service of a file."""

    def setUp(self) -> None:
        folder = writeFiles(Path(self.mktemp()), {"orders.proto": PROTO})
        self.loaded = loadProto(folder / "orders.proto")
        self.service: RPCService = self.loaded.Orders

    def test_named(self) -> None:
        """It has its full name, its file, and its methods in their order."""
        self.assertEqual(self.service.name, "shop.v1.Orders")
        self.assertIs(self.service.file, self.loaded.file)
        self.assertEqual(list(self.service.methods)[:3], ["GetOrder", "Follow", "Upload"])

    def test_kinds(self) -> None:
        """Each method streams as its definition says."""
        kinds = {name: each.streaming for name, each in self.service.methods.items()}
        self.assertEqual(
            {name: kinds[name] for name in ("GetOrder", "Follow", "Upload", "Talk")},
            {"GetOrder": "none", "Follow": "server", "Upload": "client", "Talk": "bidirectional"},
        )
        self.assertLessEqual(set(kinds.values()), set(STREAMING))

    def test_messages(self) -> None:
        """A method converts the messages that it was defined with."""
        method = self.service.methods["GetOrder"]
        self.assertEqual(method.path, "/shop.v1.Orders/GetOrder")
        self.assertIs(method.request, codecOf(self.loaded.Question))
        self.assertIs(method.response, codecOf(self.loaded.Answer))

    def test_find(self) -> None:
        """A method is found by its own name and by that in camelCase; nothing else is one."""
        methods = self.service.methods
        for name in ("GetOrder", "getOrder"):
            self.assertIs(self.service.find(name), methods["GetOrder"])
        for name in ("list_all", "listAll"):
            self.assertIs(self.service.find(name), methods["list_all"])
        for name in ("getorder", "", "find"):
            self.assertIsNone(self.service.find(name))

    def test_ambiguous(self) -> None:
        """Of two methods with one camelCase, each is found by its own name only."""
        for name in ("PutItem", "put_item"):
            found = self.service.find(name)
            self.assertIs(found, self.service.methods[name])
        self.assertIsNone(self.service.find("putItem"))

    def test_frozen(self) -> None:
        """No method can be added later."""
        with self.assertRaises(TypeError):
            self.service.methods["More"] = self.service.methods["Talk"]  # type: ignore[index]


class CamelCaseTests(SynchronousTestCase):
    """The names of methods for clients."""

    def test_names(self) -> None:
        """Words begin with capitals but for the first; an acronym at the beginning is a word."""
        for name, expected in (
            ("GetUser", "getUser"),
            ("getUser", "getUser"),
            ("get_user", "getUser"),
            ("Get__user_", "getUser"),
            ("_get", "get"),
            ("HTTPGet", "httpGet"),
            ("HTTP", "http"),
            ("GetHTTP", "getHTTP"),
            ("S3Put", "s3Put"),
            ("Get_2", "get2"),
            ("X", "x"),
            ("echo", "echo"),
            ("_", "_"),
        ):
            self.assertEqual(camelCase(name), expected, name)
