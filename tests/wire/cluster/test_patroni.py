"""
The machines of C{deploy/cluster}: real etcd, Patroni, PostgreSQL, HAProxy and nodes, from the files
there, set up with the commands of C{docs/cluster.rst}.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import TOOL_SECONDS, Account
from tests.support.daemon import daemonEnvironment
from tests.support.documents import DOCS, codeBlocks, commands
from tests.support.modules import CHECKOUT
from tests.support.patroni import ClusterMachine, PatroniCluster, until
from tests.support.selection import long, soak
from tests.support.writers import Writers, describe

PAGE = DOCS / "cluster.rst"

_AFTER = "--after-the-command--"

# Above what the page promises: the machine has other work.
MOST_SECONDS = 45.0
MOST_ANSWER_SECONDS = 15.0

ROUNDS = 5


_VARIABLE = (
    (r"[0-9a-f]{32}", "ID"),
    (r"(AWS_\w+)=\S+", r"\1"),
    (r"(primary|node|blobs) \S+", r"\1"),
    (r"standby \S+ \S+", "standby"),
    # Patroni's table: which of them is the leader, and how wide it is.
    (r"(?m)^\+.*", ""),
    (r"\| (Leader|Quorum Standby) .*", ""),
    (r"\d+(\.\d+)?", "0"),
    (r"\s+", " "),
)
"""What differs from one cluster to the other, and what is left of it."""


def withoutVariables(text: str) -> str:
    """Return what a command prints in every cluster."""
    for pattern, replacement in _VARIABLE:
        text = re.sub(pattern, replacement, text)
    return text.strip()


class Sessions:
    """The sessions of the page, in one shell after the other with the variables of those before."""

    def __init__(self, cluster: PatroniCluster) -> None:
        self.printed: list[tuple[str, str, str]] = []
        self.text = ""
        self._blocks = codeBlocks(PAGE, "console")
        self._number = 0
        self._variables: list[str] = []
        self._machine = cluster.machines["one"]
        self.backup = cluster.directory / "backup"
        self.backup.mkdir()
        network = self._machine.address.rpartition(".")[0]
        self._replacements = {
            "deploy/cluster/": f"{CHECKOUT}/deploy/cluster/",
            "/etc/patroni/patroni.yml": str(self._machine.directory / "patroni.yml"),
            "/etc/storagegate/": f"{self._machine.directory}/",
            "10.0.0.": f"{network}.",
            "/backup": str(self.backup),
            "/srv/storagegate": str(cluster.blobs),
        }
        self._network = network
        self._programs = cluster.directory / "programs"
        self._programs.mkdir()
        program = self._programs / "storagegate"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m storagegate "$@"\n')
        program.chmod(0o755)

    def run(self, count: int = 1) -> str:
        """Run the next ones; return what the last of them has printed."""
        for _ in range(count):
            found = commands(self._blocks[self._number].code)
            self._number += 1
            script = "\n".join(f"{each.text}\necho; echo {_AFTER}" for each in found)
            for written, there in self._replacements.items():
                script = script.replace(written, there)
            self.text = self._shell("\n".join([*self._variables, script]))
            outputs = self.text.replace(f"{self._network}.", "10.0.0.").split(_AFTER)
            for command, output in zip(found, outputs, strict=False):
                self.printed.append((command.text, command.output, output.strip("\n")))
            exports = re.findall(r"^export .*$", script, re.MULTILINE)
            self._variables += exports
        return self.text

    def export(self, *lines: str) -> None:
        """Set variables for the sessions that follow."""
        self._variables += [f"export {each}" for each in lines]

    @property
    def isFinished(self) -> bool:
        """Whether all sessions of the page were run."""
        return self._number == len(self._blocks)

    def _shell(self, script: str) -> str:
        environment = daemonEnvironment(
            {
                "HOME": str(self._programs),
                "STORAGEGATE_ACCESS_KEY": "",
                "STORAGEGATE_SECRET_KEY": "",
                "AWS_DEFAULT_REGION": "us-east-1",
                "COLUMNS": "200",
            }
        )
        own = [str(self._programs), str(Path(sys.executable).parent)]
        environment["PATH"] = os.pathsep.join([*own, environment["PATH"]])
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=self._programs,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout


@long("starts a cluster")
class MachineTests(SynchronousTestCase):
    """Three machines, of which one is stopped, and one dies."""

    def setUp(self) -> None:
        """Set them up as the page says."""
        self.cluster = PatroniCluster()
        self.addCleanup(self.cluster.remove)
        self.cluster.start()
        self.sessions = Sessions(self.cluster)
        pair = dict(re.findall(r"(AWS_\w+)=(\S+)", self.sessions.run(3)))
        self.account = Account(pair["AWS_ACCESS_KEY_ID"], pair["AWS_SECRET_ACCESS_KEY"])
        self.sessions.export(*(f"{name}={value}" for name, value in pair.items()))
        for machine in self.cluster.machines.values():
            machine.startNode()
            machine.startBalancer()
        self.waitUntilReady()

    def waitUntilReady(self) -> None:
        """Wait until all nodes serve, and all balancers know it."""
        machines = self.cluster.machines.values()
        until(lambda: all(each.isReady() for each in machines), log=self.cluster.log)
        until(
            lambda: {state for each in machines for state in each.servers().values()} == {"UP"},
            log=self.cluster.log,
        )

    def writers(self, isPatient: bool = False) -> Writers:
        """Make writers that know all balancers."""
        endpoints = [f"http://{each.address}:8000" for each in self.cluster.machines.values()]
        return Writers(endpoints, self.account, isPatient=isPatient)

    def test_machines(self) -> None:
        """
        The commands of the page do what it says, and print it. A node that is stopped leaves the
        balancers, and no write fails. The machine with the primary dies: service is back by
        itself, and nothing is lost.
        """
        # One test, for to start three machines takes most of its time.
        self.sessions.run(2)
        self.checkDrain()
        print(f"\n{self.kill(self.primary())}")
        self.checkBackup()
        self.assertTrue(self.sessions.isFinished)
        for command, expected, printed in self.sessions.printed:
            self.assertEqual(withoutVariables(printed), withoutVariables(expected), command)

    def checkBackup(self) -> None:
        """Make a backup under writers, lose all, and restore it: all is there that was written."""
        with self.writers() as before:
            before.waitFor(50)
        with self.writers() as meanwhile:
            meanwhile.waitFor(50)
            self.sessions.run(1)
            meanwhile.waitFor(50)
        self.cluster.burn()
        self.sessions.run(1)
        self.cluster.giveBlobs()
        for machine in self.cluster.machines.values():
            machine.startNode()
            machine.startBalancer()
        self.waitUntilReady()
        self.assertEqual(before.wrong(), [])

    def checkDrain(self) -> None:
        """Stop a node and start it again, under writers."""
        machine = self.cluster.machines["two"]
        # A request may meet the end of an idle connection between a balancer and the node: then the
        # balancer ends that of the client, which connects anew.
        with self.writers(isPatient=True) as writers:
            writers.waitFor(50)
            self.assertEqual(machine.stopNode(), 0)
            other = self.cluster.machines["one"]
            until(lambda: other.servers()["two"] == "DOWN", log=self.cluster.log)
            writers.waitFor(50)
            machine.startNode()
            self.waitUntilReady()
            writers.waitFor(50)
        self.assertEqual(writers.failed, {})
        self.assertEqual(writers.wrong(), [])

    def primary(self) -> ClusterMachine:
        """Return the machine with the primary."""
        found = self.cluster.primary()
        assert found is not None
        return found

    def kill(self, machine: ClusterMachine) -> str:
        """Let a machine die under writers, and come back; return the figures."""
        with self.writers() as writers:
            writers.waitFor(50)
            isPrimary = machine is self.primary()
            machine.kill()
            others = (None, machine) if isPrimary else (None,)
            promoted = until(lambda: self.cluster.primary() not in others, log=self.cluster.log)
            writers.waitFor(50, MOST_SECONDS)
            machine.start()
            until(self.cluster.isWhole, log=self.cluster.log)
            machine.startNode()
            machine.startBalancer()
            self.waitUntilReady()
            writers.waitFor(50)
        text = f"a primary after {promoted:.1f} s, {describe(writers)}"
        self.assertEqual(writers.wrong(), [], text)
        why = "\n".join([text, *writers.slow, self.cluster.log()])
        self.assertLess(writers.slowest, MOST_ANSWER_SECONDS, why)
        return text

    @soak("kills machines for minutes")
    def test_rounds(self) -> None:
        """Again and again; also of a machine that has a standby, and of PostgreSQL alone."""
        for _ in range(ROUNDS):
            print(f"\nprimary: {self.kill(self.primary())}")
        [standby, *_] = [
            each for each in self.cluster.machines.values() if each is not self.primary()
        ]
        print(f"\nstandby: {self.kill(standby)}")
        with self.writers() as writers:
            writers.waitFor(50)
            self.primary().killPostgreSQL()
            writers.waitFor(50, MOST_SECONDS)
            until(self.cluster.isWhole, log=self.cluster.log)
        self.assertEqual(writers.wrong(), [])
        print(f"\nPostgreSQL alone: {describe(writers)}")
