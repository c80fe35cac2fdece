"""The files of C{deploy/cluster}, without a cluster; C{tests/wire/cluster} starts one with them."""

import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import load
from tests.support.programs import findProgram, needs
from tests.support.selection import long
from tests.support.units import DEPLOY, unitValues

CLUSTER = DEPLOY / "cluster"
MACHINES = ("one=10.0.0.1", "two=10.0.0.2", "three=10.0.0.3")
ANALYZE = findProgram("systemd-analyze")
HAPROXY = findProgram("haproxy")


def configure(directory: Path, *machines: str) -> "subprocess.CompletedProcess[str]":
    """Run the program that fills in the files."""
    command = [sys.executable, str(CLUSTER / "configure.py"), "--blobs", "rados:storagegate"]
    return subprocess.run(
        [*command, str(directory), *machines], capture_output=True, text=True, check=False
    )


@long("a check of CI")
class ConfigureTests(SynchronousTestCase):
    """The program that fills in the files."""

    def setUp(self) -> None:
        """Fill them in."""
        self.directory = Path(self.mktemp()).absolute()
        done = configure(self.directory, *MACHINES)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.files = {
            machine.partition("=")[0]: {
                path.name: path.read_text()
                for path in (self.directory / machine.partition("=")[0]).iterdir()
            }
            for machine in MACHINES
        }

    def test_secret(self) -> None:
        """Only their owner can read the files; each password is new, and the same on all."""
        modes = {stat.S_IMODE(path.stat().st_mode) for path in self.directory.rglob("*.*")}
        self.assertEqual(modes, {0o600})
        self.assertEqual(stat.S_IMODE(self.directory.stat().st_mode), 0o700)
        passwords = [re.findall(r"[0-9a-f]{48}", str(files)) for files in self.files.values()]
        self.assertEqual(len(set(passwords[0])), 4)
        self.assertEqual(passwords[0], passwords[1])
        other = Path(self.mktemp()).absolute()
        configure(other, *MACHINES)
        self.assertNotIn(passwords[0][0], (other / "one" / "patroni.yml").read_text())

    def test_refused(self) -> None:
        """What cannot become a cluster is refused with one line; so is what would overwrite one."""
        other = Path(self.mktemp()).absolute()
        for machines, text in (
            (MACHINES[:2], "3 machines at least"),
            ((*MACHINES, "four=10.0.0.1"), "one address"),
            ((*MACHINES, "one=10.0.0.4"), "one name"),
            ((*MACHINES, "four"), "does not appear to be"),
            ((*MACHINES, "Four=10.0.0.4"), "expected NAME=ADDRESS"),
            ((*MACHINES, "four=::1"), "IPv6"),
        ):
            done = configure(other, *machines)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr.splitlines()[-1])
        self.assertFalse(other.exists())
        self.assertIn("already", configure(self.directory, *MACHINES).stderr)

    def test_node(self) -> None:
        """The daemon takes its file; the file of passwords is the one that its conninfos name."""
        configuration = load({"config": str(self.directory / "two" / "storagegate.toml")}, {})
        options = configuration.cluster
        assert options is not None
        self.assertEqual(len(options.catalog), 3)
        self.assertEqual(options.blobs, "rados:storagegate")
        self.assertEqual(options.synchronous, "required")
        self.assertEqual(configuration.listeners.s3, "tcp:9000:interface=10.0.0.2")
        self.assertTrue(all("passfile=/etc/storagegate/pgpass" in each for each in options.catalog))
        [line] = self.files["two"]["pgpass"].splitlines()
        self.assertIn(f"PASSWORD '{line.rpartition(':')[2]}'", self.files["two"]["database.sql"])

    def test_patroni(self) -> None:
        """Patroni's times go together, and commits wait for a standby, always."""
        for name in self.files:
            found: dict[str, Any] = yaml.safe_load(self.files[name]["patroni.yml"])
            dcs = found["bootstrap"]["dcs"]
            self.assertLessEqual(dcs["loop_wait"] + 2 * dcs["retry_timeout"], dcs["ttl"])
            self.assertEqual(dcs["synchronous_mode"], "quorum")
            self.assertTrue(dcs["synchronous_mode_strict"])
            self.assertEqual(dcs["postgresql"]["parameters"]["synchronous_commit"], "on")
            self.assertEqual(found["name"], name)
            etcd = yaml.safe_load(self.files[name]["etcd.yml"])
            self.assertEqual(etcd["name"], name)
            peers = dict(each.split("=") for each in etcd["initial-cluster"].split(","))
            self.assertEqual(peers[name], etcd["initial-advertise-peer-urls"])
            hosts = [f"http://{each}" for each in found["etcd3"]["hosts"]]
            self.assertIn(etcd["advertise-client-urls"], hosts)

    @needs("haproxy")
    def test_haproxy(self) -> None:
        """HAProxy takes its file without a warning, and knows every node."""
        assert HAPROXY is not None
        path = self.directory / "three" / "haproxy.cfg"
        done = subprocess.run(
            [HAPROXY, "-c", "-f", str(path)], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("WARNING", done.stdout + done.stderr)
        nodes = re.findall(r"server (\w+) (\S+):9000", path.read_text())
        # In the backend of those that are ready, and of those that live.
        self.assertEqual(["=".join(each) for each in nodes], [*MACHINES, *MACHINES])


@long("a check of CI")
class ClusterUnitTests(SynchronousTestCase):
    """The units of systemd."""

    @needs("systemd-analyze")
    def test_verify(self) -> None:
        """Systemd has nothing to say against them."""
        assert ANALYZE is not None
        directory = Path(self.mktemp()).absolute()
        (directory / "storagegate.service.d").mkdir(parents=True)
        shutil.copy(CLUSTER / "storagegate-cluster.conf", directory / "storagegate.service.d")
        for path in (*CLUSTER.glob("*.service"), DEPLOY / "storagegate.service"):
            text = re.sub(r"/opt/\S+/bin/\w+", sys.executable, path.read_text())
            (directory / path.name).write_text(text)
        units = sorted(map(str, directory.glob("*.service")))
        self.assertEqual(len(units), 3)
        done = subprocess.run(
            [ANALYZE, "--man=no", "verify", *units],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_places(self) -> None:
        """The units name the files where the documentation puts them, and the files each other."""
        [etcd] = unitValues(CLUSTER / "etcd.service", "Service", "ExecStart")
        self.assertTrue(etcd.endswith(" /etc/patroni/etcd.yml"))
        [patroni] = unitValues(CLUSTER / "patroni.service", "Service", "ExecStart")
        self.assertTrue(patroni.endswith(" /etc/patroni/patroni.yml"))
        [variable] = unitValues(CLUSTER / "storagegate-cluster.conf", "Service", "Environment")
        self.assertEqual(variable, "STORAGEGATE_CONFIG=/etc/storagegate/storagegate.toml")
