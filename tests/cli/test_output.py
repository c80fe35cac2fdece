"""What commands print: on terminals, in pipes, as JSON."""

import json
import os
import pty
import pwd
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.output import Cell, CommandOutput, formatBytes, formatTime
from tests.cli.test_main import ScriptCase
from tests.support.daemon import CHECKOUT
from tests.support.selection import long

_PROGRAM = """
import os, sys, time
from storagegate.cli.output import Cell, CommandOutput
output = CommandOutput(False, os.environ)
output.result({}, output.table(("A", "B"), [(Cell("red", "red"), "x\\x1b[2J\\u202e")]))
with output.progress("work") as progress:
    progress(1, 2)
"""


def onTerminal(**variables: str) -> str:
    """Run the program with a terminal as its outputs; give what it has written."""
    return _run([sys.executable, "-c", _PROGRAM], None, **variables)


def _run(command: list[str], typed: str | None, **variables: str) -> str:
    """
    Run a command on a terminal, and return what that shows.

    @param typed: What comes from the terminal's keyboard; L{None} for no keyboard.
    """
    main, other = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"}
    process = subprocess.Popen(
        command,
        env={**environment, **variables},
        stdin=subprocess.DEVNULL if typed is None else other,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    os.write(main, (typed or "").encode())
    written = b""
    try:
        while piece := os.read(main, 4096):
            written += piece
    except OSError:
        # The end of a terminal whose other side is closed.
        pass
    os.close(main)
    process.wait(60)
    return written.decode()


class TerminalTests(SynchronousTestCase):
    """Terminals and pipes."""

    def test_terminal(self) -> None:
        """A terminal gets colours and the bar, which is removed; foreign text is escaped."""
        written = onTerminal()
        self.assertIn("\x1b[31mred\x1b[0m", written)
        self.assertIn("x\\x1b[2J\\u202e", written)
        bar = "\rwork [###############---------------]  50% 1/2"
        self.assertIn(bar, written)
        self.assertTrue(written.endswith("\r" + " " * (len(bar) - 1) + "\r"), repr(written))

    def test_noColour(self) -> None:
        """C{NO_COLOR} and a dumb terminal get none; an empty C{NO_COLOR} is none."""
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", onTerminal(**variables))
        self.assertIn("\x1b[31m", onTerminal(NO_COLOR=""))

    def test_pipe(self) -> None:
        """A pipe gets neither."""
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual((done.stdout, done.stderr), ("A    B\nred  x\\x1b[2J\\u202e\n", ""))


class OutputTests(SynchronousTestCase):
    """Tables, lines and objects."""

    def setUp(self) -> None:
        """Keep what is printed."""
        self.written = StringIO()
        self.patch(sys, "stdout", self.written)

    def test_table(self) -> None:
        """Columns are as wide as their widest cells; no line ends with spaces."""
        lines = CommandOutput(False).table(("NAME", "B"), [("a", Cell("1")), ("longer", "")])
        self.assertEqual(list(lines), ["NAME    B", "a       1", "longer"])

    def test_lines(self) -> None:
        """Lines that were printed before are part of the object."""
        for isJSON, expected in ((False, "one\ntwo\nlast\n"), (True, None)):
            self.written.truncate(0)
            self.written.seek(0)
            output = CommandOutput(isJSON)
            output.line("one")
            with output.captured():
                print("two")
            output.result({"ok": True}, ["last"])
            text = self.written.getvalue()
            if expected is not None:
                self.assertEqual(text, expected)
            else:
                self.assertEqual(json.loads(text), {"ok": True, "lines": ["one", "two"]})

    def test_formats(self) -> None:
        """Sizes have units, times are in UTC."""
        self.assertEqual(
            [formatBytes(each) for each in (0, 1023, 1536)], ["0 B", "1023 B", "1.5 KiB"]
        )
        self.assertEqual(formatBytes(5 << 60), "5120.0 PiB")
        self.assertEqual([formatTime(0), formatTime(1)], ["-", "1970-01-01T00:00:00Z"])


class ScriptTests(ScriptCase):
    """The script as a whole."""

    def test_imports(self) -> None:
        """The help of the script and of a command imports no reactor, store or console."""
        script = (
            "import sys\nfrom storagegate.cli.main import main\n"
            "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
            "print(*[name for name in sys.modules if name.startswith(('storagegate.', 'twisted'))])"
        )
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT)}
        for words in (("--help",), ("keys", "create", "--help"), ("trace", "--help")):
            done = subprocess.run(
                [sys.executable, "-c", script, *words],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            found = set(done.stdout.splitlines()[-1].split())
            allowed = {"cli", "core", "version"}
            outside = {each for each in found if each.split(".")[1] not in allowed}
            self.assertEqual(outside, set(), words)

    def test_secretsInArguments(self) -> None:
        """No flag takes a secret: arguments are seen in ps."""
        code, _output, errors = self.keys(
            "create", "--account", "a", "--access-key", "mykey", "--secret-key", "geheimnis"
        )
        self.assertEqual(code, 2)
        self.assertIn("--secret-key", errors)
        code, output, errors = self.keys(
            "create", "--account", "a", "--access-key", "mykey", "--secret-stdin", stdin="x\n"
        )
        self.assertEqual((code, output), (2, ""))
        self.assertIn("standard input", errors)

    def test_expires(self) -> None:
        """When a key ends is a duration, a day or a time; what is none is refused."""
        given = ("create", "--account", "a", "--json", "--expires")
        for text, expected in (
            ("2030-12-31", 1_924_991_999_000),
            ("2030-12-31T12:00:00+02:00", 1_924_941_600_000),
            ("never", 0),
        ):
            _code, output, _errors = self.keys(*given, text)
            self.assertEqual(json.loads(output)["expiresMs"], expected, text)
        _code, output, _errors = self.keys(*given, "2d")
        key = json.loads(output)
        self.assertLess(abs(key["expiresMs"] - key["createdMs"] - 2 * 86_400_000), 60_000)
        for text in ("", "2", "d", "-1d", "yesterday", "2030-13-01", "1e3d"):
            self.assertEqual(self.keys(*given, text)[0], 2, text)

    def test_past(self) -> None:
        """A time of expiry that is not in the future is refused, for a new key and for a change."""
        account = ("--account", "a", "--access-key", "mykey", "--secret-stdin")
        for text in ("2020-01-01", "1999-12-31T23:59:59Z", "0s"):
            code, output, errors = self.keys("create", *account, "--expires", text)
            self.assertEqual((code, output), (2, ""), text)
            self.assertIn("not a time in the future", errors)
        self.assertEqual(self.stored(), {})
        self.assertEqual(self.keys("create", *account)[0], 0)
        code, _output, errors = self.keys(
            "edit", "--access-key", "mykey", "--expires", "2020-01-01"
        )
        self.assertEqual((code, self.stored()["mykey"].expiresMs), (2, 0))
        self.assertIn("not a time in the future", errors)


class InitTests(ScriptCase):
    """C{storagegate init}."""

    def test_init(self) -> None:
        """It makes what the daemon and the commands use, and shows the pair once."""
        base = Path(self.mktemp()).absolute()
        flags = ("--data", str(base / "d a%ta"), "--config", str(base / "etc" / "s.toml"))
        unit = base / "storagegate.service"
        user = ("--user", pwd.getpwuid(os.geteuid()).pw_name)
        command = ("init", *flags, "--unit", str(unit), *user, "--s3", "tcp:9100", "--json")
        code, output, errors = self.script(*command)
        self.assertEqual((code, errors), (0, ""))
        made = json.loads(output)
        self.assertEqual(len(made["made"]), 3)
        pair = (base / "d a%ta" / "root-credentials").read_text()
        self.assertIn(made["secretKey"], pair)
        for path, mode in ((base / "d a%ta", 0o700), (base / "etc" / "s.toml", 0o600)):
            self.assertEqual(path.stat().st_mode & 0o777, mode)
        text = unit.read_text()
        self.assertIn(f"serve --config {base}/etc/s.toml\n", text)
        self.assertIn(f'ReadWritePaths="{base}/d a%%ta"\n', text)
        code, output, _errors = self.script("config", "show", "--json", *flags[2:])
        shown = {row["key"]: row for row in json.loads(output)["keys"]}
        self.assertEqual(shown["s3"]["value"], "tcp:9100")
        self.assertEqual(shown["data"]["value"], str(base / "d a%ta"))
        # Again: nothing is changed, and the secret not shown.
        before = {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
        code, output, _errors = self.script(*command)
        self.assertEqual((code, json.loads(output)["made"]), (0, []))
        self.assertNotIn("secretKey", json.loads(output))
        self.assertEqual({path: path.read_bytes() for path in before}, before)

    def test_asks(self) -> None:
        """On a terminal it asks for what no flag says; an empty answer is the default."""
        base = Path(self.mktemp()).absolute()
        command = [sys.executable, "-m", "storagegate", "init", "--s3", "tcp:9100"]
        shown = _run(command, f"{base}/s.toml\n{base}/d\n\n")
        self.assertIn("configuration [./storagegate.toml]: ", shown)
        self.assertIn("data directory [./storagegate-data]: ", shown)
        self.assertIn("admin listener [tcp:9001:interface=127.0.0.1]: ", shown)
        self.assertNotIn("S3 listener [", shown)
        values = tomllib.loads((base / "s.toml").read_text())
        self.assertEqual((values["data"], values["s3"]), (f"{base}/d", "tcp:9100"))
        self.assertTrue((base / "d" / "root-credentials").exists())

    def test_refused(self) -> None:
        """A value that the daemon would refuse, or that the file has otherwise, changes nothing."""
        base = Path(self.mktemp()).absolute()
        flags = ("--data", str(base / "data"), "--config", str(base / "s.toml"))
        code, output, errors = self.script("init", *flags, "--s3", "")
        self.assertEqual((code, output), (2, ""))
        self.assertIn("s3", errors)
        self.assertFalse(base.exists())
        self.script("init", *flags)
        code, _output, errors = self.script("init", *flags, "--s3", "tcp:1")
        self.assertEqual(code, 2)
        self.assertIn("has s3", errors)

    def test_keptWithoutKeys(self) -> None:
        """A flag that the existing configuration does not have is refused: it would not apply."""
        base = Path(self.mktemp()).absolute()
        base.mkdir()
        config = base / "s.toml"
        config.write_text('region = "eu"\n')
        flags = ("--data", str(base / "data"), "--config", str(config))
        code, _output, errors = self.script("init", *flags)
        self.assertEqual(code, 2)
        self.assertIn(f'exists without data: add data = "{base}/data"', errors)
        self.assertEqual([each.name for each in base.iterdir()], ["s.toml"])
        config.write_text(f'data = "{base}/data"\n')
        self.assertEqual(self.script("init", *flags)[0], 0)

    @long("takes a second or more")
    def test_fullDisk(self) -> None:
        """A configuration that cannot be written is absent, so the command can be repeated."""
        base = Path(self.mktemp()).absolute()
        base.mkdir()
        config = base / "s.toml"
        command = [sys.executable, "-m", "storagegate", "init", "--data", str(base / "data")]
        command += ["--config", str(config)]
        # Writes to files fail.
        limited = ["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', *command]
        done = subprocess.run(limited, cwd=CHECKOUT, capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertFalse(config.exists())
        subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=True, timeout=60)
        self.assertEqual(tomllib.loads(config.read_text())["data"], str(base / "data"))
