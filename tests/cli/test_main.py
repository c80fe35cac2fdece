"""The console script, on a catalog that no daemon has open."""

import os
import sqlite3
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from storagegate import __version__
from storagegate.cli import maintenance
from storagegate.cli.main import main
from storagegate.daemon.rootcredentials import load, loadOrCreate
from storagegate.storage.clock import ClockReading, StoreClock
from storagegate.storage.embedded.expiry import readProgress
from storagegate.storage.embedded.keyadmin import openForTools
from storagegate.storage.embedded.opening import prepareStore
from storagegate.storage.records import AccessKey


class ScriptCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a data directory with an empty catalog."""
        self.data = Path(self.mktemp())
        for name in ("blobs", "staging"):
            (self.data / name).mkdir(parents=True)
        openForTools(str(self.data / "catalog.sqlite")).close()

    def script(self, *arguments: str, stdin: str = "geheimnis\n") -> tuple[int, str, str]:
        """
        Run the script and give exit code, output and error output.

        @param stdin: Its standard input.
        """
        output, errors = StringIO(), StringIO()
        self.patch(sys, "stdin", StringIO(stdin))
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                code = main(arguments)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
        return code, output.getvalue(), errors.getvalue()

    def keys(
        self, action: str, *arguments: str, stdin: str = "geheimnis\n"
    ) -> tuple[int, str, str]:
        """Run a command for keys."""
        return self.script("keys", action, "--data", str(self.data), *arguments, stdin=stdin)

    def stored(self) -> dict[str, AccessKey]:
        """Give the keys that the catalog holds."""
        catalog = openForTools(str(self.data / "catalog.sqlite"))
        try:
            return {key.accessKey: key for key in catalog.accessKeys()}
        finally:
            catalog.close()


class KeysTests(ScriptCase):
    """C{storagegate keys}."""

    def test_rootIsNoIssuedKey(self) -> None:
        """The root key's name is refused, to create and to revoke; nothing is stored."""
        loadOrCreate(str(self.data / "root-credentials"))
        root = load(str(self.data / "root-credentials"))
        assert root is not None
        pair = ("--access-key", root.accessKey, "--secret-stdin")
        for action, options in (
            ("create", ("--account", "x", *pair)),
            ("revoke", ("--access-key", root.accessKey)),
        ):
            code, output, errors = self.keys(action, *options)
            self.assertEqual((code, output), (1, ""))
            self.assertIn("root access key", errors)
        self.assertEqual(self.stored(), {})

    def test_create(self) -> None:
        """A generated pair is printed as a shell can read it, and stored with the whole policy."""
        code, output, errors = self.keys(
            "create",
            "--account",
            "builds",
            "--policy",
            "readonly",
            "--bucket",
            "ci-*",
            "--prefix",
            "out/*",
            "--email",
            "ci@example.com",
        )
        self.assertEqual((code, errors), (0, ""))
        pair = dict(line.split("=", 1) for line in output.splitlines())
        self.assertEqual(list(pair), ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
        key = self.stored()[pair["AWS_ACCESS_KEY_ID"]]
        self.assertEqual(key.secretKey, pair["AWS_SECRET_ACCESS_KEY"])
        self.assertEqual(
            (key.account, key.policy, key.bucketPattern, key.prefixPattern, key.email),
            ("builds", "readonly", "ci-*", "out/*", "ci@example.com"),
        )
        self.assertGreater(key.createdMs, 1_700_000_000_000)

    def test_prefix(self) -> None:
        """A prefix without a wildcard means every key below it; one with them is a pattern."""
        for given, stored in (
            ("logs/", "logs/*"),
            ("doc", "doc*"),
            ("out/*.log", "out/*.log"),
            ("doc/?", "doc/?"),
        ):
            arguments = ("--access-key", "mykey", "--secret-stdin", "--prefix", given)
            self.assertEqual(self.keys("create", "--account", "a", *arguments)[0], 0)
            self.assertEqual(self.stored()["mykey"].prefixPattern, stored)
            self.keys("revoke", "--access-key", "mykey")

    def test_unmatchable(self) -> None:
        """A pattern that no bucket or no key can match is refused, and says so."""
        for flag, value, what in (
            ("--bucket", "Reports", "no bucket"),
            ("--bucket", "logs/*", "no bucket"),
            ("--bucket", "??", "no bucket"),
            ("--bucket", "a" * 64 + "*", "no bucket"),
            ("--prefix", "\u20ac" * 400, "no key"),
            ("--prefix", "\u20ac" * 342 + "*", "no key"),
        ):
            code, output, errors = self.keys("create", "--account", "a", flag, value)
            self.assertEqual((code, output), (2, ""), value)
            self.assertIn(what, errors)
        self.assertEqual(self.stored(), {})
        for bucket in ("fir*", "*", "?a?", "192.168.0.*", "*-*", "a*"):
            code, _output, errors = self.keys("create", "--account", "a", "--bucket", bucket)
            self.assertEqual((code, errors), (0, ""))

    def test_givenPair(self) -> None:
        """A pair may be given; by default the key may do everything in its account."""
        code, _output, _errors = self.keys(
            "create", "--account", "a", "--access-key", "mykey", "--secret-stdin"
        )
        self.assertEqual(code, 0)
        key = self.stored()["mykey"]
        self.assertEqual(
            (key.secretKey, key.policy, key.bucketPattern), ("geheimnis", "readwrite", "")
        )

    def test_taken(self) -> None:
        """An access key that is taken is refused, and the one that is there stays."""
        for secret, expected in (("geheimnis", 0), ("another", 1)):
            code, _output, errors = self.keys(
                "create",
                "--account",
                "a",
                "--access-key",
                "mykey",
                "--secret-stdin",
                stdin=f"{secret}\n",
            )
            self.assertEqual(code, expected)
        self.assertEqual(errors, "storagegate: the access key mykey already exists\n")
        self.assertEqual(self.stored()["mykey"].secretKey, "geheimnis")

    def test_list(self) -> None:
        """A list names every key and shows no secret."""
        for name in ("beta", "alpha"):
            self.keys("create", "--account", name, "--access-key", name, "--secret-stdin")
        code, output, _errors = self.keys("list")
        self.assertEqual(code, 0)
        self.assertNotIn("geheimnis", output)
        self.assertEqual(
            [line.split()[:2] for line in output.splitlines()[1:]],
            [["alpha", "alpha"], ["beta", "beta"]],
        )

    def test_revoke(self) -> None:
        """A revoked key is gone; revoking it again is an error."""
        self.keys("create", "--account", "a", "--access-key", "mykey", "--secret-stdin")
        self.assertEqual(self.keys("revoke", "--access-key", "mykey"), (0, "", ""))
        self.assertEqual(self.stored(), {})
        code, _output, errors = self.keys("revoke", "--access-key", "mykey")
        self.assertEqual((code, errors), (1, "storagegate: no such access key: mykey\n"))

    def test_badArguments(self) -> None:
        """A command line that is not right is exit code 2, and changes nothing."""
        for arguments in (
            (),
            ("--account", ""),
            ("--account", "a\nb"),
            ("--account", "a", "--policy", "everything"),
            ("--account", "a", "--access-key", "ab", "--secret-stdin"),
            ("--account", "a", "--access-key", "mykey"),
            ("--account", "a", "--secret-stdin"),
            ("--account", "a", "--bucket", ""),
            ("--account", "a", "--buck", "x"),
        ):
            code, output, errors = self.keys("create", *arguments)
            self.assertEqual((code, output), (2, ""), arguments)
            self.assertNotIn("geheimnis", errors)
        self.assertEqual(self.stored(), {})


class DirectoryTests(ScriptCase):
    """C{--data}."""

    def test_noStore(self) -> None:
        """A directory without a store is refused in one line: none is made by mistake."""
        empty = self.mktemp()
        for command in (("keys", "list"), ("fsck",)):
            code, _output, errors = self.script(*command, "--data", empty)
            self.assertEqual(code, 1)
            self.assertEqual(len(errors.splitlines()), 1)
            self.assertIn(empty, errors)
        self.assertFalse(Path(empty).exists())

    def test_damagedStore(self) -> None:
        """A catalog that is none is refused in one line."""
        (self.data / "catalog.sqlite").write_bytes(b"no catalog at all" * 1000)
        # It has every page of a small catalog.
        (self.data / "catalog.sqlite-wal").unlink(missing_ok=True)
        code, _output, errors = self.keys("list")
        self.assertEqual((code, len(errors.splitlines())), (1, 1), errors)

    def test_precedence(self) -> None:
        """The directory is the daemon's: a flag wins over variables, these over the file."""
        filled, empty = str(self.data), self.mktemp()
        Path("here.toml").write_text(f'data = "{filled}"\n')
        self.addCleanup(os.unlink, "here.toml")
        file = {"STORAGEGATE_CONFIG": "here.toml"}
        for flags, variables, isFound in (
            ((), {"STORAGEGATE_DATA": filled}, True),
            ((), file, True),
            (("--config", "here.toml"), {}, True),
            (("--config", "here.toml"), {"STORAGEGATE_DATA": empty}, False),
            (("--data", filled), {"STORAGEGATE_DATA": empty}, True),
            (("--data", empty), file, False),
            ((), {}, False),
        ):
            self.patch(os, "environ", variables)
            for command in (("keys", "list"), ("fsck",), ("backup", "--to", self.mktemp())):
                code, _output, errors = self.script(*command, *flags)
                self.assertEqual(code, int(not isFound), (command, flags, variables, errors))
        self.assertIn("storagegate-data contains no store", errors)
        self.assertIn("--data", errors)

    def test_configuration(self) -> None:
        """What would stop the daemon's start stops a command, with the same line."""
        self.patch(os, "environ", {"STORAGEGATE_WORKERS": "many"})
        code, _output, errors = self.keys("list")
        self.assertEqual((code, len(errors.splitlines())), (1, 1))
        self.assertIn("workers (variable STORAGEGATE_WORKERS)", errors)

    def test_configuredRoot(self) -> None:
        """The root key of the configuration is refused as that of the data directory is."""
        pair = {"STORAGEGATE_ACCESS_KEY": "theroot", "STORAGEGATE_SECRET_KEY": "geheimnis"}
        self.patch(os, "environ", pair)
        code, _output, errors = self.keys("revoke", "--access-key", "theroot")
        self.assertEqual(code, 1)
        self.assertIn("root access key", errors)

    def test_version(self) -> None:
        """C{--version} says which it is."""
        self.assertEqual(self.script("--version"), (0, f"storagegate {__version__}\n", ""))


class ClockTests(ScriptCase):
    """C{storagegate clock confirm} without an API to ask."""

    def confirm(self) -> tuple[int, str, str]:
        """Run the command on a daemon without a console."""
        config = self.data / "config.toml"
        config.write_text(f'data = "{self.data}"\nconsole = false\n')
        return self.script("clock", "confirm", "--config", str(config))

    def test_stopped(self) -> None:
        """The reading in the catalog agrees with the machine's clock, so the next start does."""
        code, output, errors = self.confirm()
        self.assertEqual((code, errors), (0, ""))
        self.assertRegex(output, "^the clock is 20.*: the daemon trusts it from its next start")
        with closing(sqlite3.connect(self.data / "catalog.sqlite")) as catalog:
            document = readProgress(catalog, "clock")
        clock = StoreClock()
        clock.compare(msgspec.json.decode(document or b"", type=ClockReading))
        self.assertFalse(clock.isStepped)

    def test_running(self) -> None:
        """A running daemon that has no console reads it from the catalog."""
        self.patch(maintenance, "runningDaemon", lambda configuration: 1)
        code, output, errors = self.confirm()
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("removals by date resume within two minutes", output)


class FsckTests(ScriptCase):
    """C{storagegate fsck}; what it finds is the store's own matter."""

    def test_sound(self) -> None:
        """Sound data has no problems, and exit code 0."""
        for flags in ((), ("--verify",), ("--repair", "--verify")):
            code, output, errors = self.script("fsck", "--data", str(self.data), *flags)
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(output.splitlines()[-1], "0 problems")

    def test_problem(self) -> None:
        """A file that no object names is a problem and exit code 1; repair takes it away."""
        prepareStore(str(self.data)).release()
        orphan = self.data / "blobs" / "ab" / "cd" / ("abcd" + "0" * 28)
        orphan.parent.mkdir(parents=True)
        orphan.write_bytes(b"orphaned")
        code, output, _errors = self.script("fsck", "--data", str(self.data))
        self.assertEqual((code, output.splitlines()[-1]), (1, "1 problem"))
        self.assertTrue(orphan.exists())
        self.script("fsck", "--data", str(self.data), "--repair")
        self.assertFalse(orphan.exists())
        self.assertEqual(self.script("fsck", "--data", str(self.data))[0], 0)
