"""The profile's own parts: stages, how time is divided, tables. Nothing is timed."""

import json
from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from bench import profile
from bench.instructions import readTotal
from bench.profilecells import CELLS, Record, ThreadRecord
from bench.profilestages import ORDER, OTHER, RULES, SAMPLER, stageOf
from bench.s3cases import CASES as S3_CASES
from tests.support.selection import long

ROOT = "/src/checkout"
PACKAGE = f"{ROOT}/storagegate"
REACTOR = ("/v/site-packages/twisted/internet/epollreactor.py", "EPollReactor.doPoll")
READ = (f"{PACKAGE}/net/transport.py", "FastServer.doRead")
HEAD = (f"{PACKAGE}/net/http/parser.py", "parseHead")
SERVE = (f"{PACKAGE}/s3/resource.py", "S3Resource.serve")
SIGN = (f"{PACKAGE}/s3/auth/sigv4.py", "verify")
HMAC = ("/usr/lib/python3.11/hmac.py", "digest")
WAKER = ("/v/site-packages/twisted/internet/_signals.py", "_SIGCHLDWaker.doRead")
COMMIT = (f"{PACKAGE}/storage/catalog/writer.py", "CatalogWriter._work")


def sampledRecord() -> Record:
    """Make a record of 1,000 microseconds of CPU time: 100 of them in a thread without Python."""
    main = ThreadRecord(
        "MainThread",
        True,
        700_000,
        [
            ([HMAC, SIGN, SERVE, READ, REACTOR], 300),
            ([HEAD, READ, REACTOR], 200),
            ([("/v/elsewhere.py", "main")], 100),
            ([WAKER, REACTOR], 100),
        ],
    )
    writer = ThreadRecord("storagegate-catalog", False, 200_000, [([COMMIT], 5)])
    return Record([main, writer], 1_000_000, 42, 0.75)


def countedRecord() -> Record:
    """Make a record of the calls of two requests."""
    main = ThreadRecord(
        "MainThread",
        True,
        0,
        [
            ([SIGN, SERVE, READ, REACTOR], 2),
            ([HMAC, SIGN, SERVE, READ, REACTOR], 2),
            ([("", "hmac_digest"), HMAC, SIGN, SERVE, READ, REACTOR], 4),
        ],
    )
    return Record([main], 1, 0, 1.0)


def makeProfile(cpuMicros: float = 90.0) -> profile.Profile:
    """Draw a profile from both records."""
    found = profile.analyse(sampledRecord(), countedRecord(), 2, cpuMicros, [ROOT])
    return profile.Profile(
        "get4k", 64, "abc", 1000.0, cpuMicros, [cpuMicros], 60.0, None, None, 42, **found
    )


@long("a check of CI")
class StageTests(SynchronousTestCase):
    """Functions belong to stages."""

    def test_innermost(self) -> None:
        """The innermost function that a rule names decides; a library works for its caller."""
        self.assertEqual(stageOf([HMAC, SIGN, SERVE, READ]), "authenticate")
        self.assertEqual(stageOf([HEAD, SERVE, READ]), "head")
        self.assertEqual(stageOf([READ, REACTOR]), "read")
        self.assertEqual(stageOf([REACTOR]), "wait for events")

    def test_function(self) -> None:
        """Functions of a file may belong to another stage than the file."""
        transport = f"{PACKAGE}/net/transport.py"
        self.assertEqual(stageOf([(transport, "FastServer.write")]), "write")
        self.assertEqual(stageOf([(transport, "FastServer.rewrite")]), "read")
        inner = (f"{PACKAGE}/http/middleware/bodyparser.py", "json.<locals>.parse")
        self.assertEqual(stageOf([inner]), "body")

    def test_other(self) -> None:
        """What no rule names is other."""
        self.assertEqual(stageOf([("/v/elsewhere.py", "main")]), OTHER)
        self.assertEqual(stageOf([("", "send"), ("/v/elsewhere.py", "main")]), OTHER)

    def test_sampler(self) -> None:
        """What the profile costs is set apart, wherever it happens."""
        self.assertEqual(stageOf([HMAC, WAKER, REACTOR]), SAMPLER)

    def test_order(self) -> None:
        """Every stage has its place in the tables."""
        self.assertEqual({rule.stage for rule in RULES} - set(ORDER), {SAMPLER})
        self.assertEqual(len(set(ORDER)), len(ORDER))

    def test_files(self) -> None:
        """Every rule about the package names a file or folder of it."""
        checkout = Path(profile.CHECKOUT)
        for rule in RULES:
            if rule.file.startswith("storagegate/"):
                self.assertTrue((checkout / rule.file).exists(), rule.file)


@long("a check of CI")
class DivisionTests(SynchronousTestCase):
    """What a request takes is divided."""

    def test_sum(self) -> None:
        """Stages, files, functions' own time and threads each add up to the whole."""
        found = makeProfile()
        for shares in (found.stages, found.files, found.threads):
            self.assertAlmostEqual(sum(share.micros for share in shares), 90.0)
        functions = sum(share.micros for share in found.functions)
        stages = {share.name: share.micros for share in found.stages}
        self.assertAlmostEqual(functions + stages[profile.NATIVE], 90.0)

    def test_stages(self) -> None:
        """A thread has its own CPU time, and what the profile cost counts for nothing."""
        # 600 of the 700 microseconds of the main thread, 200 and 100 of the others.
        stages = {share.name: share.micros for share in makeProfile().stages}
        self.assertNotIn(SAMPLER, stages)
        for name, micros in (
            ("authenticate", 30.0),
            ("head", 20.0),
            (OTHER, 10.0),
            ("commit", 20.0),
            (profile.NATIVE, 10.0),
        ):
            self.assertAlmostEqual(stages[name], micros, msg=name)
        self.assertAlmostEqual(makeProfile().covered, 80 / 90)

    def test_functions(self) -> None:
        """A function has its own time, and that of what it calls."""
        functions = {share.name: share for share in makeProfile().functions}
        sign = functions["storagegate/s3/auth/sigv4.py verify"]
        self.assertAlmostEqual(sign.micros, 0)
        digest = functions["hmac.py digest"]
        self.assertAlmostEqual(digest.micros, 30.0)
        self.assertAlmostEqual(digest.totalMicros, 30.0)
        self.assertAlmostEqual(
            functions["storagegate/net/transport.py FastServer.doRead"].totalMicros, 50
        )

    def test_calls(self) -> None:
        """Calls are those of one request; one of a function in C belongs to its caller."""
        found = makeProfile()
        functions = {share.name: share for share in found.functions}
        self.assertEqual(functions["hmac.py digest"].calls, 1)
        self.assertEqual(functions["hmac.py digest"].nativeCalls, 2)
        [stage] = [share for share in found.stages if share.name == "authenticate"]
        self.assertEqual((stage.calls, stage.nativeCalls, found.calls), (2, 2, 2))

    def test_nothingCounted(self) -> None:
        """Without counted calls there is the time alone."""
        found = profile.analyse(sampledRecord(), None, 1, 90, [ROOT])
        self.assertEqual(found["calls"], 0)

    def test_idleThread(self) -> None:
        """CPU time of a thread that was never seen is other."""
        record = Record([ThreadRecord("quiet", False, 1000, [])], 1000, 0, 1.0)
        found = profile.analyse(record, None, 1, 5, [])
        self.assertEqual([(each.name, each.micros) for each in found["stages"]], [(OTHER, 5)])


@long("a check of CI")
class OutputTests(SynchronousTestCase):
    """What is printed."""

    def test_tables(self) -> None:
        """The tables have each stage, and the functions that were asked for."""
        text = profile.document(makeProfile(), 1)
        self.assertIn("get4k x64 at abc: 1,000 requests a second, 90.0 us", text)
        self.assertNotIn("instructions", text)
        self.assertIn("stages cover 88.9%", text)
        self.assertIn("\nauthenticate  ", text)
        self.assertIn("hmac.py digest", text)
        self.assertNotIn("doRead", text)

    def test_comparison(self) -> None:
        """A comparison has the change of each stage, and of all."""
        text = profile.comparison(makeProfile(60.0), makeProfile(90.0), 3)
        [line] = [line for line in text.splitlines() if line.startswith("authenticate")]
        self.assertEqual(line.split()[1:4], ["30.00", "20.00", "-10.00"])
        [line] = [line for line in text.splitlines() if line.startswith("all")]
        self.assertEqual(line.split()[1:4], ["90.00", "60.00", "-30.00"])
        self.assertIn("1.50 [1.50-1.50] times as fast", text)
        self.assertNotIn("instructions", text)
        pair = [
            msgspec.structs.replace(makeProfile(), instructions=count) for count in (1000, 1250)
        ]
        self.assertIn("1,250 before and 1,000 now: 1.25 times", profile.comparison(*pair, 3))

    def test_json(self) -> None:
        """JSON has both profiles by their names."""
        text = profile.encodeProfiles([makeProfile(60.0), makeProfile(90.0)])
        found = json.loads(text)
        self.assertEqual((found["profile"]["cpuMicros"], found["before"]["cpuMicros"]), (60, 90))
        self.assertEqual(list(json.loads(profile.encodeProfiles([makeProfile()]))), ["profile"])

    def test_shorten(self) -> None:
        """Paths begin with the package."""
        for path, short in (
            (HEAD[0], "storagegate/net/http/parser.py"),
            (REACTOR[0], "twisted/internet/epollreactor.py"),
            ("<string>", "<string>"),
        ):
            self.assertEqual(profile.shorten(path, [ROOT]), short)

    def test_options(self) -> None:
        """A cell is enough."""
        options = profile.readOptions(["get4k"])
        self.assertEqual((options.rounds, options.compare, options.json), (3, None, False))

    def test_cells(self) -> None:
        """Every walk of a request has a cell."""
        wanted = "get4k head put4k hello route echo gatewayhttp websocket tcp udp grpc list"
        wanted += " grpcunary grpcserver grpcbidi"
        self.assertEqual(set(wanted.split()) - set(CELLS), set())
        self.assertIn(CELLS["list"].connections, S3_CASES["list10k"].connections)

    def test_instructions(self) -> None:
        """The total is read out of what callgrind writes."""
        self.assertEqual(readTotal("events: Ir\nsummary: 4711\n\ntotals: 4711\n"), 4711)
        self.assertRaises(ValueError, readTotal, "events: Ir\n")
        counted = msgspec.structs.replace(makeProfile(), instructions=339_128)
        self.assertIn("; 339,128 instructions outside of the kernel;", profile.describe(counted))
        both = msgspec.structs.replace(counted, floorInstructions=120_000)
        self.assertIn("the kernel (120,000 of the floor);", profile.describe(both))

    def test_floors(self) -> None:
        """The cells that have a floor are those whose server the floor stands for."""
        found = {name for name, each in CELLS.items() if each.floor is not None}
        s3 = {"get4k", "head", "put4k", "mixed", "delete", "list"}
        self.assertEqual(found, s3 | {"hello", "websocket", "tcp", "udp"})
