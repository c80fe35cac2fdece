"""The documentation says what the code does."""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from docutils.core import publish_doctree
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.commandline import parser as scriptParser
from storagegate.daemon.config import load
from storagegate.daemon.gatewayservice import readMonitoringTable
from storagegate.http.testing import Client
from storagegate.tap import Options
from tests.support import documents
from tests.support.documents import DOCS, codeBlocks, table, unusedLiterals
from tests.support.modules import CHECKOUT
from tests.support.selection import long

README = documents.README.read_text()

START = DOCS / "start.rst"

MIGRATIONS = {
    "express.rst": "From Express",
    "fastapi.rst": "From FastAPI",
    "grpcaio.rst": "From grpc.aio",
}
"""The pages for users of other libraries, with the titles of their tables."""

RUN = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/twistd -n storagegate"
TEST = (
    "python3 -m venv .venv && .venv/bin/pip install '.[test]' &&"
    " .venv/bin/python -m twisted.trial -j 2 tests"
)


class ReadmeTests(SynchronousTestCase):
    """The README's promises that need no daemon."""

    def test_twoCommands(self) -> None:
        """One command sets up and runs, one passes the tests; each stands alone on its line."""
        lines = [line.strip() for line in README.splitlines()]
        self.assertIn(RUN, lines)
        self.assertIn(TEST, lines)

    def test_extras(self) -> None:
        """
        An extra is installed from the checkout, everywhere: the name of the package at an index may
        be somebody else's.
        """
        texts = [*(CHECKOUT / "storagegate").rglob("*.py"), *(CHECKOUT / "docs").glob("*.rst")]
        texts += [CHECKOUT / name for name in ("README.rst", "CONTRIBUTING.rst")]
        for path in texts:
            self.assertNotRegex(path.read_text(), r"pip install [\"']?storagegate", str(path))

    def test_ciRunsTheCommand(self) -> None:
        """What the CI runs is the README's own command, word for word."""
        self.assertIn(TEST, (CHECKOUT / ".ci" / "run").read_text())

    def test_size(self) -> None:
        """It has one page that sells and one that starts."""
        self.assertLess(len(README.encode()), 6 * 1024)

    def test_keyCommands(self) -> None:
        """The commands for keys are ones that the script understands."""
        lines = re.findall(r"storagegate (keys (?:create|list|revoke)[^`\n]*)", START.read_text())
        self.assertEqual(len(lines), 4)
        for line in lines:
            scriptParser().parse_args(shlex.split(line))

    def test_daemonCommands(self) -> None:
        """The flags of the daemon are ones that it has, and the file has the same keys."""
        lines = re.findall(r"``twistd -n storagegate ([^`]+)``", START.read_text())
        self.assertEqual(lines, ["--config storagegate.toml"])
        for line in lines:
            Options().parseOptions(shlex.split(line))
        [block] = codeBlocks(START, "toml")
        path = Path(self.mktemp())
        path.write_text(block.code)
        configuration = load({"config": str(path)}, {})
        self.assertEqual(configuration.workers, 2)
        self.assertTrue(readMonitoringTable(configuration.gateway).tracing.enabled)

    def test_folders(self) -> None:
        """What it says of C{deploy/} is there."""
        names = {path.name for path in (CHECKOUT / "deploy").iterdir()}
        self.assertLessEqual({"Containerfile", "grafana.json", "storagegate.service"}, names)
        self.assertTrue(any(name.endswith(".socket") for name in names))

    def test_application(self) -> None:
        """The application that it shows answers as it says."""
        app = self.application(0)
        response = Client(app).post("/hello/Ada", json={"friends": ["Alan"]})
        self.assertEqual(response.status, 201)
        self.assertEqual(response.json(), {"hello": "Ada", "and": ["Alan"]})
        # As curl -d sends it: the response says what is wrong, and nothing is logged.
        form = {"content-type": "application/x-www-form-urlencoded"}
        for body in ('{"friends": ["Alan"]}', ""):
            response = Client(app).post("/hello/Ada", body=body, headers=form)
            self.assertEqual(response.status, 415)
            self.assertIn("application/json", response.json()["error"])
        self.assertEqual(Client(app).post("/hello/Ada", json={}).json()["and"], [])

    def test_service(self) -> None:
        """So has the gRPC application the methods that it says, with their kinds."""
        methods = self.application(1).services["Greeter"].methods
        kinds = {name: method.streaming for name, method in methods.items()}
        self.assertEqual(kinds, {"greet": "none", "count": "server"})

    def test_gateway(self) -> None:
        """And the gateway, on ports that no other program of the page has."""
        gateway = self.named("gateway", 2)
        methods = gateway.services["Greeter"].methods
        kinds = {name: method.streaming for name, method in methods.items()}
        self.assertEqual(kinds, {"greet": "none", "count": "server"})
        schema = gateway.services["Greeter"].methods["greet"].input
        self.assertEqual(schema["required"], ["name"])
        self.assertEqual(methods["greet"].outputType.__name__, "Greeting")
        settings = gateway.settings
        ports = (settings.port, *(settings.of(name).port for name in ("grpc", "tcp", "udp")))
        self.assertEqual(ports, (8088, 50054, 9112, 9113))

    def application(self, position: int) -> Any:
        """Give the application of one of its programs."""
        return self.named("app", position)

    def named(self, name: str, position: int) -> Any:
        """Give what has a name in one of its programs."""
        names: dict[str, Any] = {"__name__": "documentation"}
        exec(codeBlocks(START, "python")[position].code, names)
        return names[name]

    def test_examples(self) -> None:
        """The examples that it names are there, and none is left out."""
        named = set(re.findall(r"examples/(\w+\.py)", START.read_text()))
        self.assertEqual(named, {path.name for path in (CHECKOUT / "examples").glob("*.py")})


class PageTests(SynchronousTestCase):
    """Every page."""

    def test_architecture(self) -> None:
        """What the page of the architecture and that for contributors name exists."""
        package = CHECKOUT / "storagegate"
        files = [f"/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")]
        folders = {f"{Path(file).parent.as_posix()}/" for file in files}
        text = (DOCS / "architecture.rst").read_text() + (CHECKOUT / "CONTRIBUTING.rst").read_text()
        for name in re.findall(r"``([\w/]{2,}(?:\.py|/))``", text):
            if "NAME" in name:
                continue
            known = folders if name.endswith("/") else files
            exists = any(each.endswith(f"/{name}") for each in known)
            self.assertTrue(exists or (CHECKOUT / name).exists(), name)

    def test_clusterCommands(self) -> None:
        """The commands of the page of the cluster are ones that the script understands."""
        text = " ".join((DOCS / "cluster.rst").read_text().split())
        lines = re.findall(r"``storagegate (cluster [a-z][^`]+|keys [^`]+)``", text)
        self.assertGreater(len(lines), 5)
        for line in lines:
            scriptParser().parse_args(shlex.split(line))

    def test_links(self) -> None:
        """Every file and every section that a page names is there; the index names every page."""
        for page in pages():
            text = page.read_text()
            for target in re.findall(r"<([\w/]+\.rst)>`_", text):
                self.assertTrue((page.parent / target).is_file(), f"{page}: {target}")
            for target, anchor in re.findall(r"<([\w/]*(?:\.rst)?)#([\w-]+)>`_", text):
                there = page.parent / target if target else page
                self.assertIn(anchor, anchors(there), page)
        listed = set(re.findall(r"<(\w+\.rst)>`_", (DOCS / "index.rst").read_text()))
        self.assertEqual(listed, {page.name for page in DOCS.glob("*.rst")} - {"index.rst"})

    def test_picture(self) -> None:
        """The picture of the daemon is the one that tools/wires.py draws."""
        drawn = subprocess.run(
            [sys.executable, str(CHECKOUT / "tools" / "wires.py")],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(drawn.stdout, (DOCS / "wires.svg").read_text())

    def test_tables(self) -> None:
        """Every row of every table has as many cells as its table."""
        for page in pages():
            for title in re.findall(r"^\.\. csv-table:: ?(.*)$", page.read_text(), re.MULTILINE):
                self.assertTrue(table(page, title), (page, title))

    def test_titles(self) -> None:
        """Every page begins with its title, and no heading has its underline on the same line."""
        for page in pages():
            text = page.read_text()
            self.assertTrue(re.match(r"\S.*\n={2,}\n", text), page)
            joined = [line for line in text.splitlines() if re.match(r"\w[^`]* ([=~.-])\1+$", line)]
            self.assertEqual(joined, [], page)

    @long("takes seconds")
    def test_markup(self) -> None:
        """Every page is what reStructuredText can read."""
        for page in pages():
            told = StringIO()
            publish_doctree(
                page.read_text(),
                source_path=str(page),
                settings_overrides={
                    "warning_stream": told,
                    "report_level": 2,
                    "halt_level": 5,
                    "syntax_highlight": "none",
                },
            )
            self.assertEqual(told.getvalue(), "")


class MigrationTests(SynchronousTestCase):
    """The pages for users of other libraries; the tests of each package run their programs."""

    def test_tables(self) -> None:
        """Each has twenty things at least, with code that its programs contain and a difference."""
        for name, title in MIGRATIONS.items():
            rows = table(DOCS / name, title)
            self.assertGreaterEqual(len(rows), 20, name)
            self.assertEqual(unusedLiterals(DOCS / name, title), [], name)
            for row in rows:
                self.assertTrue(all(row) and row[1].startswith("``"), row)
                self.assertTrue(row[2].endswith("."), row)

    def test_theirs(self) -> None:
        """The programs of the other libraries in Python can be compiled."""
        for name in ("fastapi.rst", "grpcaio.rst"):
            [block] = codeBlocks(DOCS / name, "py")
            compile(block.code, name, "exec")

    def test_commands(self) -> None:
        """The script understands their commands."""
        for name in MIGRATIONS:
            [block] = codeBlocks(DOCS / name, "sh")
            for line in block.code.strip().splitlines():
                program, *words = shlex.split(line)
                self.assertEqual(program, "storagegate")
                scriptParser().parse_args(words)

    def test_unused(self) -> None:
        """Code of a table that no program has is found."""
        page = Path(self.mktemp())
        page.write_text(
            ".. code-block:: python\n\n    app.run(3000)\n\n"
            ".. csv-table:: From X\n    :header: X, here\n\n"
            '    ``listen``,"``app.run(3000)``, ``app.fly()``"\n'
        )
        self.assertEqual(unusedLiterals(page, "From X"), ["app.fly()"])


def anchors(page: Path) -> set[str]:
    """Give the names by which the sections of a page are linked to."""
    titles = re.findall(r"^(.+)\n[-=~]{3,}$", page.read_text(), re.MULTILINE)
    return {re.sub(r"\W+", "-", title.lower()) for title in titles}


def pages() -> list[Path]:
    """Give the files that readers read."""
    return [documents.README, CHECKOUT / "bench" / "README.rst", *sorted(DOCS.glob("*.rst"))]
