"""The overhead bench's own parts: who is compared, with what on, figures. Nothing is timed."""

import asyncio
import tomllib
from itertools import pairwise
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import goals, overheadservice, results, table
from bench.bench_overhead import readOptions, takeTurns
from bench.overheadmeasuring import OverheadServer
from bench.overheadrecipes import CASES, MONITORING, OFF, SETTINGS, configuration, makeRecipe
from bench.processes import SERVER_CORE
from storagegate.core.definitions import readService
from storagegate.daemon.config import load
from storagegate.daemon.gatewayservice import readMonitoringTable
from tests.support.selection import long

RUN = results.Run("2026-03-08", "Z80", 2, "6.1", "ext4", 2, 2, {}, "overhead", load=0.25)


def cell(server: str, case: str, rate: float, cpu: float = 100.0) -> results.Cell:
    """Make a measurement of which the rate and the CPU time matter."""
    return results.Cell(
        server=server,
        case=case,
        connections=64,
        rate=rate,
        megabytesPerSecond=1.0,
        p50Ms=1.0,
        p99Ms=2.0,
        serverCpu=1.75,
        clientCpu=0.25,
        cpuMicrosPerRequest=cpu,
        besideMicros=3.5,
    )


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options every case has all its daemons, five rounds each."""
        options = readOptions([])
        self.assertEqual(options.cases, list(CASES))
        self.assertEqual(options.servers, list(SETTINGS))
        self.assertEqual((options.rounds, options.seconds, options.quick), (5, 2, False))

    def test_quick(self) -> None:
        """A quick run has one round of a second in each cell."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds), (1, 1))

    def test_turns(self) -> None:
        """Each round has every daemon, and begins with another."""
        folder = Path(self.mktemp())
        folder.mkdir()
        case = CASES["workers-echo"]
        recipes = [makeRecipe(setting, case, 1) for setting in case.settings]
        servers = [OverheadServer(recipe, folder) for recipe in recipes]
        names = [server.recipe.name for server in takeTurns(servers, case, 2)]
        self.assertEqual(names, ["workers1", "workers2", "workers2", "workers1"])


@long("a check of CI")
class RecipeTests(SynchronousTestCase):
    """What each daemon has on."""

    def words(self, setting: str, case: str) -> list[str]:
        """Write a command line."""
        return makeRecipe(SETTINGS[setting], CASES[case], 1).command(Path("/x"), 77)

    def test_configurations(self) -> None:
        """The file of each setting switches on what its name says, and nothing else."""
        found = {}
        for setting in MONITORING:
            read = readMonitoringTable(tomllib.loads(configuration(setting, 99)).get("gateway", {}))
            tracing = read.tracing
            found[setting.name] = (
                read.metrics.enabled,
                read.logging is not None,
                tracing.sampleRatio if tracing.enabled else None,
            )
        self.assertEqual(
            found,
            {
                "off": (False, False, None),
                "metrics": (True, False, None),
                "logs": (False, True, None),
                "trace0.01": (False, False, 0.01),
                "trace1": (False, False, 1.0),
                "on0.01": (True, True, 0.01),
                "on1": (True, True, 1.0),
            },
        )

    def test_accepted(self) -> None:
        """The daemon takes the file of every setting."""
        for setting in SETTINGS.values():
            path = Path(self.mktemp())
            path.write_text(configuration(setting, 99))
            self.assertIn("monitoring", load({"config": str(path)}, {}).gateway)

    def test_listeners(self) -> None:
        """Only the listener that is asked is open, and the admin one where metrics are read."""
        words = self.words("on1", "echo")
        flags = dict(pairwise(words))
        self.assertEqual(flags["--http"], "tcp:77:interface=127.0.0.1")
        self.assertEqual((flags["--s3"], flags["--grpc"]), ("off", "off"))
        self.assertEqual(flags["--admin"], "unix:/x/admin.sock")
        self.assertEqual(flags["--service"], "bench.overheadservice:service")
        words = self.words(OFF, "get4k")
        flags = dict(pairwise(words))
        self.assertEqual((flags["--http"], flags["--admin"]), ("off", "off"))
        self.assertEqual(flags["--s3"], "tcp:77:interface=127.0.0.1")
        self.assertNotIn("--service", flags)

    def test_workers(self) -> None:
        """Workers have both cores; what monitoring costs is measured on one."""
        self.assertIn("--workers", self.words("workers2", "workers-compute"))
        self.assertNotIn("--workers", self.words("workers1", "workers-compute"))
        cores = {name: makeRecipe(case.settings[0], case, 1).cores for name, case in CASES.items()}
        self.assertEqual(
            cores,
            {
                "echo": SERVER_CORE,
                "get4k": SERVER_CORE,
                "workers-compute": "0,1",
                "workers-echo": "0,1",
            },
        )

    def test_service(self) -> None:
        """The service is one, and both of its methods answer what they were asked."""
        definition = readService(overheadservice.service)
        for name, method in definition.methods.items():
            answer = asyncio.run(method.handler({"text": name}, None))
            self.assertEqual(answer, {"text": name})
        self.assertEqual(sorted(definition.methods), ["compute", "echo"])


@long("a check of CI")
class FigureTests(SynchronousTestCase):
    """Goals and tables."""

    def test_goals(self) -> None:
        """Every goal speaks of daemons that a default run compares."""
        for goal in goals.OVERHEAD_GOALS:
            names = [setting.name for setting in CASES[goal.case].settings]
            self.assertEqual(names[0], goal.against)
            self.assertIn(goal.ours, names)
            self.assertIn(goal.connections, CASES[goal.case].connections)

    def test_pairs(self) -> None:
        """What is judged is the ratio within a round, whatever the machine did between two."""
        rates = [("off", 100), ("on0.01", 95), ("on0.01", 19), ("off", 20), ("off", 60)]
        rates.append(("on0.01", 30))
        read = results.Results([RUN, *(cell(server, "echo", rate) for server, rate in rates)])
        self.assertEqual(read.ratios("on0.01", "off", "echo", 64), [0.95, 0.95, 0.5])
        verdict = goals.verdicts(read)[0]
        self.assertEqual((verdict.measured, verdict.word), ("0.95", "reached"))
        self.assertEqual(verdict.text, "echo x64: on0.01 against off")

    def test_workersGoal(self) -> None:
        """Two workers make nearly twice the calls of one."""
        for rate, word in ((190, "reached"), (189, "missed")):
            pair = [cell("workers1", "workers-compute", 100)]
            pair.append(cell("workers2", "workers-compute", rate))
            self.assertEqual(goals.verdicts(results.Results([RUN, *pair]))[-1].word, word)

    def test_shares(self) -> None:
        """A setting stands beside the first of its case: rate, CPU time, cores of both sides."""
        lines = [RUN, cell("off", "echo", 100, 60.0), cell("on1", "echo", 80, 72.5)]
        lines += [cell("off", "echo", 100, 60.0), cell("on1", "echo", 70, 80.0)]
        text = table.document(results.Results(lines))
        row = next(line for line in text.splitlines() if line.startswith("echo x64  on1"))
        expected = "echo x64 on1 off 0.75 [0.70-0.80] +16.2 [+12.5 to +20.0] 3.5 1.75 0.25"
        self.assertEqual(" ".join(row.split()), expected)
        self.assertIn("the load was 0.2 before", text)
