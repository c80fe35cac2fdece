"""The gateway bench's own parts: what is asked, who is asked when, figures. Nothing is timed."""

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import echoload, gatewaycases, goals, invoking, peers, results
from bench.bench_gateway import readOptions, takeTurns
from bench.gatewaycases import CASES, INVOKER
from bench.gatewaymeasuring import GatewayServer, Seen, makeCell
from bench.gatewayrecipes import RECIPES, SERVERS, chooseRecipes
from bench.grpcrecipes import ECHO
from bench.processes import FLOOR_NAME
from storagegate.core.context import ClientInfo
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import CallCredentials
from storagegate.gateway.messages.frames import REQUEST, decodeFrame
from storagegate.rpc import loadProto
from tests.support.selection import long

RUN = results.Run("2026-03-07", "Z80", 2, "6.1", "ext4", 3, 4, {"ws": "8.23"}, "gateway")


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options all wires and the invoker are measured, three rounds each."""
        options = readOptions([])
        self.assertEqual(options.cases, [*CASES, INVOKER])
        self.assertEqual(options.servers, list(SERVERS))
        self.assertEqual((options.rounds, options.seconds, options.quick), (3, 4, False))

    def test_quick(self) -> None:
        """A quick run has one round of a second in each cell."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds, options.quick), (1, 1, True))

    def test_turns(self) -> None:
        """Each round has every server of the wire, and begins with another."""
        folder = Path(self.mktemp())
        folder.mkdir()
        servers = [GatewayServer(recipe, folder) for recipe in RECIPES]
        turns = list(takeTurns(servers, CASES["websocket"], 2))
        names = [server.recipe.name for server in turns]
        peers = ["floor", "autobahn", "ws"]
        self.assertEqual(names, ["storagegate", *peers, *peers, "storagegate"])
        self.assertEqual({server.recipe.wire for server in turns}, {"websocket"})


@long("a check of CI")
class MessageTests(SynchronousTestCase):
    """What is asked."""

    def test_sizes(self) -> None:
        """The JSON of every wire has 128 bytes; gRPC has the same text."""
        self.assertEqual((len(gatewaycases.POSTED), len(gatewaycases.CALL)), (128, 128))
        self.assertEqual(json.loads(gatewaycases.POSTED), {"text": gatewaycases.TEXT})
        note = loadProto(ECHO).Note.FromString(gatewaycases.NOTE)
        self.assertEqual((note.text, note.copies), (gatewaycases.TEXT, 0))
        self.assertEqual(gatewaycases.FRAMED_NOTE[5:], gatewaycases.NOTE)

    def test_frame(self) -> None:
        """TCP and UDP have the call as a frame, with ten digits to count in."""
        frame = decodeFrame(gatewaycases.FRAME, 1000)
        self.assertEqual((frame.type, frame.payload), (REQUEST, gatewaycases.CALL))
        self.assertEqual(gatewaycases.FRAME.count(b"0000000000"), 1)

    def test_message(self) -> None:
        """A WebSocket has it as masked text."""
        head, key, masked = (
            gatewaycases.MESSAGE[:4],
            gatewaycases.MESSAGE[4:8],
            gatewaycases.MESSAGE[8:],
        )
        self.assertEqual(head, b"\x81\xfe\x00\x80")
        text = bytes(byte ^ key[index % 4] for index, byte in enumerate(masked))
        self.assertEqual(text, gatewaycases.CALL)

    def test_client(self) -> None:
        """The client is told the wire, the port and where the message lies."""
        load = echoload.Load("ws", 64, 4, Path("/m"), "/ws")
        words = echoload.commandLine(Path("/e"), 80, load)
        expected = "/e -m ws -p 80 -c 64 -d 4 -f /m -u /ws"
        self.assertEqual(" ".join(words), expected)


@long("a check of CI")
class InvokerTests(SynchronousTestCase):
    """The invoker alone."""

    def test_steps(self) -> None:
        """A call is answered, and none of its steps is left out."""
        invoker, client = invoking.makeInvoker(), ClientInfo("c", "127.0.0.1", 1)
        answer = invoking.callOnce(invoker, client, CallCredentials("key"))
        self.assertEqual(answer, {"text": gatewaycases.TEXT})
        refused = (invoker, client, CallCredentials("other"))
        error = self.assertRaises(ServiceError, invoking.callOnce, *refused)
        self.assertEqual(error.code, "UNAUTHENTICATED")
        bound = invoker.find("Echo", "echo")
        self.assertFalse(bound.isPublic)
        for step in (bound.rates, bound.input, bound.output, bound.service.middleware):
            self.assertTrue(step)
        self.assertIsNotNone(bound.service.authentication.authorize)
        self.assertTrue(invoker.observers)

    def test_measure(self) -> None:
        """Calls come in batches, for as long as was asked."""
        calls, took = invoking.measure(0.001)
        self.assertEqual(calls % invoking.BATCH, 0)
        self.assertGreaterEqual(took, 0.001)


@long("a check of CI")
class FigureTests(SynchronousTestCase):
    """Figures and goals."""

    def cell(self, server: str, case: str, rate: float) -> results.Cell:
        """Make a measurement of a second."""
        connections = 1 if case == INVOKER else 64
        seen = Seen(int(rate), 1.0, 1000, 0.5, 1.5, "")
        return makeCell(server, case, connections, seen, 0.5, 0.25)

    def test_cell(self) -> None:
        """Rates are of calls, and CPU time is that of one."""
        cell = self.cell("us", "tcp", 1000)
        self.assertEqual((cell.rate, cell.cpuMicrosPerRequest), (1000, 500))
        self.assertEqual((cell.serverCpu, cell.clientCpu, cell.p99Ms), (0.5, 0.25, 1.5))

    def test_goals(self) -> None:
        """Every goal speaks of servers and wires that a default run measures."""
        measured = {(recipe.wire, recipe.name) for recipe in RECIPES}
        for goal in goals.GATEWAY_GOALS:
            for server in (goals.OURS, goal.against):
                self.assertIn((goal.case, server), measured)
            self.assertIn(goal.connections, CASES[goal.case].connections)

    def test_invokerLimit(self) -> None:
        """What a call of the invoker takes is held against how fast the machine is."""
        rounds = [self.cell("storagegate", INVOKER, 80_000), self.cell("twisted", "tcp", 40_000)]
        verdict = goals.verdicts(results.Results([RUN, *rounds]))[-1]
        self.assertEqual((verdict.measured, verdict.reached), ("25", False))
        faster = [self.cell("storagegate", INVOKER, 90_000), rounds[1]]
        self.assertTrue(goals.verdicts(results.Results([RUN, *faster]))[-1].reached)
        alone = goals.verdicts(results.Results([RUN, rounds[0]]))[-1]
        self.assertIsNone(alone.measured)


@long("a check of CI")
class RecipeTests(SynchronousTestCase):
    """The servers of a run."""

    def setUp(self) -> None:
        """Look for peers where there are none."""
        self.peers = Path(self.mktemp()).absolute()
        self.patch(peers, "peersFolder", lambda: self.peers)

    def test_choice(self) -> None:
        """A run has the servers that were named, of the wires that were."""
        chosen = chooseRecipes(["storagegate", "ws"], ["websocket", "tcp"])
        found = [(recipe.wire, recipe.name) for recipe in chosen]
        expected = [("websocket", "storagegate"), ("websocket", "ws"), ("tcp", "storagegate")]
        self.assertEqual(found, expected)

    def test_missingPeer(self) -> None:
        """A peer that is not installed is named, with how to get it."""
        for recipe in RECIPES:
            if recipe.name not in (goals.OURS, FLOOR_NAME):
                error = self.assertRaises(FileNotFoundError, recipe.describe)
                self.assertIn("setup_peers.sh", str(error))

    def test_applications(self) -> None:
        """Every application is there, and is told its port."""
        for part in ("core", "grpc"):
            (self.peers / part / "bin").mkdir(parents=True)
            (self.peers / part / "bin" / "python").touch()
        (self.peers / "node" / "node_modules").mkdir(parents=True)
        for recipe in RECIPES:
            if recipe.environment.get("NODE_ENV"):
                folder = Path(self.mktemp())
                folder.mkdir()
                recipe.prepare(folder, 77)
                self.assertTrue((folder / f"{recipe.name}_app.mjs").is_file())
                continue
            _, app, port, *_ = recipe.command(Path("/x"), 77)
            self.assertTrue(Path(app).exists(), app)
            self.assertEqual(port, "77")
