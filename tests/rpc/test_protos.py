"""C{.proto} files are loaded when they are asked for, with all that they import."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import RPCService, loadProto
from tests.support.modules import CHECKOUT
from tests.support.protofiles import writeFiles

MAIN = """
syntax = "proto3";
package a.b.c;
import "google/protobuf/timestamp.proto";
import "other.proto";
enum Color { RED = 0; GREEN = 1; }
message Order {
  message Line { string article = 1; }
  google.protobuf.Timestamp made_at = 1;
  elsewhere.Customer customer = 2;
  repeated Line lines = 3;
  string kind = 4 [json_name = "@kind"];
}
service Orders { rpc Get(Order) returns (Order); }
"""

OTHER = """
syntax = "proto3";
package elsewhere;
message Customer { string name = 1; }
service Customers { rpc Get(Customer) returns (Customer); }
"""

# What a file may call its own things.
AWKWARD = """
syntax = "proto3";
message file {}
message services {}
message _made {}
message Same { message Same {} }
"""

GOOGLE = """
syntax = "proto3";
import "google/api/annotations.proto";
import "google/rpc/status.proto";
import "google/protobuf/any.proto";
message Job { google.rpc.Status status = 1; google.protobuf.Any extra = 2; }
service Jobs {
  rpc Get(Job) returns (Job) { option (google.api.http) = { get: "/jobs" }; }
}
"""

LATE = """
import sys
from storagegate.rpc.protos import loadProto, protoPath
assert not [name for name in sys.modules if name.startswith("grpc")], "too early"
before = list(sys.path), list(sys.meta_path), set(sys.modules)
loadProto(protoPath() / "health.proto")
assert (list(sys.path), list(sys.meta_path)) == before[:2], "changed"
print(*sorted(set(sys.modules) - before[2]))
"""


def message(name: str) -> str:
    """Give a file that defines a message."""
    return f'syntax = "proto3"; message {name} {{}}'


def importing(*names: str) -> str:
    """Give a file that imports others, and makes use of each."""
    imports = "".join(f'import "{name}"; ' for name in names)
    return f'syntax = "proto3"; {imports} message Main {{}}'


class ProtoCase(SynchronousTestCase):
    """Tests with files of their own."""

    def files(self, **texts: str) -> Path:
        """Write files C{name.proto} into a new folder."""
        return writeFiles(Path(self.mktemp()), {f"{k}.proto": v for k, v in texts.items()})


class LoadedTests(ProtoCase):
    """What a file gives."""

    def setUp(self) -> None:
        self.folder = self.files(main=MAIN, other=OTHER)
        self.loaded = loadProto(self.folder / "main.proto")

    def test_attributes(self) -> None:
        """Services, messages and enums are attributes, whatever the package."""
        self.assertIsInstance(self.loaded.Orders, RPCService)
        self.assertEqual(self.loaded.Orders.name, "a.b.c.Orders")
        self.assertEqual(self.loaded.Order.DESCRIPTOR.full_name, "a.b.c.Order")
        self.assertEqual(self.loaded.Order.Line(article="x").article, "x")
        self.assertEqual(self.loaded.Color.Value("GREEN"), 1)

    def test_fullNames(self) -> None:
        """They are items under their full names, and attributes below their package's."""
        for name in ("Orders", "Order", "Color"):
            each = getattr(self.loaded, name)
            self.assertIs(self.loaded[f"a.b.c.{name}"], each)
            self.assertIs(getattr(self.loaded.a.b.c, name), each)
        self.assertIs(self.loaded["a.b.c.Order.Line"], self.loaded.Order.Line)

    def test_imported(self) -> None:
        """What comes from imported files has its full name only."""
        self.assertEqual(self.loaded["elsewhere.Customer"](name="Ann").name, "Ann")
        self.assertEqual(self.loaded["elsewhere.Customers"].name, "elsewhere.Customers")
        self.assertIs(
            self.loaded["google.protobuf.Timestamp"],
            type(self.loaded.Order().made_at),
        )
        for name in ("Customer", "Timestamp", "elsewhere", "google"):
            self.assertRaises(AttributeError, getattr, self.loaded, name)

    def test_unknown(self) -> None:
        """A name that is not there is an error that lists what is."""
        error = self.assertRaises(AttributeError, getattr, self.loaded, "Ordres")
        self.assertEqual(str(error), "main.proto has no 'Ordres'; it has Color, Order, Orders")
        error = self.assertRaises(AttributeError, getattr, self.loaded.a.b, "Order")
        self.assertEqual(str(error), "main.proto has no 'Order'; it has Color, Order, Orders")
        for name in ("Order", "a.b.c.Ordres", "", "a.b.c"):
            missing = self.assertRaises(KeyError, self.loaded.__getitem__, name)
            self.assertIn(repr(name), str(missing.args[0]))

    def test_listed(self) -> None:
        """It can be looked at: its services, its names for completion, itself."""
        self.assertEqual(dict(self.loaded.services), {"a.b.c.Orders": self.loaded.Orders})
        self.assertLessEqual({"Color", "Order", "Orders", "file"}, set(dir(self.loaded)))
        self.assertEqual(repr(self.loaded), "<LoadedProto main.proto: Color, Order, Orders>")

    def test_awkwardNames(self) -> None:
        """Names that are attributes already are there as items."""
        loaded = loadProto(self.files(awkward=AWKWARD) / "awkward.proto")
        for name in ("file", "services", "_made", "Same", "Same.Same"):
            self.assertEqual(loaded[name].DESCRIPTOR.full_name, name)
        self.assertEqual(loaded.file.name, "awkward.proto")

    def test_jsonName(self) -> None:
        """A field keeps the JSON name that its file gives it."""
        fields = self.loaded.Order.DESCRIPTOR.fields_by_name
        self.assertEqual(
            (fields["kind"].json_name, fields["made_at"].json_name), ("@kind", "madeAt")
        )

    def test_apart(self) -> None:
        """Two files may define the same names: neither knows the other's."""
        one, two = (
            self.files(main=f"{message('M')[:-1]} {each} }}")
            for each in ("string x = 1;", "int32 x = 1;")
        )
        self.assertEqual(loadProto(one / "main.proto").M(x="a").x, "a")
        self.assertEqual(loadProto(two / "main.proto").M(x=1).x, 1)

    def test_google(self) -> None:
        """Well-known types and googleapis are there without being asked for."""
        loaded = loadProto(self.files(jobs=GOOGLE) / "jobs.proto")
        job = loaded.Job()
        job.status.code = 5
        job.extra.Pack(job.status)
        self.assertEqual(job.extra.type_url, "type.googleapis.com/google.rpc.Status")
        self.assertIn(
            "google.api.http",
            {each.full_name for each in loaded.file.dependencies[0].extensions_by_name.values()},
        )

    def test_proto2(self) -> None:
        """A file in the older language is read as such."""
        text = 'syntax = "proto2"; message M { required int32 x = 1 [default = 5]; }'
        self.assertEqual(loadProto(self.files(old=text) / "old.proto").M().x, 5)


class LookupTests(ProtoCase):
    """Where imports are found."""

    def test_paths(self) -> None:
        """A path may be text, and relative to the working directory."""
        folder = self.files(main=message("Main"))
        relative = os.path.relpath(folder / "main.proto")
        self.assertEqual(loadProto(relative).file.name, "main.proto")
        self.assertIs(loadProto(relative), loadProto(folder / "x" / ".." / "main.proto"))

    def test_siblings(self) -> None:
        """Siblings are found whether imports begin at their folder or at one around it."""
        root = writeFiles(
            Path(self.mktemp()),
            {
                "shop/orders/orders.proto": importing(
                    "lines.proto", "orders/kinds.proto", "shop/common/money.proto"
                ),
                "shop/orders/lines.proto": message("Line"),
                "shop/orders/kinds.proto": message("Kind"),
                "shop/common/money.proto": message("Money"),
            },
        )
        loaded = loadProto(root / "shop/orders/orders.proto")
        for name in ("Line", "Kind", "Money"):
            self.assertEqual(loaded[name].DESCRIPTOR.full_name, name)

    def test_ours(self) -> None:
        """The files of storagegate can be imported."""
        text = 'syntax = "proto3"; import "user.proto"; message Team { user.User head = 1; }'
        loaded = loadProto(self.files(team=text) / "team.proto")
        self.assertEqual(loaded.Team(head={"name": "Ann"}).head.name, "Ann")

    def test_includePaths(self) -> None:
        """Given folders come in their order, before those around the file."""
        root = writeFiles(
            Path(self.mktemp()),
            {
                "one/orders/main.proto": importing("other.proto"),
                "one/other.proto": message("Around"),
                "two/other.proto": message("Two"),
                "three/other.proto": message("Three"),
            },
        )
        main = root / "one/orders/main.proto"
        for folders, found in (
            ((), "Around"),
            ([root / "two", root / "three"], "Two"),
            ([root / "three", str(root / "two")], "Three"),
            (str(root / "two"), "Two"),
        ):
            self.assertEqual(loadProto(main, folders)[found].DESCRIPTOR.name, found)

    def test_home(self) -> None:
        """A file in a given folder has its name from there, and that folder comes first."""
        root = writeFiles(
            Path(self.mktemp()),
            {
                "one/orders/main.proto": importing("other.proto"),
                "one/orders/other.proto": message("Beside"),
                "one/other.proto": message("One"),
                "two/other.proto": message("Two"),
            },
        )
        main = root / "one/orders/main.proto"
        loaded = loadProto(main, [root / "two", root / "one"])
        self.assertEqual(loaded.file.name, "orders/main.proto")
        self.assertTrue(loaded["One"])
        self.assertTrue(loadProto(main, [root / "two"])["Beside"])

    def test_notAnother(self) -> None:
        """The file that was named is loaded, not one of its name in a given folder."""
        root = writeFiles(
            Path(self.mktemp()),
            {"here/main.proto": message("Here"), "there/main.proto": message("There")},
        )
        self.assertTrue(loadProto(root / "here/main.proto", [root / "there"]).Here)
        self.assertTrue(loadProto(root / "here/main.proto", [root / "there", root / "here"]).Here)


class KeepingTests(ProtoCase):
    """Files that are loaded more than once."""

    def test_same(self) -> None:
        """A file that did not change gives the same again; other folders, another."""
        main = self.files(main=message("Main")) / "main.proto"
        loaded = loadProto(main)
        self.assertIs(loadProto(main), loaded)
        self.assertIsNot(loadProto(main, [main.parent.parent]), loaded)

    def test_changed(self) -> None:
        """A file that did, or whose import did, is loaded anew."""
        folder = self.files(main=importing("other.proto"), other=message("Other"))
        first = loadProto(folder / "main.proto")
        (folder / "other.proto").write_text(message("Changed"))
        second = loadProto(folder / "main.proto")
        self.assertEqual(second["Changed"].DESCRIPTOR.name, "Changed")
        self.assertEqual(first["Other"].DESCRIPTOR.name, "Other")
        (folder / "main.proto").write_text(message("Alone"))
        self.assertTrue(loadProto(folder / "main.proto").Alone)

    def test_importGone(self) -> None:
        """An import that has gone is missed, or found where it is now."""
        root = writeFiles(
            Path(self.mktemp()),
            {
                "in/main.proto": importing("other.proto"),
                "in/other.proto": message("Inner"),
                "other.proto": message("Outer"),
            },
        )
        main = root / "in/main.proto"
        self.assertTrue(loadProto(main)["Inner"])
        (root / "in/other.proto").unlink()
        self.assertTrue(loadProto(main)["Outer"])

    def test_bounded(self) -> None:
        """Not more than some files are kept, those that were asked for last."""
        folder = self.files(**{f"f{number}": message("M") for number in range(65)})
        first, second = (loadProto(folder / f"f{number}.proto") for number in (0, 1))
        for number in range(2, 64):
            loadProto(folder / f"f{number}.proto")
        self.assertIs(loadProto(folder / "f0.proto"), first)
        loadProto(folder / "f64.proto")
        self.assertIs(loadProto(folder / "f0.proto"), first)
        self.assertIsNot(loadProto(folder / "f1.proto"), second)


class LateTests(SynchronousTestCase):
    """What a program that never loads a file does not pay for."""

    def test_late(self) -> None:
        """The compiler is imported with the first file, without its import hooks."""
        result = subprocess.run(
            [sys.executable, "-c", LATE],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("grpc_tools._protoc_compiler", result.stdout.split())
        self.assertNotIn("grpc_tools.protoc", result.stdout.split())
