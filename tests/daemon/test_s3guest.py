"""The gateway on the S3 listener: which requests are its own."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes
from storagegate.daemon.config import ConfigurationError, load
from storagegate.daemon.configcheck import everyError
from storagegate.daemon.gatewayservice import DaemonGatewayService
from storagegate.daemon.s3guest import S3Guest, besideObjects, guestErrors
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import NativeResource, Site
from storagegate.net.http2.hpack import ReceivedFields
from tests.net.support import Connection

PATHS = {"http": {"basePath": "/_api/v1"}, "websocket": {"path": "/ws"}}


class Named(NativeResource):
    """Responds with its name."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def answer(self, request: ChannelRequest) -> None:
        """Respond."""
        request.respond(200, (), self._name)


class GuestTests(SynchronousTestCase):
    """The root of a listener that S3 and the gateway share."""

    def ask(self, target: str, host: str = "a") -> str:
        """Return the name of the resource that responds to a request."""
        guest = S3Guest(Named("gateway"), createProtocolGateway(**PATHS).settings)
        root = guest.beside(Named("s3"), lambda host: host == b"bucket.example.com")
        site = Site(root, HTTPLimits(), Clock(), budget=HeldBytes())
        wire = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        return Connection(site).send(wire).partition(b"\r\n\r\n")[2].decode()

    def test_paths(self) -> None:
        """The gateway has its paths and what is below them; everything else is S3's."""
        for target in ("/_api/v1", "/_api/v1/", "/_api/v1/a/b?c", "/_api/v1?x", "/ws", "/ws/"):
            self.assertEqual(self.ask(target), "gateway", target)
        for target in ("/", "/_api", "/_api/v10", "/_api/v1%2Fa", "/wsx", "/bucket/_api/v1", "/WS"):
            self.assertEqual(self.ask(target), "s3", target)

    def test_virtualHosts(self) -> None:
        """All paths of a host that is a bucket are keys."""
        self.assertEqual(self.ask("/ws", "bucket.example.com"), "s3")
        self.assertEqual(self.ask("/ws", "example.com"), "gateway")

    def test_contentTypes(self) -> None:
        """An object may have the content type of gRPC: only a POST without a query is a call."""
        opened = besideObjects(lambda connection, number, fields: number)
        for method, path, expected in (
            (b"POST", b"/UserService/ListUsers", 1),
            (b"PUT", b"/bucket/key", None),
            (b"GET", b"/bucket/key", None),
            (b"POST", b"/bucket/key?uploads", None),
        ):
            pairs = [(b":method", method), (b":path", path), (b"content-type", b"application/grpc")]
            self.assertEqual(opened(None, 1, ReceivedFields(pairs)), expected, path)

    def test_buckets(self) -> None:
        """A path that could be a bucket's is refused, as is a pattern; each by its name."""
        for path in ("/api", "/api/v1", "/abc", "", "/:a", "/_a*", "/_a/{b}"):
            gateway = createProtocolGateway(http={"basePath": path}, websocket={"path": "/_ws"})
            [error] = guestErrors(gateway.settings)
            self.assertIn("gateway.http.basePath: with gatewayOnS3", error)
            self.assertIn(f"not {path or '/'}", error)
        wrong = createProtocolGateway(http={"basePath": "/_a"}, websocket={"path": "/socket"})
        [error] = guestErrors(wrong.settings)
        self.assertIn("gateway.websocket.path", error)
        for path in ("/_api", "/-/api", "/ab/c", "/API", "/.well-known/api"):
            gateway = createProtocolGateway(http={"basePath": path}, websocket={"path": "/ws"})
            self.assertEqual(guestErrors(gateway.settings), [])


class ServiceTests(SynchronousTestCase):
    """The gateway of a daemon whose S3 listener serves it."""

    def make(self, **more: Any) -> DaemonGatewayService:
        """Make it without listeners of its own."""
        flags = {**dict.fromkeys(("http", "grpc", "tcp", "udp"), "off"), "data": self.mktemp()}
        configuration = load({**flags, "gatewayOnS3": "true", **more}, {})
        return DaemonGatewayService(configuration, Clock())

    def config(self, text: str) -> str:
        """Write a file with the path of calls."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write('[gateway.http]\nbasePath = "/_api"\n' + text)
        return path

    def test_transports(self) -> None:
        """HTTP and WebSocket are served, and gRPC if its calls come on HTTP's port."""
        for text, names in (
            ("", {"http", "websocket"}),
            ("[gateway.grpc]\nonHTTP = true\n", {"http", "websocket", "grpc"}),
        ):
            service = self.make(config=self.config(text))
            self.assertEqual(set(service.gateway.settings.enabled), names)

    def test_errors(self) -> None:
        """It needs the S3 listener, and paths that are free; all mistakes are named."""
        for more, start in (
            ({"s3": "off"}, "gatewayOnS3: true, though the S3 listener is off"),
            ({}, "gateway.http.basePath: with gatewayOnS3 it must begin with a segment"),
        ):
            error = self.assertRaises(ConfigurationError, self.make, **more)
            self.assertTrue(str(error).startswith(start), error)
            [*_, found] = everyError({"gatewayOnS3": "true", **more}, {})
            self.assertIn("with gatewayOnS3", found)

    def test_exposed(self) -> None:
        """UserService is not served where other machines reach the S3 listener."""
        for host, names in (("127.0.0.1", {"UserService"}), ("0.0.0.0", set())):
            service = self.make(config=self.config(""))
            service._own.remove("Storage")
            site = Site(None, HTTPLimits(), Clock(), budget=HeldBytes())
            service.join(site, IPv4Address("TCP", host, 9000))
            self.assertTrue(site.servesWebSockets)
            service.attachStore(None, None, "us-east-1", self.mktemp())
            self.assertEqual(set(service.gateway.services), names)
