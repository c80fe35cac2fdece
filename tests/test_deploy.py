"""The files of C{deploy/}: what systemd itself says of the units, and what they have in common."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from urllib.request import urlopen

import yaml
from twisted.trial.unittest import SynchronousTestCase

from storagegate import __version__
from storagegate.daemon.configkeys import KEYS
from tests.support.modules import CHECKOUT
from tests.support.programs import findProgram, needs
from tests.support.selection import long, soak
from tests.support.units import DEPLOY, dockerSteps, serviceValue, unitValues

SOCKETS = ("s3", "http", "tcp")
DEFAULTS = {key.name: key.default for key in KEYS}

# Tenths: 1.5 of 10. What is left is that it serves the network, on the host's own root directory.
MOST_EXPOSURE = 15

WORDS = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK CMD"

ANALYZE = findProgram("systemd-analyze")


def portOf(place: str) -> str:
    """Give the port of an endpoint's description or of C{HOST:PORT}."""
    match = re.search(r":(\d+)", place)
    assert match is not None, place
    return match.group(1)


@long("a check of CI")
@needs("systemd-analyze")
class AnalyzeTests(SynchronousTestCase):
    """The units as systemd reads them."""

    def setUp(self) -> None:
        """Copy the units, with commands that exist here."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        for path in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.socket")):
            text = path.read_text().replace("/opt/storagegate/bin/twistd", sys.executable)
            (self.directory / path.name).write_text(text)
        dropIns = self.directory / "storagegate.service.d"
        dropIns.mkdir()
        shutil.copy(DEPLOY / "storagegate-sockets.conf", dropIns / "sockets.conf")
        self.units = sorted(str(path) for path in self.directory.glob("*.s*t"))
        self.service = str(self.directory / "storagegate.service")

    def analyze(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run systemd-analyze."""
        assert ANALYZE is not None
        return subprocess.run(
            [ANALYZE, *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    def test_verify(self) -> None:
        """Systemd has nothing to say against the units, alone and together."""
        for units in ([self.service], [self.service, *self.units]):
            result = self.analyze("--man=no", "verify", *units)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_verifySees(self) -> None:
        """It would have: a setting that is none is named."""
        path = Path(self.service)
        path.write_text(path.read_text().replace("UMask=0077", "UMusk=0077"))
        self.assertIn("UMusk", self.analyze("--man=no", "verify", self.service).stderr)

    def test_security(self) -> None:
        """The service is open to as little as one that serves the network can be."""
        strict = ("security", "--offline=yes", "--no-pager")
        result = self.analyze(*strict, f"--threshold={MOST_EXPOSURE}", self.service)
        self.assertEqual(result.returncode, 0, result.stdout)
        path = Path(self.service)
        path.write_text(
            re.sub(r"(?m)^(Protect|Private|System|Capab)\w+=.*\n", "", path.read_text())
        )
        result = self.analyze(*strict, f"--threshold={MOST_EXPOSURE}", self.service)
        self.assertNotEqual(result.returncode, 0)


@long("a check of CI")
class UnitTests(SynchronousTestCase):
    """What the units have to agree on with the daemon."""

    def test_times(self) -> None:
        """A stop is given longer than the daemon takes for what is in flight."""
        grace = int(DEFAULTS["shutdownGraceSeconds"])
        self.assertGreater(int(serviceValue("TimeoutStopSec")), grace + 5)

    def test_directories(self) -> None:
        """The working directory, the state and the home of the user are one place."""
        state = f"/var/lib/{serviceValue('StateDirectory')}"
        self.assertEqual(serviceValue("WorkingDirectory"), state)
        self.assertIn(
            f'u {serviceValue("User")} - "storagegate" {state}\n',
            (DEPLOY / "storagegate.sysusers").read_text(),
        )

    def test_sockets(self) -> None:
        """Each socket has a name, the daemon's own port, and its place in the drop-in."""
        dropIn = DEPLOY / "storagegate-sockets.conf"
        units = [f"storagegate-{name}.socket" for name in SOCKETS]
        self.assertEqual(sorted(path.name for path in DEPLOY.glob("*.socket")), sorted(units))
        for setting in (("Unit", "Requires"), ("Unit", "After"), ("Service", "Sockets")):
            self.assertEqual(unitValues(dropIn, *setting), [" ".join(units)])
        self.assertEqual(
            unitValues(dropIn, "Service", "Environment"),
            [f"STORAGEGATE_{name.upper()}=systemd:domain=INET:name={name}" for name in SOCKETS],
        )
        for name, unit in zip(SOCKETS, units, strict=True):
            path = DEPLOY / unit
            self.assertEqual(unitValues(path, "Socket", "FileDescriptorName"), [name])
            self.assertEqual(unitValues(path, "Socket", "Service"), ["storagegate.service"])
            [place] = unitValues(path, "Socket", "ListenStream")
            self.assertEqual(place, f"127.0.0.1:{portOf(DEFAULTS[name])}")


@long("a check of CI")
class ContainerTests(SynchronousTestCase):
    """The Containerfile, without a container."""

    def setUp(self) -> None:
        """Read it."""
        self.steps = dockerSteps(DEPLOY / "Containerfile")

    def rest(self, word: str) -> list[str]:
        """Give what follows a word, for each instruction of it."""
        return [rest for step, rest in self.steps if step == word]

    def test_words(self) -> None:
        """Every line is an instruction, and the first says what it is built from."""
        known = set(WORDS.split())
        self.assertEqual({word for word, _ in self.steps} - known, set())
        self.assertEqual(self.steps[0][0], "FROM")

    def test_sources(self) -> None:
        """Everything that is copied is there, and everything that setup.py reads is copied."""
        copied = []
        for rest in self.rest("COPY"):
            if not rest.startswith("--from="):
                copied += rest.split()[:-1]
        self.assertEqual([name for name in copied if not (CHECKOUT / name).exists()], [])
        for needed in ("setup.py", "setup.cfg", "README.rst", "LICENSE", "protos", "storagegate"):
            self.assertIn(needed, copied)

    def test_listeners(self) -> None:
        """Each listener is set, on the port of the table of keys, and that port is exposed."""
        [environment] = self.rest("ENV")
        variables = dict(item.split("=", 1) for item in environment.split())
        [exposed] = self.rest("EXPOSE")
        listeners = {key.name: key for key in KEYS if key.argument in ("ENDPOINT", "HOST:PORT")}
        expected = set()
        for name, key in listeners.items():
            port = portOf(key.default)
            self.assertEqual(portOf(variables[key.variable]), port)
            key.read(variables[key.variable])
            expected.add(f"{port}/{'udp' if name == 'udp' else 'tcp'}")
        self.assertEqual(set(exposed.split()), expected)
        known = {key.variable for key in KEYS} | {"PATH", "PYTHONUNBUFFERED"}
        self.assertEqual(set(variables) - known, set())
        self.assertEqual(self.rest("VOLUME"), [variables["STORAGEGATE_DATA"]])

    def test_command(self) -> None:
        """It runs twistd in the foreground without a pid file, and not as root."""
        [command] = self.rest("CMD")
        self.assertEqual(json.loads(command), ["twistd", "-n", "--pidfile=", "storagegate"])
        [user] = self.rest("USER")
        self.assertNotIn("0", user.split(":"))

    def test_account(self) -> None:
        """Account and group have the numbers that it runs as, so that the data are its own."""
        [account] = self.rest("USER")
        user, group = account.split(":")
        [made] = [rest for rest in self.rest("RUN") if "useradd" in rest]
        self.assertIn(f"groupadd --gid {group} storagegate ", made)
        self.assertIn(f"useradd --uid {user} --gid {group} ", made)

    def test_health(self) -> None:
        """The health check is a program that Python can read, and asks the admin listener."""
        [check] = self.rest("HEALTHCHECK")
        command = json.loads(check[check.index("[") :])
        self.assertEqual(command[:2], ["python", "-c"])
        compile(command[2], "check", "exec")
        self.assertIn(f"http://127.0.0.1:{portOf(DEFAULTS['admin'])}/readyz", command[2])


@long("a check of CI")
class ComposeTests(SynchronousTestCase):
    """The file for compose."""

    def test_agrees(self) -> None:
        """It publishes the container's ports on the loopback address, and waits for its end."""
        [service] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
        steps = dict(dockerSteps(DEPLOY / "Containerfile"))
        exposed = {port.removesuffix("/tcp") for port in steps["EXPOSE"].split()} - {"9001"}
        published = {port.removeprefix("127.0.0.1:").partition(":")[2] for port in service["ports"]}
        self.assertEqual(published, exposed)
        self.assertTrue(all(port.startswith("127.0.0.1:") for port in service["ports"]))
        self.assertEqual(service["volumes"], [f"data:{steps['VOLUME']}"])
        root = DEPLOY / service["build"]["context"]
        self.assertTrue((root / service["build"]["dockerfile"]).is_file())
        grace = float(service["stop_grace_period"].removesuffix("s"))
        self.assertGreater(grace, float(DEFAULTS["shutdownGraceSeconds"]))


@long("a check of CI")
class DebianTests(SynchronousTestCase):
    """The recipe of the Debian package."""

    def test_logrotate(self) -> None:
        """The configuration of logrotate is that of the documentation."""
        text = (CHECKOUT / "docs" / "operations.rst").read_text()
        rule = "".join(
            line
            for line in (DEPLOY / "storagegate.logrotate").read_text().splitlines(keepends=True)
            if not line.startswith("#")
        )
        self.assertIn(indent(rule, "    "), text)

    def test_sources(self) -> None:
        """Everything that is copied or installed is there, and setup.py finds what it reads."""
        build = (DEPLOY / "debian" / "build").read_text()
        match = re.search(r"cp -r (LICENSE.*?) \"\$work", build, re.DOTALL)
        assert match is not None
        copied = match[1].replace("\\\n", " ").split()
        self.assertEqual([name for name in copied if not (CHECKOUT / name).exists()], [])
        for needed in ("setup.py", "setup.cfg", "README.rst", "LICENSE", "protos", "storagegate"):
            self.assertIn(needed, copied)
        rules = (DEPLOY / "debian" / "rules").read_text()
        for name in re.findall(r"install -D -m 644 (deploy/\S+)", rules):
            self.assertTrue((CHECKOUT / name).is_file(), name)

    @soak("builds a package for minutes")
    @needs("dh")
    def test_builds(self) -> None:
        """The package is built, and what is in it starts and serves."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        built = subprocess.run(
            [str(DEPLOY / "debian" / "build"), str(directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(built.returncode, 0, built.stdout[-2000:] + built.stderr[-2000:])
        [package] = directory.glob("storagegate_*.deb")
        root = directory / "root"
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)
        python = str(root / "opt" / "storagegate" / "bin" / "python3")
        environment = {"PATH": os.environ["PATH"]}
        version = subprocess.run(
            [python, "-m", "storagegate", "--version"],
            capture_output=True,
            text=True,
            env=environment,
            cwd=directory,
            check=True,
        )
        self.assertEqual(version.stdout, f"storagegate {__version__}\n")
        listeners = [f"--{name}=off" for name in ("http", "grpc", "tcp", "udp")]
        places = [f"--{name}=tcp:0:interface=127.0.0.1" for name in ("s3", "admin")]
        with subprocess.Popen(
            [python, "-m", "storagegate", "serve", "--data", "data", *listeners, *places],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=directory,
        ) as daemon:
            assert daemon.stdout is not None
            line = next(line for line in daemon.stdout if "listening name=admin" in line)
            place = line.rpartition("=")[2].strip()
            with urlopen(f"http://{place}/readyz", timeout=60) as response:
                self.assertEqual(response.status, 200)
            daemon.terminate()
