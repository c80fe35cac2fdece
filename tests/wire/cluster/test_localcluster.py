"""
A whole cluster on this machine, by C{deploy/cluster/configure.py --rehearse}: what clients and
operators see when a member of etcd loses its disk, the store of blobs is away, or a node hangs.
"""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import Account, botoClient
from tests.support.documents import DOCS, codeBlocks
from tests.support.localcluster import RunningCluster, localClusterModule
from tests.support.patroni import CLUSTER, until
from tests.support.selection import long, rounds

AWAY_SECONDS = rounds(4, 4, soak=30)

MOST_SECONDS = rounds(15, 15, soak=10)
"""
The time that a client waits at most for a node that hangs: ten seconds, and more where the machine
has other work.
"""

SMALL, LARGE = b"s" * 1000, b"l" * 100_000
"""A row of the catalog, and a blob."""


@long("starts a cluster")
class LocalClusterTests(SynchronousTestCase):
    """One cluster for all: its start and its end take most of the time."""

    def test_cluster(self) -> None:
        """It starts, goes on through three kinds of failures, and leaves no process."""
        self.running = RunningCluster()
        self.addCleanup(self.running.remove)
        self.cluster = self.running.cluster
        self.assertIn("S3 is served at http://127.", self.running.started.stdout)
        pair = (self.running.directory / "credentials").read_text()
        account = Account(*re.findall(r"^AWS_\w+=(\S+)$", pair, re.MULTILINE))
        port = self.cluster.ports["balancerPort"]
        self.clients = [
            botoClient(f"http://{each}:{port}", account, patient=False)
            for each in self.cluster.machines.values()
        ]
        self.clients[0].create_bucket(Bucket="bucket")
        self.clients[1].put_object(Bucket="bucket", Key="small", Body=SMALL)
        self.checkEtcd()
        self.checkUpstream()
        self.checkHanging()
        done = self.running.configure("--down")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.running.processes(), [])

    def kill(self, machine: str, name: str) -> None:
        """Kill a program."""
        program = self.running.programs[machine, name]
        program.signal(signal.SIGKILL)
        until(lambda: program.process() is None)

    def status(self) -> list[str]:
        """Return what C{cluster status} says of etcd."""
        done = self.running.shell("storagegate cluster status")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [each for each in done.stdout.splitlines() if "etcd" in each]

    def checkEtcd(self) -> None:
        """A member whose disk is empty does not join: status says so, and the page helps."""
        self.assertEqual([each.split()[-1] for each in self.status()], ["healthy"] * 3)
        data = self.running.directory / "three" / "etcd"
        self.kill("three", "etcd")
        # PostgreSQL goes on without it, and the next Patroni takes it over.
        self.kill("three", "patroni")
        shutil.rmtree(data / "member")
        again = self.running.configure("--up")
        self.assertIn(f"etcd has ended, see {data}.log", again.stderr)
        found = self.status()
        self.assertRegex(found[1], r"\Aetcd three http://\S+ does not respond: ")
        self.assertIn("warning: 1 of 3 members of etcd are missing", found[3])
        others, own = (
            each.code
            for each in codeBlocks(DOCS / "cluster.rst", "text")
            if "etcdctl member" in each.code or "initial-cluster-state" in each.code
        )
        done = self.shell(others)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.status()[0], r"\Aetcd without a name \S+ was added but never")
        done = self.shell(re.sub(r"(?m)^systemctl.*\n", "", own))
        self.assertEqual(done.returncode, 0, done.stderr)
        again = self.running.configure("--up")
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        until(lambda: [each.split()[-1] for each in self.status()] == ["healthy"] * 3)

    def shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run commands of the page."""
        ports, folder = self.cluster.ports, self.running.directory / "three"
        network = self.cluster.machines["one"].rpartition(".")[0]
        for written, there in (
            ("10.0.0.", f"{network}."),
            (":2379", f":{ports['etcdPort']}"),
            (":2380", f":{ports['etcdPeerPort']}"),
            ("/var/lib/etcd", f"{folder}/etcd"),
            ("/etc/patroni", f"{folder}"),
        ):
            script = script.replace(written, there)
        return self.running.shell(script)

    def checkUpstream(self) -> None:
        """While the store of blobs is away, all small objects are read and written."""
        self.kill("upstream", "upstream")
        stopping = Event()
        threads = [Thread(target=self.putLarge, args=(each, stopping)) for each in self.clients]
        for each in threads:
            each.start()
        count = 0

        def use() -> bool:
            nonlocal count
            client = self.clients[count % len(self.clients)]
            client.put_object(Bucket="bucket", Key=f"small{count}", Body=SMALL)
            found = client.get_object(Bucket="bucket", Key="small")["Body"].read()
            self.assertEqual(found, SMALL)
            count += 1
            # The balancers know that no node is ready.
            return self.allStates() == {"NOLB"}

        try:
            until(use)
            end = monotonic() + AWAY_SECONDS
            until(lambda: use() and monotonic() > end)
        finally:
            stopping.set()
            for each in threads:
                each.join()
        print(f"\n{count} writes and reads of small objects without the store of blobs")
        self.assertEqual(self.running.configure("--up").stderr, "")
        until(lambda: self.allStates() == {"UP"})

    def allStates(self) -> set[str]:
        """Return the states of the nodes in all balancers."""
        return {state for each in self.cluster.machines for state in self.states(each)}

    def states(self, name: str) -> list[str]:
        """Return the states of all nodes in a balancer."""
        return list(self.cluster.servers(name).values())

    def putLarge(self, client: Any, stopping: Event) -> None:
        """Let the nodes see that the store of blobs is away."""
        while not stopping.is_set():
            try:
                client.put_object(Bucket="bucket", Key="large", Body=LARGE)
            except ClientError as error:
                code = error.response["ResponseMetadata"]["HTTPStatusCode"]
                assert code == 503, error

    def checkHanging(self) -> None:
        """Requests that wait for a frozen node end, and the others go on."""
        frozen = self.running.programs["two", "storagegate"]
        slowest: list[float] = []
        stopping = Event()

        def write(number: int, client: Any) -> None:
            while not stopping.is_set():
                begin = monotonic()
                try:
                    client.put_object(Bucket="bucket", Key=f"w{number}", Body=LARGE)
                except (ClientError, BotoCoreError):
                    # It may be stored: the node is frozen.
                    pass
                slowest.append(monotonic() - begin)

        threads = [Thread(target=write, args=each) for each in enumerate(self.clients * 2)]
        for each in threads:
            each.start()
        until(lambda: len(slowest) > 20)
        frozen.signal(signal.SIGSTOP)
        begin = monotonic()
        try:
            until(lambda: all("DOWN" in self.states(each) for each in self.cluster.machines))
            waited = monotonic() - begin
            count = len(slowest)
            until(lambda: len(slowest) > count + 20)
        finally:
            frozen.signal(signal.SIGCONT)
            stopping.set()
            for each in threads:
                each.join()
        print(f"\nout after {waited:.1f} s, slowest {max(slowest):.1f} s")
        self.assertLess(max(slowest), MOST_SECONDS)


@long("starts a cluster")
class RefusalTests(SynchronousTestCase):
    """What cannot be done is one line."""

    def configure(self, *arguments: str) -> tuple[int, str]:
        """Run C{configure.py} where no program is in the path."""
        done = subprocess.run(
            [sys.executable, str(CLUSTER / "configure.py"), *arguments],
            env={"PATH": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def test_missing(self) -> None:
        """A program that is not installed is named, with what installs it; the files are there."""
        directory = Path(self.mktemp()).absolute()
        flags = ("--rehearse", str(directory), "--programs", "/nonexistent")
        code, errors = self.configure(*flags, "--up")
        self.assertEqual((code, errors.count("\n")), (1, 1), errors)
        self.assertIn("not installed: ", errors)
        self.assertIn("postgres (apt install postgresql)", errors)
        self.assertTrue((directory / "one" / "patroni.yml").exists())
        self.assertFalse(list(directory.glob("*/*.pid")))
        code, errors = self.configure(*flags)
        self.assertEqual(
            (code, errors), (2, f"{directory} has a cluster already: --up or --down\n")
        )

    def test_ports(self) -> None:
        """A port that is free is used; one that another process has is replaced."""
        module = localClusterModule()
        with socket.create_server(("0.0.0.0", 0)) as other, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            taken, free = other.getsockname()[1], probe.getsockname()[1]
            machines, ports = module.choosePlaces({"a": taken, "b": free})
        self.assertEqual(list(machines), ["one", "two", "three"])
        self.assertEqual(ports["b"], free)
        self.assertNotEqual(ports["a"], taken)
        self.assertEqual(len({each.rpartition(".")[0] for each in machines.values()}), 1)
        with ExitStack() as held:
            # It is free on all machines.
            for each in machines.values():
                held.enter_context(socket.create_server((each, ports["a"])))

    def test_stale(self) -> None:
        """A process id that another process has got since is not taken for the program."""
        module = localClusterModule()
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        program = module.Program(directory, "etcd", ("etcd",), (), {})
        self.assertIsNone(program.process())
        file = directory / "etcd.pid"
        file.write_text(f"{os.getpid()}\n1\n")
        self.assertIsNone(program.process())
        started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        file.write_text(f"{os.getpid()}\n{started}\n")
        self.assertEqual(program.process(), os.getpid())

    def test_vanishing(self) -> None:
        """Files that running programs remove meanwhile do not stop a start; links stay as is."""
        module = localClusterModule()
        directory = Path(self.mktemp()).absolute()
        for name in ("first", "second"):
            (directory / name / "base").mkdir(parents=True)
            (directory / name / "base" / "file").touch()
        outside = directory.with_suffix(".outside")
        outside.touch()
        (directory / "link").symlink_to(outside)
        given: list[Path] = []
        change = os.chown

        def chown(path: Path, *ids: int, **flags: bool) -> None:
            if not given:
                # PostgreSQL and etcd replace their files.
                for name in ("first", "second"):
                    shutil.rmtree(directory / name / "base")
            given.append(
                Path(os.path.realpath(path) if flags.get("follow_symlinks", True) else path)
            )
            change(path, *ids, **flags)

        self.patch(module, "_user", lambda: pwd.getpwuid(os.getuid()))
        self.patch(os, "chown", chown)
        (directory / "cluster.json").write_text(
            json.dumps({"machines": {}, "ports": {}, "postgresql": ""})
        )
        module.LocalCluster(directory)._give()
        self.assertLessEqual(
            {directory, directory / "first", directory / "second", directory / "link"}, set(given)
        )
        self.assertNotIn(outside, given)

    def test_slow(self) -> None:
        """A start that takes too long says what it waited for and names the logs."""
        module = localClusterModule()
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        (directory / "cluster.json").write_text(
            json.dumps({"machines": {}, "ports": {}, "postgresql": ""})
        )
        self.patch(module, "START_SECONDS", 0.0)
        self.patch(module.LocalCluster, "programs", lambda cluster: [])
        cluster = module.LocalCluster(directory)
        error = self.assertRaises(
            module.LocalError, cluster._wait, lambda: False, "all nodes", "storagegate"
        )
        self.assertEqual(str(error), f"waited 0 s for all nodes; see {directory}/*/storagegate.log")

    def test_badAnswers(self) -> None:
        """What another program answers on a port counts as no answer."""
        module = localClusterModule()
        for answer in (b"SSH-2.0-other\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"):
            with socket.create_server(("127.0.0.1", 0)) as server:
                thread = Thread(target=self.answer, args=(server, answer))
                thread.start()
                self.assertEqual(
                    module._get(f"http://127.0.0.1:{server.getsockname()[1]}/"), (0, "")
                )
                thread.join()

    def answer(self, server: socket.socket, answer: bytes) -> None:
        """Answer one client."""
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    def test_misused(self) -> None:
        """Flags that do not go together, and a directory that is something else."""
        other = Path(self.mktemp()).absolute()
        other.mkdir()
        for arguments, text in (
            (("--up",), "--up and --down go with --rehearse DIR"),
            (("--rehearse", str(other), "--blobs", "files:/b"), "--rehearse takes no other"),
            (("--rehearse", str(other), "--up", "--down"), "not allowed with argument"),
            (("--rehearse", str(other), "--up"), f"{other} exists already"),
            (("--rehearse", str(other), "--down"), f"{other}: no cluster of --rehearse"),
            ((), "a directory, machines and --blobs are required"),
        ):
            code, errors = self.configure(*arguments)
            self.assertIn(text, errors)
            self.assertNotIn("Traceback", errors)
            self.assertIn(code, (1, 2))
