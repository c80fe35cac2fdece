"""
Every command of the table against a real daemon: on its data directory, over its API, and both the
same.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SkipTest

from storagegate.cli.commands import COMMANDS, CommandPlace
from storagegate.cli.main import main
from tests.support.certificates import Authority
from tests.support.clients import ROOT, Account, runTool
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.ports import heldPort
from tests.support.programs import findProgram, needProgram
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, eventually, makeDaemon, ownDirectory

PAIR = {
    "STORAGEGATE_ACCESS_KEY": ROOT.accessKey,
    "STORAGEGATE_SECRET_KEY": ROOT.secretKey,
}


READ_POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
)


@frozen
class Done:
    """What a command has printed, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The object that was printed."""
        return json.loads(self.output)


@cache
def gatewayDaemon() -> Daemon:
    """Start the daemon of the cases here, with a service, for the whole run."""
    import atexit

    flags = ("--service", "UserService", "--http", "tcp:0:interface=127.0.0.1")
    data = ownDirectory("commands") / "data"
    daemon = makeDaemon(data, *flags)
    atexit.register(daemon.kill)
    return daemon.start()


class CommandCase(S3Case):
    """Runs commands in both places."""

    def startDaemon(self) -> Daemon:
        """Give the daemon with a service."""
        return gatewayDaemon()

    def setUp(self) -> None:
        """Know where the daemon is."""
        super().setUp()
        host, port = self.daemon.address("admin")
        s3 = self.daemon.address("s3")[1]
        self.url = f"http://{host}:{port}"
        self.local = {
            **PAIR,
            "STORAGEGATE_DATA": str(self.daemon.data),
            "STORAGEGATE_ADMIN": f"tcp:{port}:interface={host}",
            "STORAGEGATE_S3": f"tcp:{s3}:interface={host}",
        }

    def run_(
        self, *words: str, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> Done:
        """
        Run a command on the data directory.

        @param environment: Its variables, in place of those that name the daemon.
        @param stdin: Its standard input.
        """
        given = self.local if environment is None else environment
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.patch(os, "environ", {**base, **given})
        self.patch(sys, "stdin", StringIO(stdin))
        output, errors = StringIO(), StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                code = main(words)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
        return Done(code, output.getvalue(), errors.getvalue())

    def remote(self, *words: str, account: Account = ROOT, stdin: str = "") -> Done:
        """Run a command over the API."""
        pair = {
            "STORAGEGATE_ACCESS_KEY": account.accessKey,
            "STORAGEGATE_SECRET_KEY": account.secretKey,
        }
        return self.run_(*words, "--url", self.url, environment=pair, stdin=stdin)

    def both(self, *words: str) -> list[Done]:
        """Run a command in both places, on the data directory first."""
        return [self.run_(*words), self.remote(*words)]

    def succeed(self, done: Done) -> Done:
        """Check that a command is done, without a line of errors."""
        self.assertEqual((done.code, done.errors), (0, ""), done)
        return done


class MasterKeyTests(CommandCase):
    """C{storagegate masterkeys}: in the data directory and over the API."""

    def listed(self, name: str) -> list[tuple[int, bool]]:
        """Return the versions and whether the key is disabled, as both places list it."""
        found = [
            (each["versions"], each["disabled"])
            for done in self.both("masterkeys", "list", "--json")
            for each in done.json["masterKeys"]
            if each["name"] == name
        ]
        self.assertEqual(len(found), 2)
        return found

    def test_both(self) -> None:
        """Keys are made, rotated, disabled and enabled in each place, and seen in both."""
        for run in (self.run_, self.remote):
            name = self.makeName("master")
            self.succeed(run("masterkeys", "create", name))
            done = run("masterkeys", "create", name)
            self.assertEqual(done.code, 1)
            self.assertIn("exists", done.errors)
            self.succeed(run("masterkeys", "rotate", name))
            self.succeed(run("masterkeys", "disable", name))
            self.assertEqual(self.listed(name), [(2, True)] * 2)
            self.succeed(run("masterkeys", "enable", name))
            self.assertEqual(self.listed(name), [(2, False)] * 2)
            self.assertEqual(run("masterkeys", "rotate", f"{name}-none").code, 1)
            self.assertEqual(run("masterkeys", "create", "../x").code, 1)
        for done in self.both("masterkeys", "rewrap", "--json"):
            self.assertEqual(self.succeed(done).json["failed"], [])

    def test_role(self) -> None:
        """Over the API an auditor lists the keys, and only an administrator changes them."""
        self.succeed(self.run_("masterkeys", "create", name := self.makeName("master")))
        for role, words, code in (
            ("none", ("list",), 1),
            ("auditor", ("list",), 0),
            ("auditor", ("rotate", name), 1),
            ("auditor", ("rewrap",), 1),
            ("admin", ("rotate", name), 0),
        ):
            wanted = ("--account", "mk", "--role", role)
            made = self.remote("keys", "create", *wanted, "--json").json
            account = Account(made["accessKey"], made["secretKey"])
            done = self.remote("masterkeys", *words, account=account)
            self.assertEqual(done.code, code, (role, words, done))


class JSONTests(CommandCase):
    """C{--json}: one object, whichever command."""

    def rows(self) -> dict[str, tuple[str, ...]]:
        """Give arguments for each command that works here, by the words of the command."""
        directory = self.makeDirectory()
        bucket = self.makeBucket("json")
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        key = self.issueKey("json").accessKey
        document = directory / "policy.json"
        document.write_text(READ_POLICY)
        account, policy = ("--account", "json"), ("--policy-file", str(document))
        # A copy, for what locks the data.
        copy = directory / "copy"
        return {
            "init": ("--data", str(directory / "i"), "--config", str(directory / "i.toml")),
            "status": (),
            "keys create": ("--account", "json"),
            "keys list": (),
            "keys edit": ("--access-key", key, "--note", "of a test"),
            "keys judge": ("--access-key", key, "--access", "read", "--bucket", bucket),
            "keys revoke": ("--access-key", key),
            "users create": ("ann", *account),
            "users list": account,
            "groups create": ("readers", *account),
            "groups add": ("readers", "ann", *account),
            "groups list": account,
            "policies create": ("reading", *policy, *account),
            "policies list": account,
            "policies show": ("reading", *account),
            "policies attach": ("reading", "--user", "ann", *account),
            "policies put": ("own", "--user", "ann", *policy, *account),
            "users show": ("ann", *account),
            "users disable": ("ann", *account),
            "users enable": ("ann", *account),
            "users revoke-sessions": ("ann", *account),
            "policies remove": ("own", "--user", "ann", *account),
            "policies detach": ("reading", "--user", "ann", *account),
            "policies delete": ("reading", *account),
            "groups remove": ("readers", "ann", *account),
            "groups delete": ("readers", *account),
            "users delete": ("ann", *account),
            "masterkeys create": (f"json-{bucket}",),
            "masterkeys list": (),
            "masterkeys rotate": (f"json-{bucket}",),
            "masterkeys disable": (f"json-{bucket}",),
            "masterkeys enable": (f"json-{bucket}",),
            "masterkeys rewrap": (),
            "buckets list": (),
            "buckets create": (self.makeName("json"),),
            "buckets usage": (),
            "buckets encryption": (bucket, "--set", "sse-kms", "--key", "team"),
            "share": (bucket, "k"),
            "trace": ("--count", "0"),
            "call": ("UserService.ListUsers", "--wire", "http"),
            "config show": (),
            "config check": (),
            "config reload": (),
            "clock confirm": (),
            "connect": ("aws",),
            "completion": ("bash",),
            "backup": ("--to", str(copy)),
            "restore": ("--from", str(copy), "--to", str(directory / "restored")),
            "recover": ("--data", str(copy), "--to", str(directory / "blobs")),
            "fsck": ("--data", str(copy)),
            "buckets delete": (bucket,),
            "doctor": (),
            "proto": ("tests.support.everytype:app", "--lock", str(directory / "lock")),
            "client": ("tests.support.everygateway:gateway", "--typescript"),
        }

    @long("takes a second or more")
    def test_everyCommand(self) -> None:
        """Each command of the table prints one object and nothing besides."""
        rows = self.rows()
        elsewhere = {each.path for each in COMMANDS if each.path.startswith("cluster")}
        programs = {"serve", "run"}
        self.assertEqual({each.path for each in COMMANDS} - elsewhere, {*rows, *programs})
        for path, arguments in rows.items():
            if path in ("trace", "buckets delete"):
                continue
            done = self.run_(*path.split(), *arguments, "--json")
            self.assertTrue(done.output, (path, done))
            self.assertIsInstance(done.json, dict, path)
            self.assertEqual(len(done.output.splitlines()), 1, path)

    def test_refused(self) -> None:
        """What fails prints no object, and one line of errors."""
        for done in self.both("buckets", "delete", "none-of-ours", "--json"):
            self.assertEqual((done.code, done.output), (1, ""))
            self.assertEqual(len(done.errors.splitlines()), 1)


class BothTests(CommandCase):
    """The same commands in both places."""

    def test_keys(self) -> None:
        """A key is created, changed and revoked; the other place sees each change as it is."""
        for name, here, there in (
            ("local", self.run_, self.remote),
            ("remote", self.remote, self.run_),
        ):
            self.checkKey(name, here, there)

    def checkKey(self, name: str, here: Callable[..., Done], there: Callable[..., Done]) -> None:
        """
        Take a key through its life.

        @param here: Runs commands in one place.
        @param there: Runs them in the other.
        """
        key = f"KEYOF{name.upper()}"
        limits = ("--bucket", "ci-*", "--prefix", "out/", "--role", "auditor")
        given = ("--account", name, "--access-key", key, "--secret-stdin", "--expires", "1d")
        done = self.succeed(
            here("keys", "create", *given, *limits, "--json", stdin="issued-secret-of-it\n")
        )
        self.assertEqual(done.json["secretKey"], "issued-secret-of-it")
        created = {k: v for k, v in done.json.items() if k != "secretKey"}
        self.assertEqual(created["prefix"], "out/*")
        # A running daemon reads the keys twice a second.
        self.assertTrue(eventually(lambda: created in there("keys", "list", "--json").json["keys"]))
        taken = there("keys", "create", *given, stdin="another-secret\n")
        self.assertEqual(
            (taken.code, taken.errors), (1, f"storagegate: the access key {key} already exists\n")
        )
        changes = ("--disabled", "yes", "--bucket", "", "--expires", "never")
        changed = self.succeed(there("keys", "edit", "--access-key", key, *changes, "--json"))
        self.assertEqual(
            (changed.json["disabled"], changed.json["bucket"], changed.json["expiresMs"]),
            (True, "", 0),
        )
        anew = self.succeed(here("keys", "edit", "--access-key", key, "--new-secret"))
        self.assertNotIn("issued-secret-of-it", anew.output)
        self.assertIn("AWS_SECRET_ACCESS_KEY=", anew.output)
        words = ("keys", "judge", "--access-key", key, *_JUDGED, "--json")
        self.assertTrue(eventually(lambda: "disabled" in there(*words).json["why"]))
        judged = there(*words)
        self.assertEqual((judged.code, judged.json["allowed"]), (1, False))
        self.succeed(there("keys", "revoke", "--access-key", key))
        # To revoke it again before that would be done.
        absent = f"storagegate: no such access key: {key}\n"
        words = ("keys", "edit", "--access-key", key, "--note", "x")
        self.assertTrue(eventually(lambda: here(*words).errors == absent))
        self.assertEqual(there("keys", "revoke", "--access-key", key).errors, absent)

    def test_identities(self) -> None:
        """A user is made in one place and shown in the other, with the same words and errors."""
        document = self.makeDirectory() / "policy.json"
        document.write_text(READ_POLICY)
        for name, here, there in (
            ("local", self.run_, self.remote),
            ("remote", self.remote, self.run_),
        ):
            account = ("--account", f"people-{name}")
            made = self.succeed(here("users", "create", "Ann", "--tag", "a=b", *account, "--json"))
            self.assertEqual(made.json["tags"], [{"key": "a", "value": "b"}])
            words = ("policies", "put", "own", "--user", "ann", "--policy-file", str(document))
            self.succeed(there(*words, *account))
            self.succeed(
                here("policies", "attach", "amazons3fullaccess", "--user", "ann", *account)
            )
            key = self.succeed(there("keys", "create", "--user", "ANN", *account, "--json")).json
            self.assertEqual((key["user"], key["parent"]), ("ann", ""))
            given = ("--parent", key["accessKey"], "--policy-file", str(document))
            service = self.succeed(here("keys", "create", *given, *account, "--json")).json
            self.assertEqual((service["user"], service["parent"]), ("", key["accessKey"]))
            given = ("keys", "edit", "--access-key", service["accessKey"], "--role", "admin")
            refused = self.both(*given)
            self.assertEqual(refused[0], refused[1])
            self.assertIn("INVALID_ARGUMENT", refused[0].errors)
            first = self.succeed(here("users", "show", "ann", *account, "--json"))
            self.assertEqual(first, there("users", "show", "ann", *account, "--json"))
            self.assertEqual(
                first.json["attachedPolicies"], ["arn:aws:iam::aws:policy/AmazonS3FullAccess"]
            )
            shown = there("policies", "show", "own", "--user", "ann", *account)
            self.assertEqual(shown.output, f"{READ_POLICY}\n")
            for words in (
                ("users", "delete", "ann", *account),
                ("users", "create", "ANN", *account),
                ("users", "create", "a b", *account),
                ("users", "show", "bob", *account),
                ("policies", "delete", "none", *account),
                ("policies", "attach", "none", *account),
                ("keys", "create", "--user", "bob", *account),
                ("keys", "create", "--parent", "bob", *account),
                ("keys", "create", "--user", "ann", "--role", "admin", *account),
                ("keys", "create", "--user", "ann", "--policy-file", str(document), *account),
            ):
                refused = self.both(*words)
                self.assertEqual(refused[0], refused[1])
                self.assertNotEqual((refused[0].code, refused[0].errors), (0, ""), words)

    @long("takes a second or more")
    def test_buckets(self) -> None:
        """So are buckets, which clients of S3 see at once; output and errors are the same."""
        for name, here, there in (
            ("clilocal", self.run_, self.remote),
            ("cliremote", self.remote, self.run_),
        ):
            self.succeed(here("buckets", "create", name, "--locked"))
            self.s3.put_object(Bucket=name, Key="a/b", Body=b"x" * 2000)
            for words in (("list", "--json"), ("list",), ("usage", "--json"), ("usage",)):
                first, second = self.both("buckets", *words, "--prefix", name)
                self.assertEqual(first, second)
            usage = self.remote("buckets", "usage", "--prefix", name, "--json").json
            self.assertEqual(usage["total"]["bytes"], 2000)
            refused = self.both("buckets", "delete", name)
            self.assertEqual(refused[0], refused[1])
            self.assertEqual(refused[0].code, 1)
            again = self.both("buckets", "create", name)
            self.assertEqual(again[0], again[1])
            version = self.s3.list_object_versions(Bucket=name)["Versions"][0]["VersionId"]
            self.s3.delete_object(Bucket=name, Key="a/b", VersionId=version)
            self.succeed(there("buckets", "delete", name))
            self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)
            gone = self.both("buckets", "delete", name)
            self.assertEqual((gone[0], gone[0].code), (gone[1], 1))

    def test_unknownFigures(self) -> None:
        """A key that reaches only some objects of a bucket does not see its figures."""
        name = self.makeBucket()
        self.s3.put_object(Bucket=name, Key="a/b", Body=b"x")
        account = self.issueKey("root", "--bucket", name, "--prefix", "a/*")
        words = ("--prefix", name)
        shown = self.succeed(self.remote("buckets", "list", *words, account=account)).output
        self.assertIn(" -  ", shown.splitlines()[-1])
        usage = self.succeed(self.remote("buckets", "usage", *words, account=account)).output
        self.assertEqual(usage.splitlines()[-1].split(), ["all", "-", "-", "-", "-"])
        both = self.remote("buckets", "usage", *words, "--json", account=account).json
        self.assertIsNone(both["total"]["bytes"])

    @long("takes a second or more")
    def test_encryption(self) -> None:
        """The default encryption of a bucket is changed in parts, and shown as it is."""
        bucket = self.makeBucket("clisealed")
        for run, words, shown in (
            (self.run_, (), "none"),
            (
                self.remote,
                ("--set", "sse-kms", "--key", "team"),
                "sse-kms with the master key team",
            ),
            (
                self.run_,
                ("--block-sse-c", "yes"),
                "sse-kms with the master key team; keys of clients (SSE-C) are refused",
            ),
            (
                self.remote,
                ("--set", "sse-s3"),
                "sse-s3; keys of clients (SSE-C) are refused",
            ),
            (self.run_, ("--set", "none"), "none; keys of clients (SSE-C) are refused"),
            (self.remote, ("--block-sse-c", "no"), "none"),
        ):
            done = self.succeed(run("buckets", "encryption", bucket, *words))
            self.assertEqual(done.output, f"default encryption: {shown}\n")
        self.assertRefused(
            404,
            "ServerSideEncryptionConfigurationNotFoundError",
            self.s3.get_bucket_encryption,
            Bucket=bucket,
        )
        misused = self.run_("buckets", "encryption", bucket, "--set", "sse-s3", "--key", "team")
        self.assertEqual((misused.code, misused.output), (2, ""))
        for done in self.both("buckets", "encryption", "none-of-ours"):
            self.assertEqual((done.code, done.output), (1, ""))

    def test_status(self) -> None:
        """The state is that of the daemon, in both places; without a command it is a line."""
        for done in self.both("status", "--json"):
            self.succeed(done)
            self.assertEqual((done.json["status"], done.json["workers"]), ("ok", 1))
        for done in self.both("status"):
            self.assertRegex(self.succeed(done).output, r"(?m)^status +ok$")
        done = self.succeed(self.run_())
        self.assertIn(": ok, ", done.output.splitlines()[0])
        self.assertTrue(all(each.path in done.output for each in COMMANDS))

    def test_config(self) -> None:
        """Keys have their values and origins; no secret is printed."""
        for done in self.both("config", "show", "--json"):
            found = {row["key"]: row for row in self.succeed(done).json["keys"]}
            self.assertEqual(found["secretKey"]["value"], "***")
            self.assertEqual(found["accessKey"]["origin"], "variable STORAGEGATE_ACCESS_KEY")
            self.assertNotIn(ROOT.secretKey, done.output)
        done = self.run_("config", "check", environment={"STORAGEGATE_WORKERS": "x"})
        self.assertEqual((done.code, done.errors), (1, ""))
        self.assertIn("workers (variable STORAGEGATE_WORKERS)", done.output)
        for done in self.both("config", "reload"):
            self.assertEqual(self.succeed(done).output, "applied: nothing\n")

    def test_doctor(self) -> None:
        """The findings of the daemon's own doctor come over the API."""
        done = self.remote("doctor", "--json")
        self.assertEqual(done.errors, "")
        levels = {each["level"] for each in done.json["findings"]}
        self.assertEqual(done.json["ok"], "problem" not in levels)
        self.assertEqual(done.code, int("problem" in levels))
        self.assertIn("ports", {each["check"] for each in done.json["findings"]})

    def test_share(self) -> None:
        """The URL has the bytes without a key."""
        bucket = self.makeBucket("share")
        self.s3.put_object(Bucket=bucket, Key="a b/\u00fc?", Body=b"shared")
        from urllib.request import urlopen

        for done in self.both("share", bucket, "a b/\u00fc?", "--expires", "5m"):
            self.assertEqual(done.code, 0, done)
            with urlopen(done.output.strip()) as response:
                self.assertEqual(response.read(), b"shared")
        refused = self.run_("share", bucket, "none")
        self.assertEqual((refused.code, refused.output), (1, ""))


_JUDGED = ("--access", "read", "--bucket", "some-bucket")


class RightsTests(CommandCase):
    """What the key of C{--url} may not do."""

    def test_roles(self) -> None:
        """A key without a role gets the API's refusals; a wrong secret is told from them."""
        account = self.issueKey("norole")
        done = self.remote("status", account=account)
        self.assertEqual((done.code, done.output), (1, ""))
        self.assertIn("auditor", done.errors)
        self.assertIn("PERMISSION_DENIED", done.errors)
        done = self.remote("keys", "create", "--account", "x", account=account)
        self.assertIn("PERMISSION_DENIED", done.errors)
        own = self.remote("keys", "list", "--json", account=account).json["keys"]
        self.assertEqual([row["accessKey"] for row in own], [account.accessKey])
        done = self.remote("keys", "list", account=Account(account.accessKey, "wrong-secret"))
        self.assertEqual(done.code, 1)
        self.assertIn("UNAUTHENTICATED", done.errors)

    def test_profile(self) -> None:
        """A profile has URL and pair; a file that others may read is refused."""
        home = self.makeDirectory()
        path = home / "storagegate" / "profiles.toml"
        path.parent.mkdir()
        path.write_text(
            f'[here]\nurl = "{self.url}"\naccessKey = "{ROOT.accessKey}"\n'
            f'secretKey = "{ROOT.secretKey}"\n[wrong]\nuri = "x"\n'
        )
        environment = {"XDG_CONFIG_HOME": str(home)}
        words = ("buckets", "list", "--json", "--profile")
        for mode, code in ((0o644, 2), (0o600, 0)):
            path.chmod(mode)
            done = self.run_(*words, "here", environment=environment)
            self.assertEqual(done.code, code, done)
        for name, reason in (("there", "no profile [there]"), ("wrong", "wrong.uri")):
            done = self.run_(*words, name, environment=environment)
            self.assertEqual(done.code, 2)
            self.assertIn(reason, done.errors)


class TLSTests(CommandCase):
    """A daemon behind TLS."""

    def test_verified(self) -> None:
        """The certificate is checked by the authorities that are named, before the pair is sent."""
        directory = self.makeDirectory()
        authority = Authority(directory)
        certificate, key = authority.issue()
        place = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        daemon = makeDaemon(directory / "data", "--admin", place)
        self.addCleanup(daemon.kill)
        port = daemon.start().address("admin")[1]
        words = ("buckets", "list", "--json", "--url", f"https://localhost:{port}")
        done = self.run_(*words, "--cacert", str(authority.path), environment=PAIR)
        self.assertEqual(self.succeed(done).json, {"buckets": []})
        refused = self.run_(*words, environment=PAIR)
        self.assertEqual(refused.code, 3)
        self.assertIn("certificate verify failed", refused.errors)
        absent = self.run_(*words, "--cacert", str(directory / "none"), environment=PAIR)
        self.assertEqual(absent.code, 2)
        local = {**PAIR, "STORAGEGATE_DATA": str(daemon.data)}
        self.assertEqual(self.run_("status", "--json", environment=local).json["status"], "ok")
        # The file names the certificates that the listener must present.
        listeners = daemon.data / "listeners.json"
        found = json.loads(listeners.read_text())
        other = Authority(self.makeDirectory()).issue()[0]
        found["listeners"]["admin"]["certificates"] = [str(other)]
        listeners.write_text(json.dumps(found))
        wrong = self.run_("status", environment=local)
        self.assertEqual((wrong.code, wrong.output), (3, ""))
        self.assertIn("certificate verify failed", wrong.errors)


class LiveTests(CommandCase):
    """Commands that only a running daemon can do."""

    def test_call(self) -> None:
        """A method is called with requests of flags and of standard input; errors are exit 1."""
        for number, run in enumerate((self.run_, self.remote)):
            user = json.dumps({"name": "Ada", "email": f"ada{number}@example.com"})
            done = run("call", "UserService.CreateUser", "--request", user, "--json")
            self.assertEqual((done.code, done.json["error"]), (0, None), done)
            [item] = done.json["items"]
            self.assertEqual(item["data"]["name"], "Ada")
        listed = self.run_("call", "UserService.ListUsers")
        self.assertEqual(
            [json.loads(line)["name"] for line in listed.output.splitlines()], ["Ada"] * 2
        )
        self.assertIn("2 items", listed.errors)
        missing = self.run_("call", "UserService.GetUser", "--request", '{"id": "none"}', "--json")
        self.assertEqual(missing.code, 1)
        self.assertTrue(missing.json["error"]["error"], missing)
        fromInput = self.run_(
            "call", "UserService.GetUser", "--request", "-", stdin='{"id": "none"}\n'
        )
        self.assertEqual((fromInput.code, fromInput.output), (1, ""))
        for wrong in (("Nothing",), ("A.b", "--request", "{"), ("A.b", "--metadata", "x")):
            self.assertEqual(self.run_("call", *wrong).code, 2, wrong)

    @long("starts processes")
    def test_callGateway(self) -> None:
        """With a URL, the command calls the gateway itself: one request, or a stream of lines."""
        url = self.daemon.url("http") + "/api"

        def run(*words: str, stdin: str = "") -> Done:
            ran = subprocess.run(
                [sys.executable, "-m", "storagegate", "call", *words],
                input=stdin,
                env=daemonEnvironment(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            return Done(ran.returncode, ran.stdout, ran.stderr)

        created = json.dumps({"name": "Eve", "email": "eve@example.com"})
        creating = ("UserService.CreateUser", "--to", url)
        done = run(*creating, "--request", created, "--json")
        self.assertEqual((done.code, done.json["error"]), (0, None), done)
        [item] = done.json["items"]
        self.assertEqual(item["data"]["name"], "Eve")
        self.assertGreater(item["bytes"], 10)
        listed = run("UserService.ListUsers", "--to", url)
        names = [json.loads(line)["name"] for line in listed.output.splitlines()]
        self.assertIn("Eve", names)
        self.assertIn(f"{len(names)} items", listed.errors)
        again = run(*creating, "--request", "-", stdin=f"{created}\n")
        self.assertEqual((again.code, again.output), (1, ""), again)
        streamed = run(*creating, "--request", "-", "--stream", stdin=f"{created}\n" * 2)
        self.assertEqual((streamed.code, streamed.output), (1, ""), streamed)
        # Other tests list the users, too.
        deleted = json.dumps({"id": item["data"]["id"]})
        self.assertEqual(run("UserService.DeleteUser", "--to", url, "--request", deleted).code, 0)
        for wrong in (
            ("--to", "ftp://a"),
            ("--to", url, "--request", "{"),
            ("--to", url, "--request", "{}", "--request", "{}"),
            ("--to", url, "--deadline", "0"),
        ):
            self.assertEqual(run("A.b", *wrong).code, 2, wrong)
        for words in (("--stream",), ("--to", url, "--wire", "http")):
            self.assertEqual(self.run_("call", "A.b", *words).code, 2)
        self.assertEqual(run("A.b", "--to", "tcp://127.0.0.1:1").code, 3)

    def test_trace(self) -> None:
        """Requests are printed as they are handled, filtered by the daemon."""
        from threading import Event, Thread

        bucket = self.makeBucket("trace")
        stopped = Event()

        def request() -> None:
            while not stopped.wait(0.1):
                self.s3.put_object(Bucket=bucket, Key="a\x1b[31m", Body=b"xyz")
                self.s3.list_objects_v2(Bucket=bucket)

        thread = Thread(target=request)
        thread.start()
        try:
            filters = ("--operation", "PutObject", "--bucket", bucket, "--count", "2")
            lines = self.succeed(self.remote("trace", *filters)).output.splitlines()
            records = self.succeed(self.run_("trace", *filters, "--json")).output.splitlines()
        finally:
            stopped.set()
            thread.join()
        self.assertEqual((len(lines), len(records)), (2, 2))
        self.assertRegex(lines[0], r" s3 +PutObject +200 .* ms .*" + bucket)
        self.assertNotIn("\x1b", lines[0])
        self.assertEqual(json.loads(records[0])["key"], "a\x1b[31m")


class RunningTests(CommandCase):
    """Commands that know the data directory of a running daemon, and nothing else of it."""

    def test_directory(self) -> None:
        """They reach the ports of the daemon, whatever the configuration of the caller says."""
        environment = {name: PAIR[name] for name in PAIR}
        data = ("--data", str(self.daemon.data))
        status = self.succeed(self.run_("status", "--json", *data, environment=environment))
        self.assertEqual(status.json["status"], "ok")
        self.succeed(self.run_("buckets", "list", *data, environment=environment))
        for variables in ({}, {"STORAGEGATE_S3": "off", "STORAGEGATE_REGION": "eu-west-1"}):
            connect = ("connect", "aws", "--json", *data)
            done = self.succeed(self.run_(*connect, environment={**environment, **variables}))
            found = (done.json["endpoint"], done.json["region"])
            self.assertEqual(found, (self.endpoint, "us-east-1"))

    def test_amazon(self) -> None:
        """The variables and profiles of Amazon's tools name key pair, endpoint and region."""
        home = self.makeDirectory()
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").write_text(
            f"[mine]\naws_access_key_id = {ROOT.accessKey}\n"
            f"aws_secret_access_key = {ROOT.secretKey}\n"
        )
        (home / ".aws" / "config").write_text(
            "[profile mine]\nregion = us-east-1\nendpoint_url = https://s3.example.com\n"
        )
        profile = {"HOME": str(home), "AWS_PROFILE": "mine"}
        pair = {"AWS_ACCESS_KEY_ID": ROOT.accessKey, "AWS_SECRET_ACCESS_KEY": ROOT.secretKey}
        remote = ("--url", self.url)
        for words, environment in (
            (remote, profile),
            (remote, pair),
            ((*remote, "--profile", "mine"), {"HOME": str(home)}),
        ):
            done = self.run_("buckets", "list", *words, environment=environment)
            self.assertEqual((done.code, done.errors), (0, ""), environment)
        connect = ("connect", "aws", "--json", "--with-secret", *remote)
        done = self.succeed(self.run_(*connect, environment=profile))
        self.assertEqual(
            (done.json["endpoint"], done.json["accessKey"]),
            ("https://s3.example.com", ROOT.accessKey),
        )
        flag = ("--endpoint", "https://flag.example.com")
        done = self.run_(*connect, *flag, environment={**profile, "AWS_REGION": "eu-west-1"})
        self.assertEqual(done.json["endpoint"], "https://flag.example.com")
        self.assertEqual(done.json["region"], "eu-west-1")
        self.assertIn("accepts only us-east-1", done.errors)

    def test_sessionToken(self) -> None:
        """A session token is sent, and the daemon says that it has no temporary keys."""
        pair = {"AWS_ACCESS_KEY_ID": ROOT.accessKey, "AWS_SECRET_ACCESS_KEY": ROOT.secretKey}
        environment = {**pair, "AWS_SESSION_TOKEN": "a-token"}
        done = self.run_("buckets", "list", "--url", self.url, environment=environment)
        self.assertEqual((done.code, done.output), (1, ""))
        self.assertIn("Temporary keys are not supported", done.errors)
        done = self.run_(
            "connect", "aws", "--with-secret", "--endpoint", self.endpoint, environment=environment
        )
        self.assertEqual((done.code, done.output), (2, ""))

    @long("restarts a daemon")
    def test_end(self) -> None:
        """The file is the owner's only; a stop removes it, and one that a kill left is ignored."""
        for workers in ("1", "2"):
            daemon = makeDaemon(self.makeDirectory() / "data", "--workers", workers)
            self.addCleanup(daemon.kill)
            path = daemon.data / "listeners.json"
            environment = {**PAIR, "STORAGEGATE_DATA": str(daemon.data)}
            state = lambda: self.run_("status", "--json", environment=environment).json["status"]  # noqa: B023, E731
            daemon.start()
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            self.assertEqual(json.loads(path.read_text())["pid"], daemon.pid)
            self.assertEqual(state(), "ok")
            self.assertEqual(daemon.stop(), 0)
            self.assertFalse(path.exists())
            self.assertEqual(state(), "stopped")
            daemon.start().kill()
            self.assertTrue(path.exists())
            self.assertEqual(state(), "stopped")
            before = path.read_text()
            daemon.start()
            self.assertNotEqual(path.read_text(), before)
            self.assertEqual(state(), "ok")


class UnreachedTests(CommandCase):
    """Daemons that are not there."""

    def test_none(self) -> None:
        """Exit code 3 and one line: no daemon, nothing that listens, no console behind it."""
        data = self.makeDirectory() / "data"
        shutil.copytree(
            self.daemon.data, data, ignore=lambda path, names: [n for n in names if n == "lock"]
        )
        local = {**self.local, "STORAGEGATE_DATA": str(data)}
        for words in (("trace",), ("share", "a", "b"), ("config", "reload")):
            done = self.run_(*words, environment=local)
            self.assertEqual((done.code, done.output), (3, ""), done)
            self.assertIn("no daemon runs", done.errors)
        stopped = self.run_("status", "--json", environment=local)
        self.assertEqual((stopped.code, stopped.json["status"]), (3, "stopped"))
        running = self.run_("status", "--json").json
        self.assertEqual(set(stopped.json), set(running))
        self.assertEqual(set(stopped.json["store"]), set(running["store"]))
        self.assertEqual(self.run_(environment=local).code, 0)
        port = heldPort(self)
        for url in (f"http://127.0.0.1:{port}", self.endpoint):
            done = self.run_("status", "--url", url, environment=PAIR)
            self.assertEqual((done.code, done.output), (3, ""), done)
            self.assertEqual(len(done.errors.splitlines()), 1)

    def test_otherProcess(self) -> None:
        """The root pair is not sent to a port that is another process's."""
        import socket

        listeners = self.daemon.data / "listeners.json"
        written = listeners.read_text()
        self.addCleanup(listeners.write_text, written)
        found = json.loads(written)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0.2)
            port = server.getsockname()[1]
            found["listeners"]["admin"]["url"] = f"http://127.0.0.1:{port}"
            listeners.write_text(json.dumps(found))
            done = self.run_("trace")
            self.assertEqual(done.code, 3)
            self.assertIn("another process", done.errors)
            with self.assertRaises(TimeoutError):
                server.accept()

    def test_urls(self) -> None:
        """The pair is not sent in clear to another machine, and not without a pair."""
        for url, reason in (
            ("http://192.0.2.1:9001", "in clear"),
            ("ftp://127.0.0.1", "expected a URL"),
            ("127.0.0.1:9001", "expected a URL"),
            ("http://127.0.0.1:99999", "expected a URL"),
        ):
            done = self.run_("keys", "list", "--url", url, environment=PAIR)
            self.assertEqual(done.code, 2, url)
            self.assertIn(reason, done.errors)
        done = self.run_("keys", "list", "--url", self.url, environment={})
        self.assertEqual(done.code, 2)
        self.assertIn("STORAGEGATE_ACCESS_KEY", done.errors)


class ConnectTests(CommandCase):
    """What C{connect} prints is what the clients need."""

    def parts(self, tool: str, bucket: str, *flags: str) -> dict[str, str]:
        """Give the texts by their places."""
        done = self.succeed(
            self.run_("connect", tool, "--bucket", bucket, "--with-secret", "--json", *flags)
        )
        self.assertEqual(done.json["endpoint"], self.endpoint)
        return {part["place"]: part["text"] for part in done.json["parts"]}

    def filled(self) -> str:
        """Make a bucket with one object."""
        bucket = self.makeBucket("connect")
        self.s3.put_object(Bucket=bucket, Key="found-by-the-client", Body=b"x")
        return bucket

    def runShell(self, text: str, tool: str, home: Path, **variables: str) -> str:
        """Run commands of a shell, in which the client is found."""
        path = f"{Path(needProgram(tool)).parent}:{os.environ['PATH']}"
        return runTool(["sh", "-ec", text], {"HOME": str(home), "PATH": path, **variables})

    def writeFiles(self, parts: dict[str, str], home: Path) -> None:
        """Write the files of a home directory."""
        for place, text in parts.items():
            if place.startswith("~/"):
                path = home / place[2:]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def test_aws(self) -> None:
        """aws-cli lists the bucket with the files that it prints."""
        needProgram("aws")
        home, bucket = self.makeDirectory(), self.filled()
        parts = self.parts("aws", bucket)
        self.writeFiles(parts, home)
        self.assertIn("found-by-the-client", self.runShell(parts["shell"], "aws", home))

    def test_rclone(self) -> None:
        """So does rclone."""
        needProgram("rclone")
        home, bucket = self.makeDirectory(), self.filled()
        parts = self.parts("rclone", bucket)
        self.writeFiles(parts, home)
        self.assertIn("found-by-the-client", self.runShell(parts["shell"], "rclone", home))

    @long("needs restic, which pip does not bring")
    def test_restic(self) -> None:
        """restic makes its repository."""
        needProgram("restic")
        home, bucket = self.makeDirectory(), self.makeBucket("connect")
        self.runShell(self.parts("restic", bucket)["shell"], "restic", home, RESTIC_PASSWORD="x")
        self.assertTrue(self.s3.get_object(Bucket=bucket, Key="config"))

    def test_boto3(self) -> None:
        """The program counts the objects."""
        home, bucket = self.makeDirectory(), self.filled()
        program = home / "storagegate.py"
        program.write_text(self.parts("boto3", bucket)["storagegate.py"])
        self.assertEqual(runTool([sys.executable, program], {"HOME": str(home)}), "1\n")

    def test_mc(self) -> None:
        """mc lists the bucket."""
        if findProgram("mc") is None:
            raise SkipTest("mc is in no package of Debian, PyPI or npm")
        home, bucket = self.makeDirectory(), self.filled()
        text = self.parts("mc", bucket)["shell"]
        self.assertIn("found-by-the-client", self.runShell(text, "mc", home))

    def test_s5cmd(self) -> None:
        """s5cmd lists the bucket."""
        needProgram("s5cmd")
        home, bucket = self.makeDirectory(), self.filled()
        text = self.parts("s5cmd", bucket)["shell"]
        self.assertIn("found-by-the-client", self.runShell(text, "s5cmd", home))

    def test_secret(self) -> None:
        """Without the flag there is no secret; over the API the URL is the same."""
        for tool in ("aws", "rclone", "mc", "restic", "s5cmd", "boto3"):
            for done in (
                self.run_("connect", tool),
                self.remote("connect", tool, "--endpoint", self.endpoint),
            ):
                self.assertNotIn(ROOT.secretKey, self.succeed(done).output)
                self.assertIn("SECRET-KEY", done.output)
        done = self.run_("connect", "aws", "--with-secret", environment={})
        self.assertEqual(done.code, 2)


class TableTests(CommandCase):
    """The table itself."""

    def test_flags(self) -> None:
        """Each command has the flags of its place; those of the data directory say the same."""
        from storagegate.cli.commandline import argumentsOf
        from storagegate.daemon.configkeys import KEYS

        meaning = next(key.meaning for key in KEYS if key.name == "data")
        for command in COMMANDS:
            found = {each.names[0]: each for each in argumentsOf(command)}
            isProgram = command.path in ("serve", "run")
            self.assertEqual("--json" in found, not isProgram, command.path)
            self.assertEqual(
                "--url" in found, command.place is CommandPlace.EITHER or command.path == "doctor"
            )
            if "--data" in found and command.path != "init":
                self.assertEqual(found["--data"].settings["help"], meaning)
