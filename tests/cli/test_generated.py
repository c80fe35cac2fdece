"""Files that are generated from services."""

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.main import main

SOURCE = """
from dataclasses import dataclass

from storagegate import createProtocolGateway, server

@dataclass
class Note:
    \"\"\"A note.\"\"\"
    title: str
    count: int

async def take(note: Note) -> Note:
    return note

Notes = {"name": "a.Notes", "methods": {"Take": take}}
gateway = createProtocolGateway().addService(Notes)
again = gateway
"""


class GeneratedCase(SynchronousTestCase):
    """A module with a gateway, in the working directory."""

    def setUp(self) -> None:
        """Write the module."""
        here = os.getcwd()
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        self.number = 0
        self.module = ""
        self.write(SOURCE)

    def write(self, source: str) -> None:
        """Write the module anew, under another name, because Python imports it once."""
        self.number += 1
        self.module = f"generated{self.number}"
        (self.folder / f"{self.module}.py").write_text(source)
        self.addCleanup(sys.modules.pop, self.module, None)

    def execute(self, *words: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, output and errors."""
        output, errors = StringIO(), StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                code = main(words)
            except SystemExit as error:
                code = int(error.code or 0)
        return code, output.getvalue(), errors.getvalue()


class ProtoTests(GeneratedCase):
    """C{storagegate proto}."""

    def proto(self, *flags: str, name: str = "") -> tuple[int, str, str]:
        """Print the file of the module, with one lock for all its names."""
        return self.execute("proto", self.module + name, "--lock", "notes.lock", *flags)

    def test_prints(self) -> None:
        """The file is printed, the lock is written, and the server should be told."""
        code, text, errors = self.proto()
        self.assertEqual(code, 0, errors)
        self.assertIn("// A note.\nmessage Note {\n  optional string title = 1;", text)
        self.assertIn("set grpc.protoLock to 'notes.lock'", errors)
        self.assertTrue((self.folder / "notes.lock").exists())
        for name in (":gateway", ":Notes"):
            self.assertEqual(self.proto(name=name)[:2], (0, text))

    def test_default(self) -> None:
        """The lock is named after the module, or is the one of the server."""
        self.execute("proto", self.module)
        self.assertTrue((self.folder / f"{self.module}.proto.lock").exists())
        self.write(SOURCE.replace("Gateway()", "Gateway(grpc={'protoLock': 'own.lock'})"))
        code, _, errors = self.execute("proto", self.module)
        self.assertEqual((code, errors), (0, ""))
        self.assertTrue((self.folder / "own.lock").exists())

    def test_function(self) -> None:
        """The result of a function is named as for C{storagegate run}."""
        self.write(SOURCE + "def make():\n    return gateway\n")
        self.assertEqual(self.proto(name=":make()")[:2], (0, self.proto(name=":gateway")[1]))
        self.assertIn("the function needs arguments", self.proto(name=":take()")[2])

    def test_application(self) -> None:
        """A gRPC application with an outdated lock is read nevertheless, and updates it."""
        application = "app = server.grpc().withOptions(grpc={'protoLock': 'notes.lock'})"
        self.proto()
        source = SOURCE.replace("    count: int", "    more: int\n    count: int")
        begin = source.index("gateway = ")
        self.write(source[:begin] + f"{application}.addService(Notes)\n")
        code, text, errors = self.execute("proto", self.module)
        self.assertEqual(code, 0, errors)
        self.assertIn("optional int64 more = 3;", text)

    def test_check(self) -> None:
        """C{--check} changes nothing, and fails if something would change."""
        code, text, errors = self.proto("--check")
        self.assertEqual((code, text), (1, ""))
        self.assertIn("notes.lock is out of date", errors)
        self.assertEqual([*self.folder.glob("*.lock")], [])
        self.proto("--out", "notes.proto")
        self.assertEqual(self.proto("--check", "--out", "notes.proto"), (0, "", ""))
        (self.folder / "notes.proto").write_text("")
        self.assertIn(
            "notes.proto is out of date", self.proto("--check", "--out", "notes.proto")[2]
        )
        self.write(SOURCE.replace("    count: int", "    count: int\n    more: int"))
        self.assertEqual(self.proto("--check")[0], 1)

    def test_refused(self) -> None:
        """A change that breaks the wire is refused with the remedy, which works."""
        self.proto()
        self.write(SOURCE.replace("title: str", "heading: str"))
        code, text, errors = self.proto()
        self.assertEqual((code, text), (1, ""))
        self.assertIn("--rename a.Note.title=heading keeps the number 1", errors)
        code, text, errors = self.proto("--rename", "a.Note.title=heading")
        self.assertEqual(code, 0, errors)
        self.assertIn("optional string heading = 1;", text)
        self.write(SOURCE.replace("title: str", "heading: int"))
        self.assertIn("was optional string and is optional int64", self.proto()[2])
        code, text, _ = self.proto("--remove", "Note.heading")
        self.assertIn("  reserved 1;\n  optional int64 heading = 3;", text)

    def test_packages(self) -> None:
        """Several packages have a file each, and one lock."""
        self.write(SOURCE + "gateway.addService('b.Others', methods={'Take': take})\n")
        code, _, errors = self.proto()
        self.assertEqual(code, 2)
        self.assertIn("--package is one of a, b", errors)
        code, text, _ = self.proto("--package", "b")
        self.assertEqual(code, 0)
        self.assertIn("package b;", text)
        self.assertIn('"a.Note"', (self.folder / "notes.lock").read_text())

    def test_wrong(self) -> None:
        """What is no service, or not there, is a wrong command line."""
        for name, text in (
            ("nothing", "there is no module nothing"),
            (f"{self.module}:nothing", "has no nothing"),
            (f"{self.module}:Note", "is not a gateway, an application or a service"),
            ("os", "os is not a gateway, an application or a service"),
        ):
            code, _, errors = self.execute("proto", name)
            self.assertEqual(code, 2, name)
            self.assertIn(text, errors)
        self.write("1 / 0\n")
        self.assertIn(f"cannot import {self.module}: ZeroDivisionError", self.proto()[2])
        self.write(SOURCE + "other = createProtocolGateway()\n")
        self.assertIn(f"has several: {self.module}:gateway, {self.module}:other", self.proto()[2])
        self.assertIn("--rename is OLD=NEW", self.proto("--rename", "x", name=":gateway")[2])
