"""The checks of ports, certificates and neighbours, on real sockets and files."""

import datetime
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from unittest import SkipTest, skipIf

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.doctor import Finding, configuration, network
from storagegate.cli.doctor.network import listenerAddresses
from storagegate.daemon.config import Configuration, load
from storagegate.storage.files import DirectoryLock
from tests.support.certificates import keyText

OFF = dict.fromkeys(("s3", "admin", "http", "grpc", "tcp", "udp"), "off")


def lines(found: Iterable[Finding]) -> list[str]:
    """Write findings as the command does."""
    return [f"{each.level} {each.text}" for each in found]


def configured(**listeners: str) -> Configuration:
    """Make a configuration with these listeners."""
    return load({**OFF, **listeners}, {})


class PlaceTests(SynchronousTestCase):
    """Where listeners would listen."""

    def test_places(self) -> None:
        """Endpoints say it themselves, and nothing is opened."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            found = {
                address.name: address
                for address in listenerAddresses(
                    configured(
                        s3=f"tcp:{port}:interface=127.0.0.1",
                        http="tcp6:81",
                        admin=r"unix:/run/a\:b",
                        grpc="[::1]:50051",
                        udp="127.0.0.1:9103",
                    )
                )
            }
        self.assertEqual((found["s3"].host, found["s3"].port), ("127.0.0.1", port))
        self.assertEqual((found["http"].host, found["http"].port), ("::", 81))
        self.assertEqual(found["admin"].path, "/run/a:b")
        self.assertEqual((found["grpc"].host, found["grpc"].port), ("::1", 50051))
        self.assertEqual((found["udp"].host, found["udp"].port), ("127.0.0.1", 9103))
        self.assertNotIn("tcp", found)

    def test_none(self) -> None:
        """What is no endpoint says why."""
        for description, reason in (
            ("nonsense:1", "Unknown endpoint type: 'nonsense'"),
            ("tcp:x", "invalid literal"),
            ("tcp:1:colour=red", "colour"),
            ("ssl:443:privateKey=/nowhere.key", "nowhere.key"),
        ):
            [address] = listenerAddresses(configured(s3=description))
            self.assertIn(reason, address.error or "")
            [line] = lines(network.checkListener(address, None))
            self.assertTrue(line.startswith(f"problem s3: {description}: "), line)


class PortTests(SynchronousTestCase):
    """Whether ports are free."""

    timeout = 60

    def check(self, daemon: int | None = None, **listeners: str) -> list[str]:
        """Check the addresses of listeners."""
        found = []
        for where in listenerAddresses(configured(**listeners)):
            found += lines(network.checkListener(where, daemon))
        return found

    def test_free(self) -> None:
        """A free port is free afterwards, too."""
        # An address of its own: on 127.0.0.1 any program may be given the number next.
        with socket.create_server(("127.0.9.2", 0)) as free:
            port = free.getsockname()[1]
        where = f"tcp:{port}:interface=127.0.9.2"
        for _ in range(2):
            self.assertEqual(self.check(s3=where), [f"ok s3: {where} is free"])
        socket.create_server(("127.0.9.2", port)).close()

    def test_taken(self) -> None:
        """A port that is taken, on this address or on all, names the process that has it."""
        us = f"process {os.getpid()} "
        for host in ("127.0.0.1", "0.0.0.0"):
            with socket.create_server((host, 0)) as taken:
                port = taken.getsockname()[1]
                for where in (f"tcp:{port}:interface=127.0.0.1", f"tcp:{port}"):
                    [line] = self.check(s3=where)
                    self.assertTrue(line.startswith(f"problem s3: {where} is in use by {us}"), line)
                [line] = self.check(grpc=f"127.0.0.1:{port}")
                self.assertIn(us, line)
                [line] = self.check(os.getpid(), s3=f"tcp:{port}")
                self.assertEqual(line, f"ok s3: tcp:{port} is in use by the running daemon")

    def test_worker(self) -> None:
        """What a child of the daemon serves is the daemon's; what another's child serves is not."""
        script = (
            "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
            "print(s.getsockname()[1], flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            where = f"127.0.0.1:{int(child.stdout.readline())}"
            self.assertRegex(
                self.check(os.getpid(), grpc=where)[0], "^ok .* in use by the running daemon$"
            )
            self.assertRegex(self.check(1, grpc=where)[0], f"^problem .* by process {child.pid} ")
            child.communicate()

    def test_datagrams(self) -> None:
        """A port of UDP is another one than that of TCP."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            # An address of its own: on 127.0.0.1 any client may have the same number for TCP.
            taken.bind(("127.0.9.1", 0))
            where = f"127.0.9.1:{taken.getsockname()[1]}"
            self.assertRegex(self.check(udp=where)[0], f"^problem .* by process {os.getpid()} ")
            self.assertRegex(self.check(grpc=where)[0], "^ok ")

    def test_elsewhere(self) -> None:
        """An address of another machine is named as such."""
        [line] = self.check(s3="tcp:0:interface=192.0.2.1")
        self.assertRegex(line, "^problem s3: .*: this machine does not have this address$")

    def test_handedOver(self) -> None:
        """A socket of systemd is not there yet, and need not be."""
        [line] = self.check(s3="systemd:domain=INET:name=s3")
        self.assertEqual(line, "ok s3: systemd opens it")

    def test_path(self) -> None:
        """A UNIX socket is taken while a process listens on it, and not by a stale file."""
        path = os.path.relpath(self.mktemp())
        self.assertEqual(self.check(s3=f"unix:{path}"), [f"ok s3: {path} is free"])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as taken:
            taken.bind(path)
            taken.listen()
            self.assertEqual(self.check(s3=f"unix:{path}"), [f"problem s3: {path} is in use"])
        self.assertEqual(self.check(s3=f"unix:{path}"), [f"ok s3: {path} is free"])
        [line] = self.check(s3="unix:/nowhere/socket")
        self.assertEqual(line, "problem s3: /nowhere is not writable")

    def test_otherFileSystem(self) -> None:
        """A lock with the same inode number on another disk is another file."""
        lines = [
            "1: POSIX  ADVISORY  WRITE 17 fe:01:13 0 EOF",
            "2: FLOCK  ADVISORY  WRITE 18 fe:00:13 0 EOF",
            "2: -> FLOCK  ADVISORY  WRITE 19 fe:01:13 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 20 fe:01:13 0 EOF",
        ]
        self.assertEqual(network.lockHolder(lines, 13, (254, 1)), 20)
        self.assertEqual(network.lockHolder(lines, 13, (254, 0)), 18)
        self.assertIsNone(network.lockHolder(lines, 13, (254, 2)))
        self.assertEqual(network.lockHolder(lines, 13, None), 18)

    @skipIf(os.geteuid(), "only root can mount")
    def test_twoDisks(self) -> None:
        """A daemon of one disk does not have the data of another one open."""
        found = []
        for _ in range(2):
            place = Path(self.mktemp()).absolute()
            place.mkdir()
            done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=False)
            if done.returncode:
                raise SkipTest("this machine cannot mount")
            self.addCleanup(subprocess.run, ["umount", place], check=True)
            found.append(place)
        one, other = found
        self.addCleanup(DirectoryLock.take(str(one)).release)
        (other / "lock").touch()
        self.assertEqual((one / "lock").stat().st_ino, (other / "lock").stat().st_ino)
        self.assertEqual(network.daemonOf(str(one)), os.getpid())
        self.assertIsNone(network.daemonOf(str(other)))

    def test_daemonOf(self) -> None:
        """Who has a data directory open is known without touching its lock."""
        data = self.mktemp()
        os.mkdir(data)
        self.assertIsNone(network.daemonOf(data))
        lock = DirectoryLock.take(data)
        try:
            self.assertEqual(network.daemonOf(data), os.getpid())
        finally:
            lock.release()
        self.assertIsNone(network.daemonOf(data))


class CertificateTests(SynchronousTestCase):
    """Certificates."""

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    def make(self, name: str, begin: int, end: int) -> Path:
        """Make a certificate with its key that is valid from one day to another, from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now + datetime.timedelta(days=begin))
            .not_valid_after(now + datetime.timedelta(days=end, hours=1))
            .sign(key, hashes.SHA256())
        )
        path = self.directory / f"{name}.pem"
        text = certificate.public_bytes(serialization.Encoding.PEM)
        path.touch(0o600)
        path.write_bytes(keyText(key) + text)
        return path

    def test_ends(self) -> None:
        """One that is valid, ends soon, has ended, or has not begun."""
        for begin, end, expected in (
            (-1, 90, "ok .* is valid until "),
            (-1, 10, "warning .* expires in 10 days, on "),
            (-90, -2, "problem .* expired on "),
            (2, 90, "problem .* is not valid before "),
        ):
            path = self.make("some", begin, end)
            [line] = lines(configuration.checkFile(str(path), 14))
            self.assertRegex(line, f"^{expected}20")
        [line] = lines(configuration.checkFile(str(self.make("some", -1, 10)), 5))
        self.assertRegex(line, "^ok ")

    def test_none(self) -> None:
        """A file that is not there, or holds none."""
        path = self.directory / "empty.pem"
        self.assertIn("No such file", lines(configuration.checkFile(str(path), 14))[0])
        path.write_text("-----BEGIN NONSENSE-----")
        [line] = lines(configuration.checkFile(str(path), 14))
        self.assertEqual(line, f"problem {path} contains no certificate")

    def test_endpoints(self) -> None:
        """Endpoints with TLS are looked at, their keys too; others have none."""
        good, bad = self.make("good", -1, 90), self.make("bad", -90, -1)
        bad.chmod(0o644)
        ssl = f"ssl:443:privateKey={good}:certKey={bad}"
        key, certificate = lines(configuration.checkEndpoint(ssl, 14))
        self.assertRegex(key, f"^ok the key {re.escape(str(good))} ")
        self.assertRegex(certificate, f"^problem {re.escape(str(bad))} expired")
        found = lines(configuration.checkEndpoint(f"tls:{self.directory}:port=443", 14))
        self.assertEqual([line.split()[0] for line in found], ["problem", "problem", "ok", "ok"])
        self.assertEqual(lines(configuration.checkEndpoint("tcp:80:interface=::1", 14)), [])

    def test_directory(self) -> None:
        """A directory that is empty or absent is a problem."""
        [line] = lines(configuration.checkEndpoint(f"tls:{self.directory}", 14))
        self.assertIn("contains no *.pem", line)
        [line] = lines(configuration.checkEndpoint("tls:/nowhere", 14))
        self.assertEqual(line, "problem /nowhere: No such file or directory")

    def test_listeners(self) -> None:
        """What clients of the gateway are shown."""
        path = str(self.make("ours", -1, 10))
        tables = {"grpc": {"tls": {"cert": path, "key": path}}, "tcp": {"tls": True}, "http": 7}
        key, certificate = lines(configuration.checkTables(tables, 14))
        self.assertRegex(key, "^ok the key .* is not readable by other users$")
        self.assertRegex(certificate, "^warning .* expires in 10 days, on ")
        several = [path, str(self.make("other", -1, 90))]
        tables = {"http": {"tls": {"cert": several, "key": several[::-1]}}}
        found = lines(configuration.checkTables(tables, 14))
        self.assertEqual([each.split()[0] for each in found], ["ok", "ok", "warning", "ok"])

    def test_instances(self) -> None:
        """What instances are shown, and a file that stops the start."""
        path = str(self.make("ours", -1, 10))
        tls = {"certFile": path, "keyFile": path}
        services = {
            "A": {"instances": [], "tls": tls},
            "B": {"instances": [], "tls": {"caFile": "/nowhere"}},
            "C": {"instances": [], "tls": {}},
        }
        found = lines(configuration.checkTables({"discovery": {"services": services}}, 14))
        self.assertRegex(found[0], "^ok the key .* is not readable by other users$")
        self.assertRegex(found[1], "^warning .* expires in 10 days, on ")
        expected = "problem gateway.discovery: the option services.B.tls.caFile: /nowhere: No such"
        self.assertIn(expected, found[2])
        self.assertEqual(len(found), 3)
        for tables in ({}, {"discovery": {}}, {"discovery": {"services": 7}}):
            self.assertEqual(lines(configuration.checkTables(tables, 14)), [])


class NeighbourTests(SynchronousTestCase):
    """Discovery's and tracing's other machines."""

    timeout = 60

    def test_answers(self) -> None:
        """One that listens answers; one that does not is a warning that says where."""
        with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as away:
            away.bind(("127.0.0.1", 0))
            good, bad = (each.getsockname()[1] for each in (there, away))
            instances = [{"host": "127.0.0.1", "port": port} for port in (good, bad)]
            tables = {
                "discovery": {
                    "provider": "consul",
                    "consul": {"address": f"http://127.0.0.1:{bad}"},
                    "services": {"Orders": {"instances": instances}},
                },
                "monitoring": {
                    "tracing": {
                        "enabled": True,
                        "provider": "zipkin",
                        "endpoint": f"http://127.0.0.1:{good}",
                        "spanAttributes": "module:name",
                    }
                },
            }
            self.assertEqual(
                lines(network.checkPeers(tables)),
                [
                    f"warning Consul at 127.0.0.1:{bad} does not respond: Connection refused",
                    f"ok an instance of Orders at 127.0.0.1:{good} responds",
                    f"warning an instance of Orders at 127.0.0.1:{bad} does not respond:"
                    " Connection refused",
                    f"ok the trace collector at 127.0.0.1:{good} responds",
                ],
            )

    def test_etcd(self) -> None:
        """Every member of a cluster is asked; an IPv6 address is one."""
        tables = {
            "discovery": {
                "provider": "etcd",
                "etcd": {"addresses": ["http://127.0.0.1:1", "https://[::1]:1"]},
            }
        }
        first, second = lines(network.checkPeers(tables))
        self.assertIn("etcd at 127.0.0.1:1 does not respond", first)
        self.assertIn("etcd at ::1:1 does not respond", second)

    def test_name(self) -> None:
        """An unknown name is a warning, within seconds."""
        tables = {"discovery": {"provider": "consul", "consul": {"address": "http://x.invalid"}}}
        [line] = lines(network.checkPeers(tables))
        self.assertRegex(line, "^warning Consul: (the host|the name) x.invalid")

    def test_nothing(self) -> None:
        """Tables that say nothing of others, or nothing right, are others' matter."""
        for tables in (
            {},
            {"discovery": {"provider": "nonsense"}},
            {"monitoring": 1},
            {"monitoring": {"tracing": {"enabled": False, "endpoint": "http://127.0.0.1:1"}}},
            {"monitoring": {"tracing": {"enabled": True, "endpoint": "nonsense"}}},
        ):
            self.assertEqual(list(network.checkPeers(tables)), [])
