"""The growth bench's own parts: what is compared, who signs, figures. Nothing is timed."""

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import goals, keyfill, results, s3cases, versionfill
from bench.bench_growth import readOptions, takeTurns
from bench.growthmeasuring import GrowthGatewayServer, GrowthS3Server, makeServer
from bench.growthrecipes import (
    CASES,
    QUIET,
    S3_CASES,
    SETTINGS,
    Setting,
    policyOf,
    shrink,
)
from bench.lifecyclescan import RULES
from bench.signing import Request
from storagegate.s3.access.policy import compilePolicy
from storagegate.s3.accounts import KeyPolicy
from storagegate.s3.xml.lifecycle import readLifecycle, writeLifecycle
from tests.bench.test_tables import cell
from tests.support.selection import long

RUN = results.Run("2026-03-09", "Z80", 2, "6.1", "ext4", 2, 2, {}, "growth")


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options every case has all its servers, three rounds each."""
        options = readOptions([])
        self.assertEqual((options.cases, options.servers), (list(CASES), list(SETTINGS)))
        self.assertEqual((options.rounds, options.seconds, options.quick), (3, 2, False))

    def test_quick(self) -> None:
        """A quick run has a round of a second, and a hundredth of everything."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds), (1, 1))
        small = shrink(Setting("x", objects=1_000_000, idle=10_000, hasKeys=True))
        self.assertEqual((small.objects, small.idle, small.hasKeys), (10_000, 100, True))

    def test_turns(self) -> None:
        """Each round has every server, and begins with another."""
        folder = Path(self.mktemp())
        folder.mkdir()
        case = CASES["tcp"]
        servers = [makeServer(case, setting, folder) for setting in case.settings]
        names = [server.recipe.name for server in takeTurns(servers, case, 2)]
        self.assertEqual(names, [QUIET, "idle10k", "idle10k", QUIET])


@long("a check of CI")
class ServerTests(SynchronousTestCase):
    """What each server has."""

    def test_kinds(self) -> None:
        """The quiet one is the first of each case, and has nothing."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for name, case in CASES.items():
            quiet = Setting(QUIET, statements=0 if name == "get4k-policy" else None)
            self.assertEqual(case.settings[0], quiet)
            kind = GrowthS3Server if case.s3 else GrowthGatewayServer
            for setting in case.settings:
                server = makeServer(case, setting, folder)
                self.assertIsInstance(server, kind)
                self.assertEqual(server.recipe.name, setting.name)
            if case.s3:
                self.assertIn(case.s3, S3_CASES)

    def test_scanned(self) -> None:
        """A store that is scanned has rules that S3 takes, and short days."""
        folder = Path(self.mktemp())
        folder.mkdir()
        [setting] = [each for each in CASES["get4k"].settings if each.isScanned]
        self.assertEqual(shrink(setting).objects, 10_000)
        recipe = GrowthS3Server(setting, folder).recipe
        self.assertEqual(recipe.environment["STORAGEGATE_LIFECYCLE_DAY_SECONDS"], "1")
        self.assertEqual(readLifecycle(writeLifecycle(RULES)), RULES)

    def test_room(self) -> None:
        """A gateway has room for more than the idle connections."""
        folder = Path(self.mktemp())
        folder.mkdir()
        server = GrowthGatewayServer(Setting("idle", idle=10_000), folder)
        self.assertGreater(int(server.recipe.command(folder, 7)[-1]), 10_064)


@long("a check of CI")
class VersionTests(SynchronousTestCase):
    """Buckets with versions and with policies."""

    def test_filled(self) -> None:
        """What is filled before the start is what the requests are for."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for case in CASES.values():
            for setting in case.settings:
                if setting.history in ("", "enabled"):
                    continue
                server = makeServer(case, setting, folder)
                assert isinstance(server, GrowthS3Server)
                s3Case = S3_CASES[case.s3]
                place = s3Case.bucket if s3Case.work == "list" else s3cases.storedPaths(s3Case)[0]
                self.assertEqual(server.buckets[place], s3Case.keys)
        deep = s3cases.storedPaths(S3_CASES["getone"])
        self.assertEqual(deep, [f"{s3cases.BUCKET}/{versionfill.DEEP_KEY}"])

    def test_deletedKeys(self) -> None:
        """Keys that are deleted lie in order between those that live."""
        keys = list(versionfill.deletedKeys(3_000))
        self.assertEqual((len(keys), keys), (3_000, sorted(set(keys))))
        everything = sorted([*keys, *s3cases.listedKeys(s3cases.GROUP)])
        self.assertEqual(everything[4], "f000-001")

    def test_policy(self) -> None:
        """A policy of the bench has as many statements as it says, and is one."""
        for count in (1, 20):
            document = policyOf(count)
            compilePolicy(document, s3cases.BUCKET[1:])
            self.assertEqual(len(json.loads(document)["Statement"]), count)


@long("a check of CI")
class KeyTests(SynchronousTestCase):
    """A thousand keys with policies."""

    def test_policies(self) -> None:
        """Each object may be read and written with the key that signs for it, with few others."""
        for path in (
            *s3cases.storedPaths(s3cases.CASES["get4k"])[::97],
            *s3cases.freshPaths(s3cases.CASES["put4k"], "0123abcd")[::997],
        ):
            number = int(path[-3:])
            _, bucket, key = path.split("/", 2)
            fields = keyfill.signWithKeys(Request("PUT", path), "h")
            self.assertIn(keyfill.credentialsOf(number).access, fields["Authorization"])
            for other, isAllowed in ((number, True), ((number + 1) % keyfill.KEYS or 2, False)):
                issued = keyfill.keyOf(other)
                policy = KeyPolicy(issued.policy, issued.bucketPattern, issued.prefixPattern)
                for access in ("read", "write"):
                    expected = isAllowed or other == 0
                    self.assertEqual(policy.allows(access, bucket, key), expected, path)

    def test_first(self) -> None:
        """The first key makes the bucket."""
        fields = keyfill.signWithKeys(Request("PUT", "/bench"), "h")
        self.assertIn(keyfill.credentialsOf(0).access, fields["Authorization"])
        self.assertEqual(keyfill.keyOf(0).prefixPattern, "")


@long("a check of CI")
class FigureTests(SynchronousTestCase):
    """Goals and limits."""

    def test_goals(self) -> None:
        """Every goal speaks of servers that a default run compares."""
        for goal in goals.GROWTH_GOALS:
            names = [setting.name for setting in CASES[goal.case].settings]
            self.assertEqual(names[0], goal.against)
            self.assertIn(goal.ours, names)
            self.assertIn(goal.connections, CASES[goal.case].connections)

    def test_beside(self) -> None:
        """What counts of work beside is how much longer the slowest hundredth waits."""
        lines = [
            cell(server, "get4k-beside", 4, 100.0, p99Ms=p99)
            for server, p99 in (("quiet", 2.0), ("upload", 4.9), ("list", 5.0))
        ]
        found = goals.verdicts(results.Results([RUN, *lines]))[-3:]
        told = [(verdict.measured, verdict.word) for verdict in found]
        expected = [("2.5", "reached"), ("2.5", "missed"), (None, "not measured")]
        self.assertEqual(told, expected)
        self.assertEqual(CASES["get4k-beside"].connections, (4,))
