"""The daemon's HTTP listeners over HTTP/2."""

import hashlib
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hyperframe.frame import SettingsFrame
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.support.certificates import Authority
from tests.support.daemon import ACCESS_KEY, CHECKOUT, SECRET_KEY
from tests.support.daemonprocess import DaemonProcess
from tests.support.h2client import H2Client
from tests.support.selection import long

CONTENT = bytes(range(256)) * 4096

SERVICE = """
async def echo(request, context):
    return request

async def count(request, context):
    for number in range(3):
        yield {"number": number}

Things = {"name": "Things", "methods": {
    "echo": {"handler": echo}, "count": {"handler": count, "streaming": "server"},
}}
"""


@long("starts daemons")
class ListenerTests(TestCase):
    """S3, the gateway and the console, each with TLS."""

    timeout = 120

    async def start(self, settings: str = "", *arguments: str) -> None:
        """Start a daemon, with settings of its file and more flags."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "things.py").write_text(SERVICE)
        self.authority = Authority(folder / "authority")
        certificate, key = self.authority.issue(file="served", days=30)
        tls = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        path = self.settings = folder / "storagegate.toml"
        path.write_text(settings)
        self.daemon = DaemonProcess(reactor, expect=("s3", "admin", "http"))
        self.addCleanup(self.daemon.kill)
        listeners = [part for name in ("s3", "admin", "http") for part in (f"--{name}", tls)]
        await self.daemon.start(
            folder / "data",
            "--config",
            str(path),
            "--service",
            "things:Things",
            *listeners,
            *arguments,
            environment={"PYTHONPATH": f"{CHECKOUT}{os.pathsep}{folder}"},
        )
        self.context = ssl.create_default_context(cafile=str(self.authority.path))

    def client(self, name: str) -> httpx.Client:
        """Make a client of a listener that prefers HTTP/2."""
        port = self.daemon.address(name)[1]
        return httpx.Client(
            http2=True, verify=self.context, base_url=f"https://127.0.0.1:{port}", timeout=60
        )

    def s3(
        self, client: httpx.Client, method: str, path: str, body: bytes = b"", **fields: str
    ) -> httpx.Response:
        """Make a signed request."""
        request: Any = AWSRequest(method, f"{client.base_url}{path}", fields, body)
        request.headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(request)
        return client.request(method, path, content=body, headers=dict(request.headers))

    async def test_fronts(self) -> None:
        """Each speaks HTTP/2 with a client that prefers it."""
        await self.start()

        def run() -> None:
            with self.client("s3") as client:
                self.assertEqual(self.s3(client, "PUT", "/bucket").status_code, 200)
                put = self.s3(client, "PUT", "/bucket/key", CONTENT)
                self.assertEqual((put.status_code, put.http_version), (200, "HTTP/2"))
                self.assertEqual(self.s3(client, "GET", "/bucket/key").content, CONTENT)
                part = self.s3(client, "GET", "/bucket/key", Range="bytes=5-9")
                self.assertEqual((part.status_code, part.content), (206, CONTENT[5:10]))
                none = self.s3(client, "GET", "/bucket/none")
                self.assertEqual(none.status_code, 404)
                self.assertIn("<Code>NoSuchKey</Code>", none.text)
                refused = client.get("/bucket/key")
                self.assertEqual((refused.status_code, refused.http_version), (403, "HTTP/2"))
            with self.client("http") as client:
                answer = client.post("/api/Things/echo", json={"a": 1})
                self.assertEqual((answer.json()["data"], answer.http_version), ({"a": 1}, "HTTP/2"))
                with client.stream("POST", "/api/Things/count", json={}) as stream:
                    self.assertEqual(len(list(stream.iter_lines())), 3)
            with self.client("admin") as client:
                page = client.get("/console/", follow_redirects=True)
                self.assertEqual((page.status_code, page.http_version), (200, "HTTP/2"))
                health = client.get("/healthz")
                self.assertEqual((health.status_code, health.http_version), (200, "HTTP/2"))
                self.assertIn(
                    'storagegate_http_connections{listener="admin"} 1', client.get("/metrics").text
                )

        await deferToThread(run)

    async def test_off(self) -> None:
        """http2 switches it off: at the top level for S3 and the console, and in gateway.http."""
        await self.start("http2 = false\n[gateway.http]\nhttp2 = false\n")

        def run() -> None:
            for name, path in (("s3", "/"), ("admin", "/healthz"), ("http", "/api/docs")):
                with self.client(name) as client:
                    self.assertEqual(client.get(path).http_version, "HTTP/1.1", name)

        await deferToThread(run)

    async def test_workers(self) -> None:
        """Workers have the same switch; new ones, after SIGHUP, have its new value."""
        await self.start("http2 = false\n", "--workers", "2")

        def version() -> str:
            with self.client("s3") as client:
                return client.get("/").http_version

        self.assertEqual(await deferToThread(version), "HTTP/1.1")
        self.settings.write_text("http2 = true\n")
        self.daemon.signal("HUP")
        await self.daemon.waitForLog("2 workers replaced")
        # One that is being replaced may accept the last connections of its queue.
        for _ in range(100):
            if await deferToThread(version) == "HTTP/2":
                break
        else:
            self.fail("the new workers speak HTTP/1.1")

    async def test_streams(self) -> None:
        """http2MaxStreams limits the open streams: at the top level, and in gateway.http."""
        await self.start("http2MaxStreams = 7\n[gateway.http]\nhttp2MaxStreams = 5\n")

        def announced(name: str) -> int:
            port = self.daemon.address(name)[1]
            with H2Client(port, context=self.context, serverName="127.0.0.1") as client:
                found: int = client.waitFor(SettingsFrame).settings[3]
                return found

        for name, streams in (("s3", 7), ("admin", 7), ("http", 5)):
            self.assertEqual(await deferToThread(announced, name), streams, name)
