"""Uploads and downloads in Chromium, against a daemon behind a relay."""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from tests.browser.fixture import ConsoleBrowser
from tests.browser.relay import Relay
from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT
from tests.support.programs import needs
from tests.support.selection import long, rounds, soak
from tests.wire.s3.fixture import eventually

PART = 8 << 20

SIZE = rounds(24, 24, soak=200) << 20


@long("drives Chromium")
@needs("chromium")
class TransferTests(ConsoleCase):
    """Files that go to a bucket and come from it."""

    @contextmanager
    def page(self, relay: Relay) -> Iterator[ConsoleBrowser]:
        """Show the console, signed in, through a relay."""
        with relay.running() as origin, ConsoleBrowser(self.daemon) as page:
            page.origin = origin
            page.visit()
            page.signIn(ROOT.accessKey, ROOT.secretKey)
            yield page

    def choose(self, page: ConsoleBrowser, *files: Path) -> None:
        """Choose files by the field of a page."""
        page.wait("document.querySelector('input[type=file]')")
        root = page.send("DOM.getDocument")["root"]["nodeId"]
        found = page.send("DOM.querySelector", nodeId=root, selector="input[type=file]")
        names = [str(file) for file in files]
        page.send("DOM.setFileInputFiles", nodeId=found["nodeId"], files=names)

    def drop(self, page: ConsoleBrowser, *paths: Path) -> None:
        """Drop files or folders on the window."""
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            page.send("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)

    def makeFile(self, size: int) -> Path:
        """Make a file of random bytes."""
        file = self.makeDirectory("files") / "large file.bin"
        with file.open("wb") as output:
            for _ in range(size >> 20):
                output.write(os.urandom(1 << 20))
        return file

    def test_goesOn(self) -> None:
        """
        An upload that is cut, whose page is loaded again, goes on with the parts that are missing
        when the same file is chosen; three requests are in flight at most.
        """
        bucket, file, relay = self.makeBucket(), self.makeFile(SIZE), Relay(self.admin)
        stored = SIZE // PART - 2
        with self.page(relay) as page:
            relay.allow(stored)
            page.evaluate(f"location.hash = '#/buckets/{bucket}/objects?prefix=d/'")
            self.choose(page, file)
            self.assertTrue(eventually(lambda: relay.flying == 2 and relay.allowed == 0))
            path = f"buckets/{bucket}/uploads"
            (begun,) = self.call("GET", path).json["items"]
            parts = lambda: self.call("GET", f"{path}/{begun['id']}").json["items"]  # noqa: E731
            self.assertTrue(eventually(lambda: len(parts()) == stored))
            warned = "!dispatchEvent(new Event('beforeunload', {cancelable: true}))"
            self.assertTrue(page.evaluate(warned))
            numbers = {each["number"] for each in parts()}
            page.evaluate("window.isBefore = true")
            page.send("Page.reload")
            isNew = "window.isBefore === undefined && document.querySelector('main h1') !== null"
            self.assertTrue(eventually(lambda: page.evaluate(isNew)))
            relay.lose()
            self.assertTrue(eventually(lambda: relay.flying == 0))
            relay.allow(None)
            before = len(relay.passed)
            page.evaluate("location.hash = '#/transfers'")
            page.waitText(f"{bucket}/d/large file.bin")
            self.choose(page, file)
            page.waitText("1 of 1 files")
            sent = [int(path.rpartition("/")[2]) for path in relay.passed[before:]]
            self.assertEqual(sorted(sent), sorted({*range(1, SIZE // PART + 1)} - numbers))
            self.assertFalse(page.evaluate(warned))
            self.assertLessEqual(relay.most, 3)
            found = self.s3.get_object(Bucket=bucket, Key="d/large file.bin")
            digest = hashlib.md5(usedforsecurity=False)
            for piece in found["Body"].iter_chunks(1 << 20):
                digest.update(piece)
            expected = hashlib.md5(file.read_bytes(), usedforsecurity=False)
            self.assertEqual(digest.hexdigest(), expected.hexdigest())
            self.assertEqual(found["Metadata"], {})
            self.assertEqual(self.call("GET", path).json["items"], [])
            # Chromium reports the warning that it does not show to a page without a gesture.
            page.allowed.append("beforeunload")

    def test_folder(self) -> None:
        """
        A folder that is dropped is uploaded with what is below it; a server that is busy is tried
        again; a pause holds everything.
        """
        bucket, relay = self.makeBucket(), Relay(self.admin)
        folder = self.makeDirectory("drop") / "phötos"
        names = [f"phötos/{'deep/er/' * (n % 2)}{n}.txt" for n in range(120)]
        for name in names:
            path = folder.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        relay.refusals = [(503, "Retry-After", "1"), (500, "X-Other", "")]
        with self.page(relay) as page:
            relay.allow(20)
            page.evaluate(f"location.hash = '#/buckets/{bucket}/objects?prefix=in/'")
            page.waitText("No objects here")
            self.drop(page, folder)
            self.assertTrue(eventually(lambda: relay.allowed == 0 and relay.flying == 3))
            page.evaluate("location.hash = '#/transfers'")
            page.press("Pause all")
            page.waitText("Paused.")
            relay.lose()
            self.assertTrue(eventually(lambda: relay.flying == 0))
            count = len(relay.passed)
            relay.allow(None)
            page.waitText("of 120 files")
            self.assertEqual(len(relay.passed), count)
            page.press("Resume all")
            page.waitText("120 of 120 files")
            self.assertEqual(relay.most, 3)
            keys = [each["Key"] for each in self.s3.list_objects_v2(Bucket=bucket)["Contents"]]
            self.assertEqual(keys, sorted("in/" + name for name in names))

    @soak("20,000 files")
    def test_manyFiles(self) -> None:
        """A folder of twenty thousand files arrives, and the page stays small and quick."""
        bucket, folder = self.makeBucket(), self.makeDirectory("drop") / "many"
        count = 20_000
        for n in range(count):
            path = folder / f"{n % 100:02d}" / f"{n}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(n))
        with self.page(Relay(self.admin)) as page:
            page.evaluate(f"location.hash = '#/buckets/{bucket}/objects?prefix=in/'")
            page.waitText("No objects here")
            self.drop(page, folder)
            page.evaluate("location.hash = '#/transfers'")
            start = monotonic()
            most = turn = 0.0
            while "20,000 of 20,000 files" not in page.evaluate("document.body.innerText"):
                began = monotonic()
                heap = page.evaluate("performance.memory.usedJSHeapSize")
                rows = page.evaluate("document.querySelectorAll('*').length")
                turn = max(turn, monotonic() - began)
                most = max(most, heap)
                self.assertLess(rows, 2000)
                self.assertLess(monotonic() - start, 1200)
            self.assertLess(most, 64 << 20)
            self.assertLess(turn, 1.0)
        keys = {
            each["Key"]
            for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
            for each in page["Contents"]
        }
        self.assertEqual(keys, {f"in/many/{n % 100:02d}/{n}.txt" for n in range(count)})

    def test_refused(self) -> None:
        """A proxy's limit is named; a session that ends holds the upload until the next one."""
        bucket, relay = self.makeBucket(), Relay(self.admin)
        file = self.makeDirectory("files") / "small.txt"
        file.write_text("small")
        with self.page(relay) as page:
            relay.refusals = [(413, "Content-Type", "text/html")]
            page.evaluate(f"location.hash = '#/transfers?bucket={bucket}'")
            page.waitText(bucket)
            self.choose(page, file)
            page.waitText("client_max_body_size")
            for session in self.call("GET", "sessions").json["items"]:
                self.call("DELETE", f"sessions/{session['id']}")
            page.evaluate("document.querySelector('[aria-label=Retry]').click()")
            page.waitText("Your session has ended")
            page.fill("dialog input[name=password]", ROOT.secretKey)
            page.press("Sign in")
            page.waitText("1 of 1 files")
            body = self.s3.get_object(Bucket=bucket, Key="small.txt")["Body"].read()
            self.assertEqual(body, b"small")

    def test_zip(self) -> None:
        """What is selected is saved by the browser as one zip."""
        bucket, relay = self.makeBucket(), Relay(self.admin)
        bodies = {"a.txt": b"a", "d/ü.txt": b"b", "d/e/c.bin": bytes(3 << 20)}
        for key, body in bodies.items():
            self.s3.put_object(Bucket=bucket, Key=key, Body=body)
        saved = self.makeDirectory("saved")
        with self.page(relay) as page:
            where = {"browserContextId": page.context, "downloadPath": str(saved)}
            page.send("Browser.setDownloadBehavior", behavior="allow", **where)
            page.evaluate(f"location.hash = '#/buckets/{bucket}/objects'")
            page.wait("document.querySelector('.listRow .pick')")
            page.evaluate("document.querySelector('.listHead .pick').click()")
            page.press("Select all below this folder")
            page.press("Download as zip")
            self.assertTrue(eventually(lambda: list(saved.glob("*.zip"))))
            (file,) = saved.glob("*.zip")
            self.assertTrue(eventually(lambda: zipfile.is_zipfile(file)))
            with zipfile.ZipFile(file) as archive:
                found = {name: archive.read(name) for name in archive.namelist()}
            self.assertEqual(found, bodies)
