"""The daemon behind nginx, haproxy and Caddy, each with the file that docs/proxies.rst shows."""

import atexit
import json
import re
import socket
import ssl
import subprocess
from contextlib import closing
from functools import cache
from pathlib import Path

import grpc
import httpx
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.support.certificates import Authority
from tests.support.clients import Account, botoClient
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon
from tests.support.documents import DOCS, codeBlocks
from tests.support.http import ROOT_HEADERS
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needNginxModule, needs
from tests.support.selection import long
from tests.wire.s3.fixture import ownDirectory

SECONDS = 60

LISTENERS = {"s3": "9000", "http": "8080", "grpc": "50051", "tcp": "9102", "udp": "9103"}
"""The daemon's listeners, and the ports on which the page has them."""

SERVING = b"\x08\x01"
"""A C{HealthCheckResponse} whose status is C{SERVING}."""

LIST = {"service": "UserService", "method": "ListUsers", "data": {}}


PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def sharedDaemon(engine: str) -> Daemon:
    """
    Start a daemon with all listeners for the rest of the run.

    @param engine: The engine of gRPC.
    """
    directory = ownDirectory(f"proxies-{engine}")
    path = directory.with_suffix(".toml")
    path.write_text(f'[gateway.grpc]\nengine = "{engine}"\n')
    daemon = Daemon(
        directory,
        "--config",
        str(path),
        *(flag for name in ("http", "tcp") for flag in (f"--{name}", "tcp:0:interface=127.0.0.1")),
        *(flag for name in ("grpc", "udp") for flag in (f"--{name}", "127.0.0.1:0")),
        expect=tuple(LISTENERS),
    ).start()
    atexit.register(daemon.kill)
    return daemon


class ProxyTests:
    """The daemon, one proxy, and a client of each kind."""

    language = ""
    engine = "grpcio"
    forwardsTCP = True
    forwardsUDP = False
    forwardsWebSockets = True

    def setUp(self) -> None:
        """Start the proxy with the file of the page, its names and ports set."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.daemon = sharedDaemon(self.engine)
        authority = Authority(self.directory)
        certificate, key = authority.issue("*.example.com")
        both = self.directory / "both.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        self.authority = authority.path
        self.ports = {name: heldPort(self) for name in ("443", "9202", "9203")}
        text = codeBlocks(DOCS / "proxies.rst", self.language)[0].code
        replaced = {
            **{f"127.0.0.1:{port}": self.at(name) for name, port in LISTENERS.items()},
            "/etc/ssl/example.both.pem": str(both),
            "/etc/ssl/example.pem": str(certificate),
            "/etc/ssl/example.key": str(key),
        }
        for written, there in replaced.items():
            text = text.replace(written, there)
        for written, port in self.ports.items():
            text = re.sub(rf"(?<=[ :]){written}\b", str(port), text)
        self.start(text)
        waitForPort(self.ports["443"], self.process)

    def at(self, name: str) -> str:
        """Give the address of a listener of the daemon."""
        host, port = self.daemon.address(name)
        return f"{host}:{port}"

    def start(self, text: str) -> None:
        """Start the proxy."""
        raise NotImplementedError

    def runProxy(self, *command: str) -> None:
        """Run the proxy in the foreground."""
        with (self.directory / "proxy.log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={"HOME": str(self.directory), "PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.terminate)

    def test_s3(self) -> None:
        """boto3's signatures hold, for keys with every odd path, and for bodies of some size."""
        client = botoClient(
            f"https://s3.example.com:{self.ports['443']}",
            Account(ACCESS_KEY, SECRET_KEY),
            cafile=str(self.authority),
            patient=False,
        )
        resolve = socket.getaddrinfo
        self.patch(socket, "getaddrinfo", lambda host, *rest: resolve("127.0.0.1", *rest))
        bucket = f"behind-{type(self).__name__.lower()}"
        client.create_bucket(Bucket=bucket)
        body = bytes(range(256)) * 4096 * 9
        # An error takes the place of 100 Continue: what follows is a request, not that one's body.
        for _ in range(20):
            with self.assertRaises(client.exceptions.NoSuchBucket):
                client.put_object(Bucket="absent", Key="k", Body=body[:14000])
        client.put_object(Bucket=bucket, Key="plain", Body=b"small")
        for key in ("plain", "a/b", "a%2Fb", "a//b", "a b+c", "ümlaut/&=?"):
            client.put_object(Bucket=bucket, Key=key, Body=body)
            self.assertEqual(client.get_object(Bucket=bucket, Key=key)["Body"].read(), body)
        client.upload_file(__file__, bucket, "file")
        listed = {each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]}
        self.assertIn("a//b", listed)
        self.assertEqual(len(listed), 7)

    def test_http(self) -> None:
        """A call, and the same over a WebSocket."""
        context = ssl.create_default_context(cafile=str(self.authority))
        with closing(self.secure(context, "api.example.com", self.ports["443"])) as connection:
            connection.sendall(
                b"POST /api/UserService/ListUsers HTTP/1.1\r\nHost: api.example.com\r\n"
                b"Connection: close\r\nContent-Type: application/json\r\n"
                b"Content-Length: 2\r\n\r\n{}"
            )
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertTrue(reply.startswith(b"HTTP/1.1 200"), reply)
        if not self.forwardsWebSockets:
            return
        with connect(
            "wss://api.example.com/ws",
            ssl=context,
            sock=socket.create_connection(("127.0.0.1", self.ports["443"])),
            open_timeout=SECONDS,
        ) as websocket:
            for number in (1, 2):
                websocket.send(json.dumps({"id": number, **LIST}))
                reply = json.loads(websocket.recv(SECONDS))
                self.assertEqual((reply["id"], reply["type"]), (number, "stream_end"))

    def test_http2(self) -> None:
        """A client of HTTP/2 makes calls, and reads and writes objects, on one connection each."""
        resolve = socket.getaddrinfo
        self.patch(socket, "getaddrinfo", lambda host, *rest: resolve("127.0.0.1", *rest))
        context = ssl.create_default_context(cafile=str(self.authority))
        body = bytes(range(256)) * 4096 * 3
        port = self.ports["443"]
        path = f"https://s3.example.com:{port}/h2-{type(self).__name__.lower()}"
        with httpx.Client(http1=False, http2=True, verify=context, timeout=SECONDS) as client:
            call = f"https://api.example.com:{port}/api/UserService/ListUsers"
            answers = [client.post(call, json={}) for _ in range(3)]
            answers.append(client.put(path, headers=ROOT_HEADERS))
            answers.append(client.put(f"{path}/a b", content=body, headers=ROOT_HEADERS))
            answers.append(client.get(f"{path}/a b", headers=ROOT_HEADERS))
            part = {**ROOT_HEADERS, "Range": "bytes=100-1999999"}
            answers.append(client.get(f"{path}/a b", headers=part))
        self.assertEqual([each.status_code for each in answers], [200] * 6 + [206])
        self.assertEqual({each.http_version for each in answers}, {"HTTP/2"})
        self.assertEqual(answers[-2].content, body)
        self.assertEqual(answers[-1].content, body[100:2_000_000])

    def test_grpc(self) -> None:
        """A call and its status."""
        credentials = grpc.ssl_channel_credentials(self.authority.read_bytes())
        options = [
            ("grpc.ssl_target_name_override", "grpc.example.com"),
            ("grpc.default_authority", "grpc.example.com"),
        ]
        target = f"127.0.0.1:{self.ports['443']}"
        with grpc.secure_channel(target, credentials, options) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(check(b"", timeout=SECONDS), SERVING)
            with self.assertRaises(grpc.RpcError) as raised:
                channel.unary_unary("/user.UserService/Nothing")(b"", timeout=SECONDS)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_tcp(self) -> None:
        """A line and its reply over TLS."""
        if not self.forwardsTCP:
            self.assertNotIn("9202", codeBlocks(DOCS / "proxies.rst", self.language)[0].code)
            return
        context = ssl.create_default_context(cafile=str(self.authority))
        with closing(self.secure(context, "api.example.com", self.ports["9202"])) as connection:
            connection.sendall(json.dumps({"id": 7, **LIST}).encode() + b"\n")
            with connection.makefile("rb") as file:
                self.assertEqual(json.loads(file.readline())["id"], 7)

    def test_udp(self) -> None:
        """A datagram and its reply."""
        if not self.forwardsUDP:
            self.assertNotIn("9203", codeBlocks(DOCS / "proxies.rst", self.language)[0].code)
            return
        payload = json.dumps({"id": 8, **LIST}).encode()
        frame = b"\1\1" + len(payload).to_bytes(4, "big") + payload
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
            client.settimeout(SECONDS)
            client.sendto(frame, ("127.0.0.1", self.ports["9203"]))
            self.assertEqual(json.loads(client.recv(65536)[6:])["id"], 8)

    def secure(self, context: ssl.SSLContext, name: str, port: int) -> ssl.SSLSocket:
        """Connect over TLS."""
        plain = socket.create_connection(("127.0.0.1", port), SECONDS)
        return context.wrap_socket(plain, server_hostname=name)


@long("starts nginx, HAProxy and Caddy")
@needs("nginx")
class NginxTests(ProxyTests, SynchronousTestCase):
    """nginx."""

    language = "nginx"
    forwardsUDP = True

    def start(self, text: str) -> None:
        """Start it, its files in the directory of the test."""
        module = needNginxModule("stream")
        head = f"load_module {module};\n" if module else ""
        folders = "".join(
            f"{name}_temp_path {self.directory / name};\n"
            for name in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
        )
        text = text.replace("http {\n", f"http {{\n{folders}access_log off;\n", 1)
        (self.directory / "nginx.conf").write_text(
            f"{head}daemon off;\nuser root;\npid nginx.pid;\nerror_log stderr;\n{text}"
        )
        self.runProxy("nginx", "-p", str(self.directory), "-c", "nginx.conf", "-e", "stderr")


class NginxNativeTests(NginxTests):
    """nginx, before the native engine of gRPC."""

    engine = "native"


@long("starts nginx, HAProxy and Caddy")
@needs("haproxy")
class HaproxyTests(ProxyTests, SynchronousTestCase):
    """haproxy."""

    language = "haproxy"

    def start(self, text: str) -> None:
        """Start it."""
        (self.directory / "haproxy.cfg").write_text(text)
        self.runProxy("haproxy", "-db", "-f", "haproxy.cfg")


class HaproxyHTTP2Tests(HaproxyTests):
    """haproxy, which speaks HTTP/2 with S3 and the gateway, and with the native engine of gRPC."""

    engine = "native"

    def start(self, text: str) -> None:
        """Start it, with the words of the page on HTTP/2."""
        server = f"server storagegate {self.at('http')}"
        self.assertIn(f"{server}\n", text)
        text = text.replace(f"{server}\n", f"{server} proto h2\n")
        backend = codeBlocks(DOCS / "http2.rst", "haproxy")[0].code
        backend = backend.replace("127.0.0.1:9000", self.at("s3"))
        before = f"backend s3\n    server storagegate {self.at('s3')}\n"
        self.assertIn(before, text)
        super().start(text.replace(before, backend))


@long("starts nginx, HAProxy and Caddy")
@needs("caddy")
class CaddyTests(ProxyTests, SynchronousTestCase):
    """Caddy."""

    language = "caddy"
    forwardsTCP = False

    def start(self, text: str) -> None:
        """Start it without the listener of its own settings, and without one for redirects."""
        head = "{\n    admin off\n    auto_https disable_redirects\n}\n"
        (self.directory / "Caddyfile").write_text(head + text)
        self.runProxy("caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile")


class CaddyHTTP2Tests(CaddyTests):
    """
    Caddy, which speaks HTTP/2 with every listener of HTTP, and then has no WebSockets, and with the
    native engine of gRPC.
    """

    engine = "native"
    forwardsWebSockets = False

    def start(self, text: str) -> None:
        """Start it, with the words of the page on HTTP/2."""
        for name in ("s3", "http"):
            self.assertIn(f"reverse_proxy {self.at(name)} ", text)
            text = text.replace(
                f"reverse_proxy {self.at(name)} ", f"reverse_proxy h2c://{self.at(name)} "
            )
        super().start(text)


@long("starts nginx and HAProxy")
class HealthCheckTests(SynchronousTestCase):
    """The configurations with health checks, as the programs themselves read them."""

    def read(self, language: str, name: str, *command: str) -> None:
        """Let a program check the second file of the page in its language."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        text = codeBlocks(DOCS / "proxies.rst", language)[1].code
        (directory / name).write_text(text)
        environment = {"HOME": str(directory), "PATH": PATH}
        found = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertNotIn("warn", (found.stdout + found.stderr).lower())

    @needs("haproxy")
    def test_haproxy(self) -> None:
        """HAProxy accepts its file without a warning."""
        self.read("haproxy", "haproxy.cfg", "haproxy", "-c", "-f", "haproxy.cfg")

    @needs("nginx")
    def test_nginx(self) -> None:
        """So does nginx."""
        self.read("nginx", "nginx.conf", "nginx", "-t", "-p", ".", "-c", "nginx.conf", "-e", "e")
