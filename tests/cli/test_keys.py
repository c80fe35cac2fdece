"""C{docs/keys.rst} is what the code says of every key."""

import pkgutil
import runpy
import tomllib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

import attrs
from attrs import field, frozen
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.authentication import readRules
from storagegate.auth.jwt import VerificationKey
from storagegate.auth.oauth import DocumentURL
from storagegate.cluster.options import ClusterOptions
from storagegate.core.options import makeOptions, readNumber
from storagegate.daemon.config import CLUSTER_VARIABLES, VAULT_VARIABLES, load
from storagegate.daemon.configkeys import KEYS
from storagegate.daemon.gatewayservice import configureGateway
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.registry import defaultRules
from storagegate.objects.encryption.masterkeys.options import readVault
from tests.support.documents import DOCS, literal, table
from tests.support.modules import CHECKOUT

PAGE = DOCS / "keys.rst"

PROGRAM = runpy.run_path(str(CHECKOUT / "tools" / "keys.py"))

ROOMS = ("auth", "core", "telemetry", "upstream", "gateway")
"""The packages in which there are options of the gateway."""

# What an option is after it was read: there is nothing in it that a file could say.
VALUES = (DocumentURL, VerificationKey)

SAYING = (
    "[gateway.authentication.providers.jwt]",
    "[gateway.authentication.rules]",
    "[gateway.discovery.register]",
)
"""Tables that do something by being there."""


def optionClasses() -> Iterator[type]:
    """Give every class of options, and every class that is in one."""
    for room in ROOMS:
        package = import_module(f"storagegate.{room}")
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for kind in vars(import_module(each.name)).values():
                isOptions = isinstance(kind, type) and kind.__name__.endswith("Options")
                if isOptions and kind is not GatewayOptions and kind.__module__ == each.name:
                    yield from within(kind)


def within(kind: Any) -> Iterator[type]:
    """Give a class of options, and those in its fields."""
    if isinstance(kind, type) and attrs.has(kind) and kind not in VALUES:
        yield kind
        for each in attrs.fields(kind):
            yield from within(each.type)
    for each in get_args(kind):
        yield from within(each)


def covered() -> dict[str, type]:
    """Give the tables that the program knows, with their classes."""
    return {
        title: kind
        for group in PROGRAM["GROUPS"].values()
        for name, root in group.items()
        for title, kind in PROGRAM["tables"](f"gateway.{name}", root)
    }


def titles() -> list[str]:
    """Give the titles of the page's tables of options of the gateway."""
    lines = PAGE.read_text().splitlines()
    start = ".. csv-table:: "
    found = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return [title for title in found if not title.startswith(("[cluster]", "[vault", "[signIn"))]


NO_DEFAULT = ("required", "")


class PageTests(SynchronousTestCase):
    """The page."""

    def test_page(self) -> None:
        """It is what the program prints: python tools/keys.py > docs/keys.rst."""
        self.assertEqual(PAGE.read_text(), PROGRAM["page"]())

    def test_everyKey(self) -> None:
        """Its first table has exactly the keys of the top level, with flag and variable."""
        rows = table(PAGE)
        expected = [
            [
                f"``{key.name}``",
                f"``--{key.name} {key.argument}``" if key.argument else "",
                f"``{key.variable}``",
            ]
            for key in KEYS
        ]
        self.assertEqual([row[:3] for row in rows], expected)
        self.assertTrue(all(row[4] and row[6] for row in rows))

    def test_reloads(self) -> None:
        """It tells what SIGHUP applies: at once, by new workers, or never."""
        applied = {literal(row[0]): row[5] for row in table(PAGE)}
        self.assertEqual(applied["logLevel"], "yes")
        self.assertEqual(applied["service"], "workers")
        self.assertEqual(applied["data"], "no")
        self.assertFalse([key.name for key in KEYS if key.reloads and key.isShared])

    def test_topLevel(self) -> None:
        """The defaults of the top level are TOML that the keys' own readers take."""
        for key, row in zip(KEYS, table(PAGE), strict=True):
            if row[3]:
                [value] = tomllib.loads(f"value = {literal(row[3])}").values()
                self.assertEqual(key.read(value), key.read(key.default), key.name)

    def test_cluster(self) -> None:
        """The table of the cluster has its variables; written with its defaults it is taken."""
        rows = table(PAGE, "[cluster]")
        self.assertEqual({literal(row[1]): literal(row[0]) for row in rows}, CLUSTER_VARIABLES)
        told = {name: told for name, told in PROGRAM["ivars"](ClusterOptions).items() if told}
        self.assertEqual(sorted(told), sorted(each.name for each in attrs.fields(ClusterOptions)))
        lines = [f"{literal(row[0])} = {literal(row[2])}" for row in rows if row[2] != "required"]
        path = self.mktemp()
        needed = ['catalog = ["host=a"]', 'blobs = "files:/b"']
        for text in ([], lines):
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(["[cluster]", *needed, *text]))
            expected = ClusterOptions(catalog=["host=a"], blobs="files:/b")
            self.assertEqual(load({"config": path}, {}).cluster, expected)

    def test_vault(self) -> None:
        """The tables of Vault have its variables; written with their defaults they are taken."""
        found: dict[str, str] = {}
        lines: list[str] = []
        for title in ("vault", "vault.appRole"):
            rows = table(PAGE, f"[{title}]")
            prefix = title.removeprefix("vault").lstrip(".")
            inner = f"{prefix}." if prefix else ""
            found |= {literal(row[1]): f"{inner}{literal(row[0])}" for row in rows if row[1]}
            lines.append(f"[{title}]")
            lines += [f"{literal(r[0])} = {literal(r[2])}" for r in rows if r[2] not in NO_DEFAULT]
            lines.append('roleId = "a"' if prefix else 'address = "https://a:8200"')
        self.assertEqual(found, VAULT_VARIABLES)
        path = self.mktemp()
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        expected = readVault({"address": "https://a:8200", "appRole": {"roleId": "a"}})
        self.assertEqual(load({"config": path}, {}).vault, expected)
        self.assertEqual(len(table(PAGE, "[vault.kubernetes]")), 3)

    def test_covered(self) -> None:
        """Every class of options has its table."""
        kinds = set(optionClasses())
        self.assertGreater(len(kinds), 20)
        self.assertEqual({each.__name__ for each in kinds - set(covered().values())}, set())

    def test_everyTable(self) -> None:
        """Every table that the file may have is there."""
        error = self.assertRaises(
            ValueError, configureGateway, createProtocolGateway(), {"nothing": {}}
        )
        known = {*str(error).partition("the keys are ")[2].split(", ")} - {"trustedProxies"}
        self.assertEqual({each.strip("[]").split(".")[1] for each in titles()}, known)

    def test_meanings(self) -> None:
        """Each field of each class says what it means, and what is no field says nothing."""
        for title, kind in covered().items():
            names = [each.name for each in attrs.fields(kind)]
            told = PROGRAM["ivars"](kind)
            self.assertEqual(sorted(told), sorted(names), title)
            self.assertTrue(all(told.values()), title)

    def test_defaults(self) -> None:
        """Its tables, written as a file with all defaults, are taken and change nothing."""
        lines: list[str] = []
        for title in titles():
            # What is required has no default; a service, a rule and a registry say something.
            isEmpty = "required" in {row[1] for row in table(PAGE, title)}
            if isEmpty or title in SAYING or "SERVICE" in title:
                continue
            lines.append(title)
            for name, default, *_ in table(PAGE, title):
                if default:
                    lines.append(f"{literal(name)} = {literal(default)}")
        plain, told = createProtocolGateway(), createProtocolGateway()
        plain.configureMonitoring(logging={}).configureServiceDiscovery()
        configureGateway(told, tomllib.loads("\n".join(lines))["gateway"])
        self.assertEqual(told.settings, plain.settings)
        self.assertEqual(told.monitoring, plain.monitoring)
        self.assertEqual(told.discovery, plain.discovery)

    def test_rules(self) -> None:
        """So are the rules, where there are the providers that they name."""
        title = "[gateway.authentication.rules]"
        lines = [f"{literal(row[0])} = {literal(row[1])}" for row in table(PAGE, title)]
        self.assertEqual(readRules(tomllib.loads("\n".join(lines)), defaultRules()), defaultRules())


def _small(value: Any) -> int:
    return readNumber(value, 1, 9, "things")


@frozen(kw_only=True)
class Probe:
    """
    What is
    tried.

    @ivar one: How many C{{"a": 1}} there are,
        which L{something<storagegate.some.thing>} counts.
    @ivar two: Less.
    """

    one: int = field(default=3, converter=_small)
    two: int = field(converter=_small)


class ProgramTests(SynchronousTestCase):
    """The program that prints it."""

    def test_ivars(self) -> None:
        """What a class says of its fields is reStructuredText on one line."""
        told = PROGRAM["ivars"](Probe)
        one = 'How many ``{"a": 1}`` there are, which ``something`` counts.'
        self.assertEqual(told, {"one": one, "two": "Less."})
        self.assertEqual(PROGRAM["summary"](Probe), "What is tried.")

    def test_table(self) -> None:
        """A row has the default as TOML has it, and what the reader of the option expects."""
        text = PROGRAM["_optionTable"]("[a.b]", Probe)
        self.assertIn(".. csv-table:: [a.b]\n", text)
        self.assertIn("    ``one``,``3``,a number of things from 1 to 9,", text)
        self.assertIn("    ``two``,required,a number of things from 1 to 9,Less.\n", text)
        self.assertEqual(makeOptions(Probe, {"two": 1}).one, 3)

    def test_unread(self) -> None:
        """A reader that takes everything is a mistake, and no empty cell."""
        self.assertRaises(ValueError, PROGRAM["expected"], str)

    def test_unclosed(self) -> None:
        """So is a brace that is never closed."""
        self.assertRaises(ValueError, PROGRAM["plain"], "C{a")
