"""
Make the pictures of the console, C{docs/images/}, from a daemon with some objects and requests.

Usage: C{python tools/screenshots.py}, with the packages of the tests and Chromium. It takes a
minute, for the charts.
"""

import base64
import contextlib
import json
import sqlite3
import sys
import threading
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from botocore.exceptions import ClientError

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"
sys.path.insert(0, str(CHECKOUT))

from tests.browser.fixture import ConsoleBrowser  # noqa: E402
from tests.console.gatewayfixture import send  # noqa: E402
from tests.support.clients import Account, botoClient  # noqa: E402
from tests.support.daemon import Daemon  # noqa: E402

IMAGES = DOCS / "images"

LARGEST = 120_000
"""Bytes of a picture: they are in the source distribution."""

OPERATOR = Account("operator", "the-secret-of-the-pictures")

_SIZE = (1280, 800)

_PHONE = (360, 740)

_CHART_SECONDS = 45

_QUALITY = 80


class Cleanups(ExitStack):
    """What the browser takes for a test."""

    def addCleanup(self, function: Any, *arguments: Any) -> None:
        """Call a function in the end."""
        self.callback(function, *arguments)


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    # A daemon that ends may still write.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, Cleanups() as cleanups:
        listeners = [
            *(f"--{name}=tcp:0:interface=127.0.0.1" for name in ("http", "tcp")),
            *(f"--{name}=127.0.0.1:0" for name in ("grpc", "udp")),
        ]
        environment = {
            "STORAGEGATE_ACCESS_KEY": OPERATOR.accessKey,
            "STORAGEGATE_SECRET_KEY": OPERATOR.secretKey,
        }
        expect = ("s3", "admin", "http", "grpc", "tcp", "udp")
        daemon = Daemon(Path(folder) / "data", *listeners, environment=environment, expect=expect)
        cleanups.enter_context(daemon)
        page = ConsoleBrowser(daemon)
        cleanups.enter_context(page)
        _resize(page, _SIZE)
        page.visit()
        page.signIn(OPERATOR.accessKey, OPERATOR.secretKey)
        client = botoClient(daemon.url(), OPERATOR)
        _seed(client)
        page.press("Overview")
        page.waitText("Top buckets")
        _remember(Path(folder) / "data" / "usage.sqlite")
        _createUser(daemon.url("http"))
        ended = threading.Event()
        made = send(daemon, "POST", "keys", {"account": "root", "note": "clerk"}, OPERATOR).json
        clerk = Account(made["accessKey"], made["secretKey"])
        traffic = threading.Thread(target=_request, args=(daemon.url(), clerk, ended))
        traffic.start()
        cleanups.callback(traffic.join)
        cleanups.callback(ended.set)
        _objects(page, client)
        _gateway(page)
        _live(page)
        for _ in range(_CHART_SECONDS):
            # The events of the page are read, so that it is not taken for dead.
            page.evaluate("1")
            ended.wait(1)
        _overview(page)


def _seed(client: Any) -> None:
    for bucket in ("backups", "invoices", "photographs", "releases"):
        client.create_bucket(Bucket=bucket)
    for number in range(1, 13):
        for name in ("catalogue.json", "north.csv", "south.csv"):
            key = f"2026/{number:02}/{name}"
            client.put_object(
                Bucket="invoices",
                Key=key,
                Body=b"name,amount\n" * 400 * number,
                ContentType="text/csv",
            )
    keep = {
        "Sid": "KeepInvoices",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": "arn:aws:s3:::invoices/*",
    }
    client.put_bucket_policy(Bucket="invoices", Policy=json.dumps({"Statement": [keep]}))
    for year in ("2024", "2025", "templates"):
        client.put_object(Bucket="invoices", Key=f"{year}/catalogue.json", Body=b"{}")
    for name, size in (
        ("README.txt", 3),
        ("annual-report.csv", 5000),
        ("archive-2025.tar.zst", 90_000),
        ("contract-2026.pdf", 3000),
        ("customers.parquet", 40_000),
        ("dunning-letter.docx", 900),
        ("logo.png", 400),
        ("rates.json", 30),
        ("totals.csv", 700),
    ):
        lines = b"".join(b"customer %03d,%d.00\n" % (each, each * 7) for each in range(size))
        client.put_object(Bucket="invoices", Key=name, Body=lines, ContentType="text/csv")
    for number in range(30):
        body = bytes(60_000 * (1 + number % 3))
        client.put_object(Bucket="photographs", Key=f"harbour/{number:04}.jpg", Body=body)
        client.put_object(Bucket="backups", Key=f"nightly/{number:02}.tar", Body=body * 8)


def _remember(usage: Path) -> None:
    """Add the samples of two weeks to the one that the overview has just taken."""
    hour = 3_600_000
    with closing(sqlite3.connect(usage)) as connection, connection:
        [(now, size, used)] = connection.execute("SELECT atMs, bytes, diskUsed FROM consoleUsage")
        for ago in range(1, 15 * 24):
            share = 1 - ago / 700
            sizes = {"backups": 27_000_000, "invoices": 1_000_000, "photographs": 3_400_000}
            connection.execute(
                "INSERT INTO consoleUsage VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (now - ago * hour) // hour,
                    now - ago * hour,
                    int(100 * share) + ago % 3,
                    int(size * share),
                    used - ago * 40_000_000,
                    msgspec.msgpack.encode(sizes),
                ),
            )


def _createUser(gateway: str) -> None:
    user = json.dumps({"name": "Ada", "email": "ada@example.com"}).encode()
    address = f"{gateway}/api/UserService/CreateUser"
    fields = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(address, user, fields)).close()


def _request(endpoint: str, clerk: Account, ended: threading.Event) -> None:
    """
    Make requests until the end, some of which are refused.

    @param clerk: A key whose deletions a policy denies.
    """
    client, other = botoClient(endpoint, OPERATOR), botoClient(endpoint, clerk)
    number = 0
    while not ended.wait(0.03):
        number += 1
        key = f"2026/{number % 12 + 1:02}/north.csv"
        client.get_object(Bucket="invoices", Key=key)["Body"].read()
        if number % 5 == 0:
            client.put_object(Bucket="releases", Key=f"build-{number}.tar", Body=bytes(20_000))
        if number % 9 == 0:
            client.list_objects_v2(Bucket="photographs", MaxKeys=20)
        if number % 30 == 0:
            with contextlib.suppress(ClientError):
                other.delete_object(Bucket="invoices", Key=key)
        if number % 40 == 0:
            with contextlib.suppress(ClientError):
                client.get_object(Bucket="invoices", Key="2027/01/north.csv")


def _resize(page: ConsoleBrowser, size: tuple[int, int], isPhone: bool = False) -> None:
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=size[0],
        height=size[1],
        deviceScaleFactor=2 if isPhone else 1,
        mobile=isPhone,
    )


def _theme(page: ConsoleBrowser, name: str) -> None:
    features = [
        {"name": "prefers-color-scheme", "value": name},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    page.send("Emulation.setEmulatedMedia", features=features)


def _take(page: ConsoleBrowser, name: str) -> None:
    """
    Keep what the page shows.

    @raise ValueError: The picture is too large.
    """
    # Two frames: what has just changed is painted. A reader has no focus.
    page.evaluate("document.activeElement.blur()")
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() =>"
        " requestAnimationFrame(() => setTimeout(done, 300))))"
    )
    taken = page.send("Page.captureScreenshot", format="webp", quality=_QUALITY)
    raw = base64.b64decode(taken["data"])
    if len(raw) > LARGEST:
        raise ValueError(f"{name} has {len(raw)} bytes")
    (IMAGES / f"{name}.webp").write_bytes(raw)


def _objects(page: ConsoleBrowser, client: Any) -> None:
    """The list of a bucket, an object with versions beside it, and the policy of the bucket."""
    page.evaluate("location.hash = '#/buckets/invoices/objects'")
    page.waitText("annual-report.csv")
    _take(page, "objects")
    keep = {"Sid": "KeepInvoices", "Effect": "Deny", "Action": "s3:DeleteObject"}
    read = {"Sid": "PublicReports", "Effect": "Allow", "Action": "s3:GetObject"}
    statements = [
        {**keep, "Principal": "*", "Resource": "arn:aws:s3:::invoices/*"},
        {**read, "Principal": "*", "Resource": "arn:aws:s3:::invoices/public/*"},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    client.put_bucket_policy(Bucket="invoices", Policy=policy)
    versions = {"Status": "Enabled"}
    client.put_bucket_versioning(Bucket="invoices", VersioningConfiguration=versions)
    rows = b"".join(
        b"2026-%02d,%d,%d.00\n" % (each, each * 90, each * 7000) for each in range(1, 13)
    )
    for body in (rows[:60], rows[:120], rows):
        name, kind = "annual-report.csv", "text/csv"
        head = b"month,invoices,net\n"
        client.put_object(Bucket="invoices", Key=name, Body=head + body, ContentType=kind)
    page.evaluate("location.hash = '#/buckets/invoices/objects?object=annual-report.csv'")
    page.wait("document.querySelector('.sheet td')")
    page.wait("document.querySelectorAll('.timeline li').length > 2")
    _take(page, "object")
    page.evaluate("location.hash = '#/buckets/invoices/access?statement=2'")
    page.wait("document.querySelector('.statement')")
    page.evaluate("document.querySelector('main').scrollTo(0, 130)")
    _take(page, "policy")


def _gateway(page: ConsoleBrowser) -> None:
    page.evaluate("location.hash = '#/gateway/UserService/ListUsers'")
    page.press("Compare all…")
    page.press("Call all 5")
    done = "[...document.querySelectorAll('.answers section')]"
    page.wait(f"{done}.filter((each) => each.innerText.includes('OK')).length === 5")
    page.evaluate("document.querySelector('main').scrollTo(0, 0)")
    _take(page, "gateway")


def _live(page: ConsoleBrowser) -> None:
    page.evaluate("location.hash = '#/live'")
    page.wait("document.querySelectorAll('.live tbody tr').length > 15")
    rows = "[...document.querySelectorAll('.live tbody tr')].slice(1, 9)"
    page.wait(f"{rows}.some((each) => each.innerText.includes('403'))")
    page.press("Pause")
    page.press("DeleteObject")
    page.waitText("Open in Access")
    _take(page, "live")


def _overview(page: ConsoleBrowser) -> None:
    page.evaluate("location.hash = '#/overview'")
    page.wait("document.querySelectorAll('.spark .area').length >= 5")
    _take(page, "overview")
    _theme(page, "dark")
    page.evaluate("location.hash = '#/buckets'")
    page.waitText("photographs")
    page.evaluate("location.hash = '#/overview'")
    page.wait("document.querySelectorAll('.spark .area').length >= 5")
    _take(page, "dark")
    _theme(page, "light")
    _resize(page, _PHONE, isPhone=True)
    page.evaluate("location.hash = '#/buckets'")
    page.waitText("photographs")
    page.evaluate("location.hash = '#/overview'")
    page.wait("document.querySelectorAll('.spark .area').length >= 5")
    _take(page, "phone")


if __name__ == "__main__":
    main()
