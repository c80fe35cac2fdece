"""The daemon with C{--grpc}, as a process: its line, its health, a port that is taken, its end."""

import signal
import socket
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import loadProto, protoPath
from tests.support.daemon import Daemon
from tests.support.selection import long

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

PATIENCE = 30.0


class GRPCDaemonTests(SynchronousTestCase):
    """The listener of the daemon."""

    def setUp(self) -> None:
        """Name a data directory."""
        self.data = Path(self.mktemp()).absolute()

    def daemon(self, place: str = "127.0.0.1:0", **environment: str) -> Daemon:
        """Make a daemon that does not outlive the test."""
        daemon = Daemon(
            self.data,
            "--s3",
            "off",
            "--admin",
            "off",
            "--grpc",
            place,
            environment=environment,
            expect=("grpc",),
        )
        self.addCleanup(daemon.kill)
        return daemon

    def connect(self, daemon: Daemon) -> Any:
        """Give a channel to a daemon."""
        host, port = daemon.address("grpc")
        self.assertGreater(port, 0)
        channel = grpc.insecure_channel(f"{host}:{port}")
        self.addCleanup(channel.close)
        return channel

    def test_serves(self) -> None:
        """The log says where it listens; users are there, and health knows them by both names."""
        with self.daemon() as daemon:
            channel = self.connect(daemon)
            users = loadProto(protoPath() / "user.proto")
            create = channel.unary_unary(
                "/user.UserService/CreateUser",
                users.CreateUserRequest.SerializeToString,
                users.User.FromString,
            )
            request = users.CreateUserRequest(name="Ada", email="ada@example.org")
            self.assertRegex(create(request, timeout=PATIENCE).id, r"\A[0-9a-f]{32}\Z")
            health = health_pb2_grpc.HealthStub(channel)
            for name in ("", "UserService", "user.UserService"):
                asked = health_pb2.HealthCheckRequest(service=name)
                self.assertEqual(health.Check(asked, timeout=PATIENCE).status, SERVING)
            self.assertIn("listening name=grpc address=127.0.0.1:", daemon.log)
            self.assertEqual(daemon.stop(), 0)
            self.assertNotIn("Traceback", daemon.log)

    def test_taken(self) -> None:
        """A port that is taken stops the start: one line, the exit code 1, and the reason."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"127.0.0.1:{taken.getsockname()[1]}"
            daemon = self.daemon(place)
            daemon.launch()
            self.assertEqual(daemon.wait(), 1)
        [line] = [line for line in daemon.log.splitlines() if "#info]" not in line]
        self.assertIn(f"cannot listen name=grpc endpoint={place}", line)
        self.assertIn("Address already in use", line)

    @long("takes seconds")
    def test_badPlace(self) -> None:
        """What is no place to listen stops the start in the same way."""
        for place in ("127.0.0.1:99999", "nonsense", "300.300.300.300:0"):
            daemon = self.daemon(place)
            daemon.launch()
            self.assertEqual(daemon.wait(), 1)
            [line] = [line for line in daemon.log.splitlines() if "#info]" not in line]
            self.assertIn(place, line)

    @long("takes seconds")
    def test_stop(self) -> None:
        """SIGTERM tells those who watch, cuts endless streams after the grace, and exits with 0."""
        daemon = self.daemon(STORAGEGATE_SHUTDOWN_GRACE_SECONDS="1").start()
        channel = self.connect(daemon)
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="UserService"), timeout=PATIENCE
        )
        self.assertEqual(next(watch).status, SERVING)
        chat = channel.stream_stream("/user.UserService/Chat")(iter(()), timeout=PATIENCE)
        # It has ended: its client has said everything.
        self.assertEqual(len(list(chat)), 1)
        # One whose client says nothing and does not end.
        words: SimpleQueue[bytes | None] = SimpleQueue()
        self.addCleanup(words.put, None)
        silent = iter(words.get, None)
        endless = channel.stream_stream("/user.UserService/Chat")(silent, timeout=PATIENCE)
        next(endless)
        daemon.signal(signal.SIGTERM)
        self.assertEqual([each.status for each in watch][-1], NOT_SERVING)
        with self.assertRaises(grpc.RpcError):
            list(endless)
        self.assertEqual(daemon.wait(), 0)
        self.assertNotIn("Traceback", daemon.log)

    @long("takes seconds")
    def test_dataInUse(self) -> None:
        """A second daemon on the same data ends, though its listener was open."""
        with self.daemon() as first:
            second = self.daemon()
            second.launch()
            self.assertEqual(second.wait(), 1)
            self.assertIn("in use", second.log)
            health = health_pb2_grpc.HealthStub(self.connect(first))
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            self.assertEqual(answer.status, SERVING)
