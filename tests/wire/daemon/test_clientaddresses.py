"""Whose address counts where proxies write it in many forms: S3, its limits, and the console."""

import atexit
import json
import subprocess
from functools import cache
from http.client import HTTPConnection
from time import monotonic

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import ROOT, Account, botoClient
from tests.support.daemon import Daemon
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needs
from tests.support.s3signer import Outgoing, exchange
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

INSIDE = (
    "10.9.9.9",
    "10.9.9.9:4711",
    "[::ffff:10.9.9.9]:1",
    '"10.9.9.9"',
    '"[::ffff:10.9.9.9]:1"',
    "::ffff:a09:909",
    "64:ff9b::10.9.9.9",
    # The last trusted proxy is the client.
    "unknown, 10.9.9.9",
    "203.0.113.9, unknown, 10.9.9.9:1",
)

NGINX = """
daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/b; proxy_temp_path {directory}/p;
    fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
    server {{
        listen 127.0.0.1:{outer};
        location / {{
            proxy_pass http://127.0.0.1:{inner};
            proxy_bind 127.0.0.2;
            proxy_set_header Host $http_host;
            # Writes the port, as some load balancers do.
            proxy_set_header X-Forwarded-For "$http_x_forwarded_for, $remote_addr:$remote_port";
        }}
    }}
    server {{
        listen 127.0.0.1:{inner};
        location / {{
            proxy_pass http://127.0.0.1:{s3};
            proxy_bind 127.0.0.3;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For "$http_x_forwarded_for, $remote_addr:$remote_port";
        }}
    }}
}}
"""


@cache
def trustingDaemon() -> Daemon:
    """
    Start a daemon that trusts the proxies of loopback but one, and those of a private network.

    Everyone may read its objects but that network.
    """
    directory = ownDirectory("addresses")
    file = directory / "file.toml"
    trusted = '["127.0.0.1", "127.0.0.2", "127.0.0.3", "10.0.0.0/8"]'
    file.write_text(f"[gateway]\ntrustedProxies = {trusted}\n")
    daemon = makeDaemon(directory / "data", "--config", str(file))
    atexit.register(daemon.kill)
    daemon.start()
    s3 = botoClient(daemon.url("s3"))
    for name, denied in (("open", "10.0.0.0/8"), ("mapped", "::ffff:10.0.0.0/104")):
        s3.create_bucket(Bucket=name)
        s3.put_object(Bucket=name, Key="k", Body=b"x")
        every = {"Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{name}/*"}
        inside = {"Condition": {"IpAddress": {"aws:SourceIp": denied}}}
        statements = [{"Effect": "Allow", **every}, {"Effect": "Deny", **every, **inside}]
        s3.put_bucket_policy(Bucket=name, Policy=json.dumps({"Statement": statements}))
    return daemon


@long("starts nginx")
class ClientAddressTests(SynchronousTestCase):
    """A daemon behind proxies."""

    def setUp(self) -> None:
        """Have the daemon."""
        self.daemon = trustingDaemon()

    def status(self, forwarded: str, bucket: str = "open", **more: str) -> int:
        """Read the object through a proxy that wrote this."""
        fields = {"X-Forwarded-For": forwarded, **more}
        get = Outgoing("GET", f"/{bucket}/k", fields)
        return exchange(self.daemon.address("s3"), get).status

    def test_denied(self) -> None:
        """A denied network is denied in every form that a proxy writes its addresses in."""
        for bucket in ("open", "mapped"):
            for forwarded in INSIDE:
                self.assertEqual(self.status(forwarded, bucket), 403, (bucket, forwarded))
            for forwarded in ("203.0.113.9", "203.0.113.9:4711", "[2001:db8::1]:1", "unknown"):
                self.assertEqual(self.status(forwarded, bucket), 200, (bucket, forwarded))

    def test_brake(self) -> None:
        """Failed credentials count for the client, whatever port the proxy writes."""
        address = self.daemon.address("s3")
        wrong = Account("AKIDNONE", "none").plainHeaders()
        for port in range(100):
            fields = {"X-Forwarded-For": f"203.0.113.77:{50000 + port}", **wrong}
            self.assertEqual(exchange(address, Outgoing("GET", "/", fields)).status, 401)
        fields = {"X-Forwarded-For": "203.0.113.77:1", **wrong}
        began = monotonic()
        self.assertEqual(exchange(address, Outgoing("GET", "/", fields)).status, 401)
        # The response is held back for a quarter of a second.
        self.assertGreater(monotonic() - began, 0.2)

    def test_signIn(self) -> None:
        """So do wrong secrets at the console's sign-in, under any name that is no address too."""
        body = json.dumps({"accessKey": ROOT.accessKey, "secretKey": "wrong"}).encode()
        for forms in (
            [f"203.0.113.9:{50000 + number}" for number in range(14)],
            [f"[2001:db8::1]:{50000 + number}" for number in range(14)],
            [f"{number:09000}" for number in range(14)],
        ):
            found = []
            for forwarded in forms:
                connection = HTTPConnection(*self.daemon.address("admin"), timeout=30)
                fields = {
                    "Content-Type": "application/json",
                    "Origin": self.daemon.url("admin"),
                    "X-Forwarded-For": forwarded,
                }
                connection.request("POST", "/console/api/v1/session", body, fields)
                found.append(connection.getresponse().status)
                connection.close()
            self.assertEqual(found, [401] * 10 + [429] * 4, forms[0][:30])

    @needs("nginx")
    def test_twoHops(self) -> None:
        """Behind two proxies that write ports, the client is the first address not trusted."""
        outer, inner = heldPort(self), heldPort(self)
        _, s3 = self.daemon.address("s3")
        directory = ownDirectory("nginx")
        file = directory / "nginx.conf"
        file.write_text(NGINX.format(directory=directory, outer=outer, inner=inner, s3=s3))
        process = subprocess.Popen(
            ["nginx", "-c", str(file), "-p", str(directory)], env={"PATH": PATH}
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        waitForPort(outer, process)
        address = ("127.0.0.1", outer)
        for source, forwarded, status in (
            ("127.0.0.1", "10.9.9.9", 403),
            ("127.0.0.1", "10.9.9.9:1", 403),
            ("127.0.0.1", "203.0.113.9", 200),
            # This one is no proxy: what it writes counts for nothing.
            ("127.0.0.9", "10.9.9.9", 200),
        ):
            get = Outgoing("GET", "/open/k", {"X-Forwarded-For": forwarded})
            self.assertEqual(exchange(address, get, source).status, status, (source, forwarded))

    def test_saidOnce(self) -> None:
        """What is no address is in one short line of the log, however often it came."""
        before = len(self.daemon.log)
        for number in range(30):
            self.status(f"x{number:0900}")
        lines = [line for line in self.daemon.log[before:].splitlines() if "no address" in line]
        self.assertLess(len(lines), 3)
        self.assertTrue(all(len(line) < 400 for line in lines))
