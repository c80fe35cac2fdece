"""What is written of the gateway, held against its code."""

import re
import sys
import tomllib
from inspect import signature
from types import ModuleType
from typing import Any

from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core import codecs
from storagegate.core.context import (
    MAX_DEADLINE_MS,
    MAX_TOKEN_LENGTH,
    REQUEST_SECONDS,
    ClientInfo,
    RequestContext,
    Tracing,
)
from storagegate.core.definitions import ServiceAuthentication, ServiceDefinition, ServiceMethod
from storagegate.core.errors import CODES, GRPC_NAMES, codedError
from storagegate.core.shares import shareOf
from storagegate.daemon.gatewayservice import configureGateway
from storagegate.gateway.client.client import GatewayClientOptions, RemoteGateway
from storagegate.gateway.gateway import (
    DEFAULT_GRACE_MS,
    RUN_GRACE_MS,
    ProtocolGateway,
    createProtocolGateway,
)
from storagegate.gateway.messages import frames, interfaces, json, session
from storagegate.gateway.messages.json import messageEnd, messageError, messageItem, messageResult
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.registry import (
    ITransport,
    Transport,
    defaultRules,
    transportNames,
    transports,
)
from storagegate.gateway.transports.udp import peer, replycache
from storagegate.net.websocket import connection
from storagegate.rpc.protos import ourProto
from tests.support.documents import DOCS, codeBlocks, literal, table
from tests.support.signatures import firstWords

PAGE = DOCS / "gateway.rst"

# What an application calls, and no user.
ROOMS_PARTS = {
    "addKnown",
    "authenticate",
    "authentication",
    "configureFor",
    "invoker",
    "logToStandardError",
    "openFor",
    "place",
    "ports",
    "protos",
    "setHealth",
    "settings",
    "sharedListeners",
    "sharedMemory",
    "start",
    "tracer",
}


def shown(attribute: Any) -> str:
    """Give an option's default as a table has it."""
    default = attribute.default
    if repr(default) == "NOTHING":
        return "required"
    if hasattr(default, "factory"):
        return "``{}``" if default.factory is dict else ""
    return f"``{default!r}``"


class OptionTests(SynchronousTestCase):
    """The tables of options."""

    def test_options(self) -> None:
        """It has exactly the options of the code, in their order, with their defaults."""
        rows = [[literal(row[0]), row[1]] for row in table(PAGE, "Options")]
        common = [
            [each.alias, shown(each)]
            for each in fields(GatewayOptions)
            if each.name not in ("switches", "groups")
        ]
        flags = [[row.flag, "``None``"] for row in transports()]
        self.assertEqual(rows, [*common, *flags, *([name, ""] for name in transportNames())])

    def test_clientOptions(self) -> None:
        """The options of clients, with their defaults, and the parameters of their calls."""
        rows = [[literal(row[0]), row[1]] for row in table(PAGE, "Options of createGatewayClient")]
        expected = [[each.alias, shown(each)] for each in fields(GatewayClientOptions)]
        self.assertEqual(rows, expected)
        names = re.findall(
            r"``(\w+)``", " ".join(row[0] for row in table(PAGE, "Arguments of call"))
        )
        parameters = [*signature(RemoteGateway.call).parameters][3:]
        self.assertEqual(sorted(names), sorted(parameters))
        urls = " ".join(row[0] for row in table(PAGE, "URLs of clients"))
        schemes = [scheme.name for row in transports() for scheme in row.schemes]
        self.assertEqual(sorted(re.findall(r"``(\w+)://", urls)), sorted(schemes))

    def test_places(self) -> None:
        """Of the groups, it has what the file has not: where their wires are."""
        settings = GatewayOptions()
        groups = {name: settings.of(name) for name in transportNames()}
        expected = [
            (name, str(group.port)) for name, group in groups.items() if hasattr(group, "port")
        ]
        rows = [(literal(row[0]), row[1]) for row in table(PAGE, "Places")]
        self.assertEqual(sorted(rows), sorted(expected))
        self.assertFalse(any(groups[name].hostname for name, _ in rows))

    def test_others(self) -> None:
        """All others are on the page that the code prints, and each of its sections is linked."""
        text = PAGE.read_text()
        titles = re.findall(r"^\.\. csv-table:: (.*)\n    :header: option, ", text, re.MULTILINE)
        self.assertEqual(titles, ["Options", "Options of createGatewayClient"])
        sections = re.findall(r"^(.+)\n~+$", (DOCS / "keys.rst").read_text(), re.MULTILINE)
        self.assertEqual(len(sections), 5)
        for title in sections:
            anchor = re.sub(r"\W+", "-", title.lower())
            self.assertIn(f"<keys.rst#{anchor}>`_", text)

    def test_definitions(self) -> None:
        """So have those of services and methods, and of the context."""
        for title, given in (
            ("Service", [each.name for each in fields(ServiceDefinition)]),
            ("Method", [each.name for each in fields(ServiceMethod)]),
            ("Context", RequestContext.__struct_fields__),
        ):
            names = [literal(row[0]) for row in table(PAGE, title)]
            # Models are made of annotations, or are the input and output that were given.
            expected = [name for name in given if not name.endswith("Type")]
            self.assertEqual(names, expected, title)
        texts = {literal(row[0]): row[1] for row in table(PAGE, "Context")}
        clients = [each.name for each in fields(ClientInfo)]
        for name, parts in (("client", clients), ("tracing", Tracing.__struct_fields__)):
            for part in parts:
                self.assertIn(f"``{part}``", texts[name])
        text = next(row[2] for row in table(PAGE, "Service") if row[0] == "``authentication``")
        for each in fields(ServiceAuthentication):
            self.assertIn(f"``{each.name}``", text)

    def test_members(self) -> None:
        """Every member of a gateway is there, with the graces that it has."""
        rows = table(PAGE, "Gateway")
        members = {name for name in dir(ProtocolGateway) if name[0] != "_"}
        self.assertEqual(sorted(firstWords(rows)), sorted(members - ROOMS_PARTS))
        names = {row[0] for row in rows}
        self.assertIn(f"``stop(graceMs={DEFAULT_GRACE_MS})``", names)
        self.assertIn(f"``run(graceMs={RUN_GRACE_MS})``", names)

    def test_tables(self) -> None:
        """The page names every table of the configuration file; the gateway knows each."""
        text = PAGE.read_text().partition("The tables are ")[2].partition(", each with")[0]
        names = text.split("``")[1::2]
        error = self.assertRaises(
            ValueError, configureGateway, createProtocolGateway(), {"nothing": {}}
        )
        known = str(error).partition("the keys are ")[2].split(", ")
        known.remove("trustedProxies")
        self.assertEqual(sorted(names), sorted(known))

    def test_file(self) -> None:
        """The files that this page and that of the configuration show are right."""
        module: Any = ModuleType("orders")
        module.validate = lambda apiKey, context: None
        sys.modules["orders"] = module
        self.addCleanup(sys.modules.pop, "orders")
        for page in (PAGE, DOCS / "configuration.rst"):
            tables = [tomllib.loads(block.code) for block in codeBlocks(page, "toml")]
            [shown] = [each["gateway"] for each in tables if "gateway" in each]
            gateway = createProtocolGateway()
            configureGateway(gateway, shown)
            self.assertEqual(gateway.settings.of("http").basePath, "/v1")
            self.assertIn("apikey", gateway.authentication.providers)


class ShapeTests(SynchronousTestCase):
    """What goes over the wires."""

    def test_codes(self) -> None:
        """The table of errors is that of the code."""
        rows = [
            (literal(code), int(status), literal(name))
            for code, status, name, _ in table(PAGE, "Codes")
        ]
        expected = [(code, http, GRPC_NAMES[number]) for code, (http, number) in CODES.items()]
        self.assertEqual(rows, expected)

    def test_frames(self) -> None:
        """So is that of the types of frames."""
        for number, name, _, _ in table(PAGE, "Frame types"):
            self.assertEqual(getattr(frames, literal(name)), int(number))
        self.assertEqual(len(table(PAGE, "Frame types")), frames.GOING_AWAY)

    def test_messages(self) -> None:
        """What the server says has the keys, in their order, that the table says."""
        error = codedError("NOT_FOUND", "nothing", {"a": 1})
        made = [messageResult(1, "m", {}), messageItem(1, {}), messageEnd(1)]
        made.append(messageError(1, error))
        told = [literal(row[1]) for row in table(PAGE, "Messages") if row[0] == "server"]
        self.assertEqual([keysOf(text) for text in told], [list(each) for each in made])
        self.assertIn("{code, message, details}", told[-1])
        self.assertEqual(list(made[-1]["error"]), ["code", "message", "details"])

    def test_rules(self) -> None:
        """It is told for every wire where a token is."""
        rows = [literal(row[0]) for row in table(PAGE, "Tokens and keys")]
        self.assertEqual(rows, list(defaultRules()))

    def test_transport(self) -> None:
        """The fields of a row, with their defaults, and the methods of a listener."""
        rows = [[literal(row[0]), row[1]] for row in table(PAGE, "Transport")]
        self.assertEqual(rows, [[each.alias, shown(each)] for each in fields(Transport)])
        names = firstWords(table(PAGE, "Listener"))
        self.assertEqual(names, list(ITransport))

    def test_storage(self) -> None:
        """The methods of Storage are those of the code, with their kinds."""
        methods = ourProto("storage.proto").services["storagegate.Storage"].methods
        rows = [(literal(row[0]), literal(row[1])) for row in table(PAGE, "Storage methods")]
        self.assertEqual(rows, [(name, each.streaming) for name, each in methods.items()])

    def test_limits(self) -> None:
        """The limits that have no option are those of the code."""
        expected = [
            session.CALLS_OF_A_CONNECTION,
            interfaces.CALLS_OF_A_LISTENER,
            shareOf(interfaces.CALLS_OF_A_LISTENER),
            codecs.MAX_DEPTH,
            codecs.MAX_CONTAINERS,
            codecs.MAX_LARGE_LEVELS,
            MAX_TOKEN_LENGTH,
            session.MAX_ID_LENGTH,
            MAX_DEADLINE_MS,
            int(REQUEST_SECONDS),
            session.ITEMS_AHEAD,
            json.MAX_ANSWER,
            connection.MAX_UNSENT,
            connection.MAX_EMPTY_FRAMES,
            int(replycache.SECONDS),
            replycache.MAX_ANSWERS,
            peer.WINDOW,
            peer.DATAGRAMS_A_SECOND,
        ]
        rows = [row[1].replace(";", " ").split()[0] for row in table(PAGE, "Limits")]
        self.assertEqual(rows, [str(number) for number in expected])


class ProgramTests(SynchronousTestCase):
    """The programs that need no socket."""

    def test_programs(self) -> None:
        """The service has the methods that the page calls; the guarded one is guarded."""
        names: dict[str, Any] = {"__name__": "documentation"}
        for block in codeBlocks(PAGE, "python"):
            if not block.code.startswith("# datagram.py"):
                exec(compile(block.code, str(PAGE), "exec"), names)
        kinds = {
            name: method.streaming
            for name, method in names["gateway"].services["Orders"].methods.items()
        }
        self.assertEqual(kinds, {"create": "none", "get": "none", "list": "server"})
        self.assertTrue(names["guarded"].services["Orders"].authentication.required)
        self.assertEqual(set(names["guarded"].authentication.providers), {"apikey", "jwt"})
        # It is part of an application.
        self.assertRaises(RuntimeError, names["gateway"].configureTCP, port=1)


def keysOf(text: str) -> list[str]:
    """Give the keys of an object as the page writes one."""
    flat = text.strip("{}").partition(": {")[0]
    return [each.partition(":")[0].strip() for each in flat.split(",")]
