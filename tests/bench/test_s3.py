"""The bench's own parts: its requests, its figures and its tables. Nothing here is timed."""

import importlib
import os
import struct
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.python.modules import getModule
from twisted.trial.unittest import SynchronousTestCase

from bench import blast, processes, signing
from bench import s3cases as cases
from bench import s3recipes as recipes
from bench.bench_s3 import readOptions, takeTurns
from bench.running import processorName
from bench.s3measuring import canMeasure, complaints, makeCell
from bench.s3server import S3Server
from tests.support.selection import long, rounds

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
PAIR = signing.Credentials("ACCESS", "secret")


def outcome(**changes: object) -> blast.Outcome:
    """Make what the client reports of a thousand good answers in two seconds."""
    fields: dict[str, object] = {
        "issued": 1000,
        "done": 1000,
        "bad": 0,
        "lost": 0,
        "reconnects": 0,
        "laps": 0,
        "seconds": 2.0,
        "received": 5_000_000,
        "sent": 100_000,
        "clientCpu": 0.25,
        "lastBadStatus": 0,
        "tags": {"0": blast.Latency(1000, 1.5, 4.0, 9.0)},
    }
    return blast.Outcome(**{**fields, **changes})  # type: ignore[arg-type]


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The programs are there to be run."""

    def test_everyModuleImports(self) -> None:
        """Each module of the bench imports without starting or needing anything."""
        names = [module.name for module in getModule("bench").iterModules()]
        self.assertIn("bench.bench_s3", names)
        for name in names:
            importlib.import_module(name)

    def test_defaultsMeasureEverything(self) -> None:
        """Without options all cases run on all servers, three rounds each, durability full."""
        options = readOptions([])
        self.assertEqual(options.cases, list(cases.CASES))
        self.assertEqual(options.servers, ["storagegate", "floor", "rclone", "nginx"])
        self.assertEqual((options.rounds, options.durability), (3, "full"))

    def test_turns(self) -> None:
        """Servers that are able to take turns, every second round backwards."""
        folder = Path(self.mktemp())
        folder.mkdir()
        both = [S3Server(recipe, folder) for recipe in (recipes.rclone(), recipes.nginx())]
        turns = takeTurns(both, cases.CASES["head"], 3)
        names = [server.recipe.name for server in turns]
        self.assertEqual(names, ["rclone", "nginx", "nginx", "rclone", "rclone", "nginx"])
        lists = takeTurns(both, cases.CASES["list10k"], 1)
        self.assertEqual([server.recipe.name for server in lists], ["rclone"])

    def test_floor(self) -> None:
        """The floor is asked for small objects and a small list only."""
        folder = Path(self.mktemp())
        folder.mkdir()
        server = S3Server(recipes.floor(), folder)
        able = [name for name, case in cases.CASES.items() if canMeasure(server, case)]
        self.assertEqual(able, ["put4k", "get4k", "head", "mixed", "delete", "list10k"])

    def test_processorName(self) -> None:
        """The processor's name is read from its line."""
        self.assertEqual(processorName("vendor_id : x\nmodel name\t: Fast One\n"), "Fast One")


@long("a check of CI")
class SigningTests(SynchronousTestCase):
    """Requests are signed as S3 clients sign them."""

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(
        method=st.sampled_from(["GET", "PUT", "HEAD", "DELETE"]),
        path=st.from_regex(r"/[a-z0-9-]{3,9}(/[A-Za-z0-9_.~-]{1,9}){0,3}", fullmatch=True),
        query=st.dictionaries(st.text("abcXY-z", min_size=1), st.text("a/ +&=~-é"), max_size=4),
    )
    def test_signatureIsBotocores(self, method: str, path: str, query: dict[str, str]) -> None:
        """For any request the signature is the one that botocore computes."""
        request = signing.Request(method, path, tuple(query.items()))
        ours = signing.signer(PAIR, NOW)(request, "127.0.0.1:9000")
        text = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in query.items())
        theirs = AWSRequest(method, f"http://127.0.0.1:9000{path}" + (f"?{text}" if text else ""))
        theirs.headers["X-Amz-Content-SHA256"] = signing.PAYLOAD
        theirs.headers["X-Amz-Date"] = ours["x-amz-date"]
        theirs.context["timestamp"] = ours["x-amz-date"]
        auth = S3SigV4Auth(BotocoreCredentials("ACCESS", "secret"), "s3", "us-east-1")
        expected = auth.signature(
            auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs
        )
        self.assertEqual(ours["Authorization"].rpartition("=")[2], expected)

    def test_head(self) -> None:
        """A head holds the request line, Host, length and type of the body, and no more."""
        request = signing.Request("PUT", "/b/k", (("partNumber", "1"), ("a", "b c")), length=5)
        self.assertEqual(
            signing.encodeHead(request, "h:1", signing.anonymous),
            b"PUT /b/k?a=b%20c&partNumber=1 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\n"
            b"Content-Type: application/octet-stream\r\n\r\n",
        )

    def test_keyHeaders(self) -> None:
        """A large fill sends the key pair itself."""
        head = signing.encodeHead(signing.Request("GET", "/b"), "h", signing.keyHeaders(PAIR))
        self.assertIn(b"\r\nx-storage-access-key: ACCESS\r\nx-storage-secret-key: secret\r\n", head)

    def test_secretStaysOut(self) -> None:
        """A key pair can be logged."""
        self.assertNotIn("secret'", repr(PAIR))


@long("a check of CI")
class BlastTests(SynchronousTestCase):
    """What the client is given and what it gives back."""

    def test_record(self) -> None:
        """A record is tag, sizes and head; the bit for HEAD stands beside the tag."""
        put = blast.encodeRecord(signing.Request("PUT", "/", length=7, tag=1), b"head")
        self.assertEqual(put, struct.pack("<IIQ", 1, 4, 7) + b"head")
        head = blast.encodeRecord(signing.Request("HEAD", "/"), b"")
        self.assertEqual(head, struct.pack("<IIQ", 256, 0, 0))

    def test_commandLine(self) -> None:
        """Without a duration each request is sent once."""
        load = blast.Load(Path("r"), Path("b"), 16)
        words = blast.commandLine(Path("blast"), 80, load)
        self.assertEqual(words, ["blast", "-p", "80", "-c", "16", "-f", "r", "-b", "b"])
        timed = blast.commandLine(Path("blast"), 80, blast.Load(Path("r"), Path("b"), 1, 2.5))
        self.assertEqual(timed[-2:], ["-d", "2.5"])

    def test_bodyFile(self) -> None:
        """A body file has the size asked for and is made once."""
        folder = Path(self.mktemp())
        folder.mkdir()
        first = blast.bodyFile(folder, 100).read_bytes()
        self.assertEqual(len(first), 100)
        self.assertEqual(blast.bodyFile(folder, 100).read_bytes(), first)


@long("a check of CI")
class CaseTests(SynchronousTestCase):
    """The cases ask for what they say."""

    def test_newNamesAreNew(self) -> None:
        """Two measurements of a case that writes share no name."""
        case = cases.CASES["put1m"]
        first = {request.path for request in cases.requestsOf(case, "a")}
        second = {request.path for request in cases.requestsOf(case, "b")}
        self.assertEqual(len(first), case.keys)
        self.assertFalse(first & second)

    def test_readsAskForWhatIsStored(self) -> None:
        """Each read, and each write of a mixture, is of an object that was filled in."""
        for name in ("get4k", "head", "mixed", "get1m", "get64m"):
            case = cases.CASES[name]
            paths = {request.path for request in cases.requestsOf(case, "")}
            self.assertLessEqual(paths, set(cases.storedPaths(case)), name)

    def test_mixture(self) -> None:
        """A mixture is 70 reads to 30 writes, writes counted apart, the same each time."""
        case = cases.CASES["mixed"]
        requests = cases.requestsOf(case, "a")
        writes = [request for request in requests if request.method == "PUT"]
        self.assertApproximates(len(writes) / len(requests), 0.3, 0.02)
        self.assertEqual({request.tag for request in writes}, {1})
        self.assertEqual(requests, cases.requestsOf(case, "b"))

    def test_listedKeys(self) -> None:
        """A bucket to list is in order, and a delimiter makes its groups."""
        case = cases.CASES["listgroups"]
        keys = list(cases.listedKeys(case.keys))
        self.assertEqual(keys, sorted(set(keys)))
        self.assertEqual(len(keys), 1_000_000)
        self.assertEqual(len({key.partition(case.delimiter)[0] for key in keys}), 1000)

    def test_listRequest(self) -> None:
        """A list is a page of a thousand; both cases of a million share a bucket."""
        [request] = cases.requestsOf(cases.CASES["listgroups"], "")
        self.assertEqual(
            signing.targetOf(request), "/list-1000000?delimiter=-&list-type=2&max-keys=1000"
        )
        self.assertEqual(cases.CASES["list1m"].bucket, cases.CASES["listgroups"].bucket)


@long("a check of CI")
class RecipeTests(SynchronousTestCase):
    """The servers of a run."""

    def test_bothDurabilities(self) -> None:
        """With both durabilities two daemons run, and only the durable one lists a million."""
        chosen = recipes.chooseRecipes(["storagegate", "rclone", "nginx"], "both", [])
        self.assertEqual(
            [(recipe.name, recipe.listLimit) for recipe in chosen],
            [("storagegate", 10**6), ("storagegate-os", 10**5), ("rclone", 10**5), ("nginx", 0)],
        )

    def test_oneDurability(self) -> None:
        """With one durability one daemon runs, and it does all."""
        [recipe] = recipes.chooseRecipes(["storagegate"], "os", [])
        self.assertEqual((recipe.name, recipe.listLimit), ("storagegate-os", 10**6))

    def test_prefilled(self) -> None:
        """Only the bucket of a million is made before the start, once for both of its cases."""
        both = recipes.chooseRecipes(["storagegate"], "both", cases.CASES.values())
        self.assertEqual([r.prefilled for r in both], [{"/list-1000000": 10**6}, {}])
        [few] = recipes.chooseRecipes(["storagegate"], "full", [cases.CASES["list10k"]])
        self.assertEqual(few.prefilled, {})

    def test_storagegateCommand(self) -> None:
        """The daemon has the S3 listener alone, and its secret is not on the command line."""
        recipe = recipes.storagegate("full")
        words = recipe.command(Path("/x"), 77)
        self.assertEqual(words[words.index("--s3") + 1], "tcp:77:interface=127.0.0.1")
        self.assertEqual(words.count("off"), 5)
        self.assertNotIn(recipes.CREDENTIALS.secret, words)

    def test_nginxConfiguration(self) -> None:
        """The configuration names the folder and the port."""
        folder = Path(self.mktemp())
        folder.mkdir()
        recipes.nginx().prepare(folder, 4711)
        text = (folder / "nginx.conf").read_text()
        self.assertIn("listen 127.0.0.1:4711;", text)
        self.assertIn(f"root {folder}/data;", text)
        self.assertNotIn("$", text)


@long("a check of CI")
class ProcessTests(SynchronousTestCase):
    """What the kernel says of a process."""

    STAT = "42 (a) b) S 1 42 40 0 -1 0 0 0 0 0 150 50 0 0 20 0 1"

    def test_stat(self) -> None:
        """Session and CPU time are found behind a name with parentheses in it."""
        self.assertEqual(processes.sessionOf(self.STAT), 40)
        ticks = os.sysconf("SC_CLK_TCK")
        self.assertEqual(processes.cpuSeconds(self.STAT), 200 / ticks)

    def test_memory(self) -> None:
        """A size is found by its name; a process without memory has none."""
        status = "VmHWM:\t  1234 kB\nVmRSS:\t 5 kB\n"
        self.assertEqual(processes.memoryBytes(status, "VmHWM"), 1234 * 1024)
        self.assertEqual(processes.memoryBytes(status, "VmRSS"), 5 * 1024)
        self.assertEqual(processes.memoryBytes("Name: kthread\n", "VmRSS"), 0)


@long("a check of CI")
class MeasuringTests(SynchronousTestCase):
    """Figures out of what the client saw."""

    def test_cell(self) -> None:
        """Rates are per second of the client's clock, CPU per request answered."""
        made = makeCell("us", cases.CASES["get4k"], 16, outcome(), cpu=1.0)
        self.assertEqual((made.rate, made.p50Ms, made.p99Ms), (500, 1.5, 4.0))
        self.assertEqual((made.serverCpu, made.cpuMicrosPerRequest), (0.5, 1000))
        self.assertEqual(made.complaints, ())

    def test_complaints(self) -> None:
        """Refused, short and repeated work is not passed over."""
        get, put = cases.CASES["get4k"], cases.CASES["put4k"]
        self.assertEqual(
            complaints(get, outcome(bad=1, lost=2, lastBadStatus=503)), ["1 bad (503), 2 lost"]
        )
        self.assertEqual(complaints(get, outcome(bad=1)), ["1 bad (0), 0 lost"])
        self.assertEqual(complaints(get, outcome(lost=1)), ["0 bad (0), 1 lost"])
        self.assertEqual(complaints(get, outcome(received=4000)), ["answers were short"])
        self.assertEqual(complaints(put, outcome(laps=1)), ["names repeated"])
        self.assertEqual(complaints(get, outcome(laps=1)), [])

    def test_mixtureExpectsReadsOnly(self) -> None:
        """The writes of a mixture answer no bytes, and that is no complaint."""
        tags = {"0": blast.Latency(700, 1, 1, 1), "1": blast.Latency(300, 1, 1, 1)}
        seen = outcome(tags=tags, received=700 * 4096)
        self.assertEqual(complaints(cases.CASES["mixed"], seen), [])
