"""The HTTP bench's own parts: what is asked, what is checked, its figures. Nothing is timed."""

from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from bench import httpcases, httprecipes, peers, wrk
from bench.bench_http import readOptions, takeTurns
from bench.httpmeasuring import HTTPServer, complaint, makeCell, makeFiles
from bench.measuring import MeasureError
from bench.processes import Answer
from tests.support.selection import long

CASES = httpcases.CASES
NO_ERRORS = wrk.Errors(0, 0, 0, 0, 0)


def report(**changes: object) -> wrk.Report:
    """Make what the client reports of a thousand good answers in two seconds."""
    fields: dict[str, object] = {
        "requests": 1000,
        "seconds": 2.0,
        "received": 200_000_000,
        "p50Ms": 1.5,
        "p99Ms": 4.0,
        "errors": NO_ERRORS,
    }
    return wrk.Report(**{**fields, **changes})  # type: ignore[arg-type]


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options all cases run on all servers, three rounds each."""
        options = readOptions([])
        self.assertEqual(options.cases, list(CASES))
        self.assertEqual(options.servers, list(httprecipes.RECIPES))
        self.assertEqual((options.rounds, options.seconds, options.quick), (3, 4, False))

    def test_quick(self) -> None:
        """A quick run has one round of a second in each cell."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds, options.quick), (1, 1, True))

    def turns(self, case: str, rounds: int) -> list[tuple[str, int]]:
        """List who is measured in a case, of three servers, with the number of routes."""
        folder = Path(self.mktemp())
        folder.mkdir()
        names = ["storagegate", "klein", "nginx"]
        recipes = httprecipes.chooseRecipes(names, CASES.values(), folder)
        servers = [HTTPServer(recipe, folder) for recipe in recipes]
        turns = takeTurns(servers, CASES[case], rounds)
        return [(server.recipe.name, server.recipe.routes) for server in turns]

    def test_turns(self) -> None:
        """Each round has every server, and begins with another."""
        names = [name for name, _ in self.turns("static16k", 3)]
        first, second, third = names[:3], names[3:6], names[6:]
        self.assertEqual(first, ["storagegate", "klein", "nginx"])
        self.assertEqual(second, ["klein", "nginx", "storagegate"])
        self.assertEqual(third, ["nginx", "storagegate", "klein"])

    def test_able(self) -> None:
        """nginx is asked for files alone; a hundred routes are those of servers of their own."""
        self.assertEqual(self.turns("hello", 1), [("storagegate", 10), ("klein", 10)])
        self.assertEqual(self.turns("route100", 1), [("storagegate", 100), ("klein", 100)])


@long("a check of CI")
class CaseTests(SynchronousTestCase):
    """What is asked, and what is taken for an answer."""

    def setUp(self) -> None:
        """Make the files that are served."""
        self.files = makeFiles(Path(self.mktemp()))

    def check(self, name: str, **changes: object) -> None:
        """Check the right answer, but for some changes."""
        case = CASES[name]
        body = httpcases.rightBody(case, self.files)
        fields = {"status": 200, "contentType": case.contentType, "body": body}
        answer = Answer(**{**fields, **changes})  # type: ignore[arg-type]
        httpcases.checkAnswer(case, answer, self.files)

    def test_rightAnswers(self) -> None:
        """The right answer is taken in every case; JSON may have other white space and order."""
        for name in CASES:
            self.check(name)
        self.check("route10", body=b'{ "id": "abc", "route": 9 }')

    def test_wrongAnswers(self) -> None:
        """Another status, type or body is not taken."""
        for name in CASES:
            wrong: list[dict[str, object]] = [
                {"status": 404},
                {"status": 304},
                {"contentType": "text/html"},
                {"body": b""},
                {"body": httpcases.rightBody(CASES[name], self.files) + b"x"},
            ]
            for changes in wrong:
                with self.assertRaises(MeasureError, msg=f"{name} {changes}"):
                    self.check(name, **changes)

    def test_otherDocument(self) -> None:
        """JSON that says something else is not taken."""
        self.assertRaises(MeasureError, self.check, "route10", body=b'{"route":9,"id":"x"}')

    def test_files(self) -> None:
        """The files have their sizes, and each case's size is that of its answer."""
        self.assertEqual(CASES["static16k"].size, 16 << 10)
        self.assertEqual(CASES["static10m"].size, 10 << 20)
        for case in CASES.values():
            self.assertEqual(len(httpcases.rightBody(case, self.files)), case.size)

    def test_echo(self) -> None:
        """What is posted is JSON of a KiB, and the answer is the same document."""
        case = CASES["echo"]
        self.assertEqual((case.method, len(case.posted)), ("POST", 1024))
        self.assertEqual(msgspec.json.decode(case.wanted), httpcases.echoDocument())

    def test_routes(self) -> None:
        """The last of ten, and of a hundred, routes is asked for."""
        found = [(CASES[name].target, CASES[name].routes) for name in ("route10", "route100")]
        self.assertEqual(found, [("/r9/abc", 10), ("/r99/abc", 100)])


@long("a check of CI")
class WrkTests(SynchronousTestCase):
    """How the client is run, and what it says."""

    OUTPUT = (
        b"Running 1s test @ http://127.0.0.1:1/hello\n  1000 requests in 2.00s, 1.00MB read\n\n"
        b'{"requests":1000,"seconds":2.000000,"received":200000000,"p50Ms":1.500,"p99Ms":4.000,'
        b'"errors":{"connect":0,"read":0,"write":0,"status":0,"timeout":0}}\n'
    )

    def test_commandLine(self) -> None:
        """One thread, the case's connections; what is posted lies in a file."""
        words = wrk.commandLine("wrk", 80, wrk.Load("/hello", 64, 4))
        self.assertEqual(words[:6], ["wrk", "-t1", "-c64", "-d4s", "--timeout", "6s"])
        self.assertEqual(words[-1], "http://127.0.0.1:80/hello")
        posting = wrk.commandLine("wrk", 80, wrk.Load("/echo", 64, 4, Path("/b")))
        self.assertEqual(posting[-3:], ["http://127.0.0.1:80/echo", "--", "/b"])

    def test_report(self) -> None:
        """The report is the last line."""
        self.assertEqual(wrk.readReport(self.OUTPUT), report())

    def test_noReport(self) -> None:
        """Anything else is an error that shows what came."""
        error = self.assertRaises(RuntimeError, wrk.readReport, b"unable to connect\n")
        self.assertIn("unable to connect", str(error))


@long("a check of CI")
class FigureTests(SynchronousTestCase):
    """Figures out of what the client saw."""

    def test_cell(self) -> None:
        """Rates are per second of the client's clock, CPU per answer; both sides' is kept."""
        made = makeCell("us", CASES["hello"], 64, report(), cpu=1.0, clientCpu=0.5)
        self.assertEqual((made.rate, made.p50Ms, made.p99Ms), (500, 1.5, 4.0))
        self.assertEqual((made.serverCpu, made.clientCpu), (0.5, 0.25))
        self.assertEqual((made.cpuMicrosPerRequest, made.complaints), (1000, ()))

    def test_large(self) -> None:
        """Large answers are counted by their bytes, for whole ones are few."""
        seen = report(requests=64, received=100 * (10 << 20))
        made = makeCell("us", CASES["static10m"], 64, seen, cpu=1.0, clientCpu=0.5)
        self.assertEqual((made.rate, made.cpuMicrosPerRequest), (50, 10_000))

    def test_complaints(self) -> None:
        """Errors, answers that are too short and none at all make a measurement invalid."""
        case = CASES["static16k"]
        self.assertEqual(complaint(case, report()), "")
        for count, name in enumerate(("connect", "read", "write", "status", "timeout"), 1):
            errors = msgspec.convert({**msgspec.to_builtins(NO_ERRORS), name: count}, wrk.Errors)
            self.assertIn(f"{count} {name}", complaint(case, report(errors=errors)))
        short = report(received=1000 * case.size - 1)
        self.assertEqual(complaint(case, short), "answers were short")
        self.assertIn("no answer", complaint(case, report(requests=0)))


@long("a check of CI")
class RecipeTests(SynchronousTestCase):
    """The servers of a run."""

    def setUp(self) -> None:
        """Look for peers where there are none."""
        self.peers = Path(self.mktemp()).absolute()
        self.patch(peers, "peersFolder", lambda: self.peers)

    def test_chosen(self) -> None:
        """Each server runs once for each number of routes that is asked for."""
        cases = [CASES["hello"], CASES["route100"], CASES["static16k"]]
        for asked, routes in ((cases, [10, 100]), (cases[:1], [10]), (cases[1:2], [100])):
            chosen = httprecipes.chooseRecipes(["express"], asked, Path("/f"))
            self.assertEqual([recipe.routes for recipe in chosen], routes)

    def test_nginxForFiles(self) -> None:
        """nginx runs where files are asked for."""
        for name, count in (("hello", 0), ("static10m", 1)):
            chosen = httprecipes.chooseRecipes(["nginx"], [CASES[name]], Path("/f"))
            self.assertEqual(len(chosen), count)

    def test_missingPeer(self) -> None:
        """A peer that is not installed is named, with how to get it."""
        for name in ("twisted.web", "klein", "starlette", "fastify", "express"):
            [recipe] = httprecipes.chooseRecipes([name], [CASES["hello"]], Path("/f"))
            error = self.assertRaises(FileNotFoundError, recipe.describe)
            self.assertIn("setup_peers.sh", str(error))

    def test_applications(self) -> None:
        """Every application of a peer is there, and is told port, files and routes."""
        (self.peers / "core" / "bin").mkdir(parents=True)
        (self.peers / "core" / "bin" / "python").touch()
        for name in ("storagegate", "twisted.web", "klein"):
            [recipe] = httprecipes.chooseRecipes([name], [CASES["route100"]], Path("/f"))
            _, app, *words = recipe.command(Path("/x"), 77)
            self.assertTrue(Path(app).exists(), app)
            self.assertEqual(words, ["77", "/f", "100"])

    def test_nodeApplications(self) -> None:
        """An application on Node lies beside the modules that it imports."""
        (self.peers / "node" / "node_modules").mkdir(parents=True)
        for name in ("fastify", "express"):
            folder = Path(self.mktemp())
            folder.mkdir()
            [recipe] = httprecipes.chooseRecipes([name], [CASES["hello"]], Path("/f"))
            recipe.prepare(folder, 77)
            self.assertTrue((folder / "node_modules").is_dir())
            self.assertTrue((folder / f"{name}_app.mjs").is_file())
            self.assertEqual(recipe.environment["NODE_ENV"], "production")
