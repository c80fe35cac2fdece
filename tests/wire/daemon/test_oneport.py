"""One port for S3, the gateway and gRPC: curl, a browser, boto3, the AWS CLI and grpcurl."""

import atexit
import json
import os
import signal
import ssl
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import httpx
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.support.browser import Browser
from tests.support.certificates import Authority
from tests.support.clients import Account, botoClient
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon
from tests.support.documents import DOCS, codeBlocks
from tests.support.grpcurl import grpcurl
from tests.support.h2client import H2Client
from tests.support.programs import needProgram, needs
from tests.support.selection import long
from tests.support.streamsoak import BASE, SERVICE
from tests.wire.rpc.optioncase import struct
from tests.wire.s3.fixture import ownDirectory


def settings() -> str:
    """Return the configuration of docs/http2.rst, without its address, and without TCP and UDP."""
    lines = codeBlocks(DOCS / "http2.rst", "toml")[1].code.splitlines()
    kept = [line for line in lines if not line.startswith("s3 = ")]
    return "\n".join(['tcp = "off"', 'udp = "off"', *kept])


CONTENT = bytes(range(256)) * 4096


def user(name: str) -> str:
    """Return a request that creates a user."""
    return json.dumps({"name": name, "email": f"{name}@example.com"})


SECONDS = 60


class OnePort:
    """
    A daemon with one port beside that of the operator.

    @ivar url: The URL of the port.
    @ivar isSecure: Whether it has TLS.
    @ivar authority: The file with the authority of its certificate.
    """

    def __init__(self, isSecure: bool) -> None:
        folder = ownDirectory("oneport")
        folder.mkdir(exist_ok=True)
        path = folder / "storagegate.toml"
        path.write_text(settings())
        self.isSecure = isSecure
        authority = Authority(folder / "authority")
        self.authority = authority.path
        endpoint = "tcp:0:interface=127.0.0.1"
        if isSecure:
            certificate, key = authority.issue(file="served", days=30)
            endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        self.daemon = Daemon(folder / "data", "--config", str(path), "--s3", endpoint).start()
        atexit.register(self.daemon.kill)
        self.port = self.daemon.address()[1]
        self.host = f"localhost:{self.port}"
        self.url = f"http{'s' if isSecure else ''}://{self.host}"

    def boto(self) -> Any:
        """Make a client of boto3."""
        return botoClient(
            self.url,
            Account(ACCESS_KEY, SECRET_KEY),
            cafile=str(self.authority) if self.isSecure else None,
        )


@cache
def onePort(isSecure: bool) -> OnePort:
    """Start a daemon for the tests of this module."""
    return OnePort(isSecure)


@long("starts daemons and many clients")
class ClientTests(SynchronousTestCase):
    """Clients that others have written, on the port with TLS."""

    isSecure: ClassVar[bool] = True

    def setUp(self) -> None:
        """Start the daemon, once."""
        self.one = onePort(self.isSecure)
        self.bucket = f"bucket-{self.id().rpartition('_')[2].lower()}"

    def run_(self, *command: str, **environment: str) -> str:
        """Run a program, and return its output."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, **environment},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @needs("curl")
    def test_curl(self) -> None:
        """curl uploads and downloads by HTTP/2, and calls a method."""
        if self.isSecure:
            options = ["--http2", "--cacert", str(self.one.authority)]
        else:
            options = ["--http2-prior-knowledge"]
        curl = [needProgram("curl"), "-sS", "--max-time", "60", "-w", "\n%{http_version}", *options]
        signed = [*curl, "--aws-sigv4", "aws:amz:us-east-1:s3"]
        signed += ["--user", f"{ACCESS_KEY}:{SECRET_KEY}"]
        signed += ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
        url = f"{self.one.url}/{self.bucket}"
        file = Path(self.mktemp())
        file.write_bytes(CONTENT)
        self.assertEqual(self.run_(*signed, "-X", "PUT", url), "\n2")
        self.assertEqual(self.run_(*signed, "-T", str(file), f"{url}/key"), "\n2")
        into = self.mktemp()
        self.assertEqual(self.run_(*signed, "-o", into, f"{url}/key"), "\n2")
        self.assertEqual(Path(into).read_bytes(), CONTENT)
        call = ["-H", "Content-Type: application/json", "-d", user("curl")]
        text = self.run_(*curl, *call, f"{self.one.url}/_api/UserService/CreateUser")
        body, _, version = text.rpartition("\n")
        self.assertEqual(json.loads(body)["data"]["name"], "curl")
        self.assertEqual(version, "2")
        refused = self.run_(*curl, f"{url}/key")
        self.assertIn("<Code>AccessDenied</Code>", refused)

    def test_boto(self) -> None:
        """boto3 reads, writes and lists, by HTTP/1.1, also parts of an upload."""
        client = self.one.boto()
        client.create_bucket(Bucket=self.bucket)
        client.put_object(Bucket=self.bucket, Key="a/b c", Body=CONTENT)
        self.assertEqual(client.get_object(Bucket=self.bucket, Key="a/b c")["Body"].read(), CONTENT)
        made = client.create_multipart_upload(Bucket=self.bucket, Key="parts")["UploadId"]
        same = {"Bucket": self.bucket, "Key": "parts", "UploadId": made}
        part = client.upload_part(**same, PartNumber=1, Body=CONTENT)
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        client.complete_multipart_upload(**same, MultipartUpload={"Parts": parts})
        listed = client.list_objects_v2(Bucket=self.bucket)["Contents"]
        self.assertEqual([each["Key"] for each in listed], ["a/b c", "parts"])

    def test_awsCLI(self) -> None:
        """The AWS CLI copies a file there and back."""
        aws = str(Path(sys.executable).with_name("aws"))
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        keys["AWS_DEFAULT_REGION"] = "us-east-1"
        if self.isSecure:
            keys["AWS_CA_BUNDLE"] = str(self.one.authority)
        base = [aws, "--endpoint-url", self.one.url, "s3"]
        source, into = Path(self.mktemp()), Path(self.mktemp())
        source.write_bytes(CONTENT * 10)
        self.run_(*base, "mb", f"s3://{self.bucket}", **keys)
        self.run_(*base, "cp", str(source), f"s3://{self.bucket}/key", **keys)
        self.run_(*base, "cp", f"s3://{self.bucket}/key", str(into), **keys)
        self.assertEqual(into.read_bytes(), CONTENT * 10)

    def test_grpcurl(self) -> None:
        """grpcurl lists the services, and calls the service of buckets with a key of S3."""
        options = ["-cacert", str(self.one.authority)] if self.isSecure else ["-plaintext"]
        listed = grpcurl(*options, self.one.host, "list").splitlines()
        self.assertIn("storagegate.Storage", listed)
        self.assertIn("user.UserService", listed)
        self.one.boto().create_bucket(Bucket=self.bucket)
        text = grpcurl(
            *options,
            "-H",
            f"x-api-key: {ACCESS_KEY}:{SECRET_KEY}",
            self.one.host,
            "storagegate.Storage/ListBuckets",
        )
        self.assertIn(self.bucket, [each["name"] for each in json.loads(text)["buckets"]])

    def test_webSocket(self) -> None:
        """A WebSocket of HTTP/1.1 makes calls."""
        context = None
        if self.isSecure:
            context = ssl.create_default_context(cafile=str(self.one.authority))
        url = self.one.url.replace("http", "ws", 1)
        with connect(f"{url}/ws", ssl=context, open_timeout=SECONDS) as socket:
            call = {"id": 1, "service": "UserService", "method": "ListUsers", "data": {}}
            socket.send(json.dumps(call))
            self.assertEqual(json.loads(socket.recv(SECONDS))["id"], 1)

    def test_oneConnection(self) -> None:
        """Requests of S3 and of the gateway are streams of one connection."""
        verify: Any = True
        if self.isSecure:
            verify = ssl.create_default_context(cafile=str(self.one.authority))
        with httpx.Client(
            http1=False, http2=True, verify=verify, base_url=self.one.url, timeout=SECONDS
        ) as client:
            page = client.get("/_api/docs")
            refused = client.get("/")
            absent = client.get("/_api/nothing")
            health = client.get("/healthz")
            typed = {"content-type": "application/grpc"}
            objects = [client.put("/bucket/key", headers=typed, content=b"x")]
            objects.append(client.post("/bucket/key?uploads", headers=typed))
        self.assertEqual(page.headers["content-type"], "text/html; charset=utf-8")
        self.assertEqual(absent.json()["error"], "NOT_FOUND")
        self.assertIn("<Code>AccessDenied</Code>", refused.text)
        for each in objects:
            # S3 has these, too: an object may have the content type of gRPC.
            self.assertIn("<Code>NoSuchBucket</Code>", each.text)
        self.assertEqual(health.status_code, 200)
        for each in (page, refused, absent, health, *objects):
            self.assertEqual(each.http_version, "HTTP/2")


class PlainClientTests(ClientTests):
    """The same clients on a port without TLS, which speak HTTP/2 by prior knowledge."""

    isSecure = False


@long("drives Chromium")
@needs("chromium")
class BrowserTests(SynchronousTestCase):
    """Chromium, which speaks HTTP/2 over TLS."""

    def test_browser(self) -> None:
        """A page of the gateway, an object of S3 and a WebSocket come on one connection."""
        one = onePort(True)
        client = one.boto()
        client.create_bucket(Bucket="browsed")
        client.put_object(Bucket="browsed", Key="object", Body=CONTENT)
        url = client.generate_presigned_url(
            "get_object", {"Bucket": "browsed", "Key": "object"}, ExpiresIn=600
        )
        with Browser() as browser:
            browser.send("Security.setIgnoreCertificateErrors", ignore=True)
            browser.open(f"{one.url}/_api/docs")
            browser.wait("document.readyState === 'complete'")
            size = browser.evaluate(
                f"fetch({json.dumps(url)}).then((each) => each.arrayBuffer())"
                ".then((each) => each.byteLength)"
            )
            answer = browser.evaluate(
                "fetch('/_api/UserService/CreateUser', {method: 'POST',"
                f" body: {json.dumps(user('browser'))},"
                " headers: {'Content-Type': 'application/json'}}).then((each) => each.json())"
            )
            call = {"id": 7, "service": "UserService", "method": "ListUsers", "data": {}}
            message = browser.evaluate(
                "new Promise((done, failed) => {"
                f" const socket = new WebSocket('wss://{one.host}/ws');"
                " socket.onerror = () => failed('an error');"
                f" socket.onopen = () => socket.send({json.dumps(json.dumps(call))});"
                " socket.onmessage = (event) => { done(JSON.parse(event.data).id);"
                " socket.close() } })"
            )
            protocols = browser.evaluate(
                "[...new Set(performance.getEntriesByType('resource')"
                ".map((each) => each.nextHopProtocol))]"
            )
        self.assertEqual(size, len(CONTENT))
        self.assertEqual(answer["data"]["name"], "browser")
        self.assertEqual(message, 7)
        self.assertEqual(protocols, ["h2"])


@long("starts a daemon")
class ShutdownTests(SynchronousTestCase):
    """SIGTERM, with streams of each kind in flight on one connection."""

    def test_streams(self) -> None:
        """What was begun is answered to its end, and then the connection is closed."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "soakservice.py").write_text(SERVICE)
        path = folder / "storagegate.toml"
        path.write_text(settings())
        daemon = Daemon(
            folder / "data",
            "--config",
            str(path),
            "--service",
            "soakservice:Soak",
            directory=folder,
        ).start()
        self.addCleanup(daemon.kill)
        with H2Client(daemon.address()[1]) as client:
            call = client.begin("/Soak/chat")
            client.sendMessage(call, struct(text="first"))
            client.readUntil(lambda: len(call.messages) == 1)
            fields = [
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", "a"),
                (":path", f"{BASE}/ticks"),
                ("content-type", "application/json"),
            ]
            events = client.begin("", headers=fields)
            client.sendData(events, b'{"count": 5, "seconds": 0.1}', isLast=True)
            client.readUntil(lambda: bool(events.body))
            daemon.signal(signal.SIGTERM)
            self.assertIsNotNone(client.goAway())
            client.sendMessage(call, struct(text="last"), isLast=True)
            client.finish(call)
            client.finish(events)
            client.readToEnd()
        self.assertEqual((call.status, call.messages[1][1]), (0, struct(text="last")))
        self.assertEqual(events.body.count(b'"number"'), 5)
        self.assertEqual(daemon.wait(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")
