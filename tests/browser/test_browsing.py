"""Finding, restoring and sharing objects, narrowed keys, and forms that show the present state."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ClientError

from tests.browser.pages import BUCKET, PagesCase
from tests.browser.test_objects import BrowserCase
from tests.support.clients import ROOT, Account, botoClient
from tests.support.selection import long
from tests.wire.s3.fixture import eventually

_PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


@long("drives Chromium")
class BrowsingTests(BrowserCase):
    """The list of a bucket."""

    def tops(self, selector: str) -> list[int]:
        """Return the upper edges of elements."""
        found: list[int] = self.page.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".map((each) => Math.round(each.getBoundingClientRect().top))"
        )
        return found

    def enable(self) -> None:
        """Enable versions."""
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"}
        )

    def body(self, key: str) -> bytes | None:
        """Return the content of an object; L{None} if there is none."""
        try:
            found: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError:
            return None
        return found

    def narrow(self, policy: str, prefix: str = "", role: str = "none") -> Account:
        """Issue a key of the root account for this bucket."""
        values = {"account": "root", "policy": policy, "bucket": self.bucket, "prefix": prefix}
        made = self.call("POST", "keys", {**values, "role": role}).json
        return Account(made["accessKey"], made["secretKey"])

    def become(self, account: Account) -> None:
        """Sign in with another key."""
        self.page.press("Sign out")
        self.page.signIn(account.accessKey, account.secretKey)

    def test_oneLine(self) -> None:
        """The breadcrumb and the date of a row each take one line."""
        self.put("a/b/c/d")
        self.page.show(self.bucket, prefix="a/b/c/")
        self.page.waitRow("d")
        tops = self.tops(".crumbs a, .crumbs [aria-current]")
        self.assertGreaterEqual(len(tops), 4)
        self.assertLessEqual(max(tops) - min(tops), 4)
        heights = self.page.evaluate(
            "[...document.querySelectorAll('.listRow .when')]"
            ".map((each) => each.scrollHeight / parseFloat(getComputedStyle(each).lineHeight))"
        )
        self.assertTrue(heights)
        self.assertLess(max(heights), 1.5)

    def test_restore(self) -> None:
        """A deleted object is shown by a switch, and restored by a button."""
        self.enable()
        self.put("kept")
        self.put("lost", body=b"first")
        self.s3.delete_object(Bucket=self.bucket, Key="lost")
        self.page.show(self.bucket)
        self.page.waitRow("kept")
        self.assertEqual(self.page.rows(), ["kept"])
        self.page.evaluate("document.querySelector('input[name=versions]').click()")
        self.page.waitRow("lost")
        self.page.press("Restore")
        self.eventually(lambda: self.body("lost"), b"first")

    def test_undo(self) -> None:
        """A deletion is undone by the button of its message where versions are on."""
        self.enable()
        self.put("a", "b")
        self.page.show(self.bucket)
        self.page.waitRow("a")
        self.page.evaluate("document.querySelector('#row-0 .pick').click()")
        self.page.press("Delete")
        self.page.wait("document.querySelector('dialog form button.danger')")
        self.page.evaluate("document.querySelector('dialog form button.danger').click()")
        self.waitKeys("b")
        self.page.press("Undo")
        self.waitKeys("a", "b")
        versions = self.s3.list_object_versions(Bucket=self.bucket)
        self.assertNotIn("DeleteMarkers", versions)

    def test_undoByKeyboard(self) -> None:
        """From the search to the rows, a deletion and its undoing take no more than keys."""
        self.enable()
        self.put("ab", "ac", "b")
        self.page.show(self.bucket)
        self.page.waitRow("b")
        self.page.evaluate("document.querySelector('input[name=find]').focus()")
        self.page.key("a")
        self.page.wait("document.querySelectorAll('.listRow bdi').length === 2")
        self.page.key("ArrowDown")
        self.assertEqual(self.page.evaluate("document.activeElement.role"), "grid")
        self.page.key(" ")
        self.page.waitText("1 selected")
        self.page.key("Delete")
        self.page.wait("document.activeElement.matches('dialog form button.danger')")
        self.page.key("Enter")
        self.waitKeys("ac", "b")
        self.page.waitText("1 object deleted")
        self.page.key("z", 2)
        self.waitKeys("ab", "ac", "b")

    def test_undoAtOnce(self) -> None:
        """Ctrl+Z undoes a deletion as soon as its message is shown."""
        self.enable()
        self.put("a", "b")
        self.page.show(self.bucket)
        self.page.waitRow("a")
        self.page.pressAtOnce("z", "document.body.innerText.includes('1 object deleted')")
        self.page.evaluate("document.querySelector('#row-0 .pick').click()")
        self.page.press("Delete")
        self.page.wait("document.activeElement.matches('dialog form button.danger')")
        self.page.key("Enter")
        self.page.waitText("1 restored")
        self.assertEqual(self.keys(), ["a", "b"])

    def test_undoFolder(self) -> None:
        """A folder that was deleted comes back by Undo, without what was deleted before."""
        self.enable()
        self.put("d/1", "d/e/2", "d/old", "f")
        self.s3.delete_object(Bucket=self.bucket, Key="d/old")
        self.page.show(self.bucket)
        self.page.waitRow("d/")
        self.item(0, "Delete")
        self.page.waitText("Delete the folder d/")
        self.page.wait("document.activeElement.matches('dialog form button.danger')")
        self.page.key("Enter")
        self.page.waitText("Deleted d/: 2 objects")
        self.waitKeys("f")
        self.page.press("Undo")
        self.waitKeys("d/1", "d/e/2", "f")
        self.page.waitText("2 objects are restored")

    def test_restoreFolder(self) -> None:
        """Deleted folders are marked, and come back with all that is below them."""
        self.enable()
        self.put("d/1", "d/e/2", "kept/3")
        for key in ("d/1", "d/e/2"):
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        self.page.show(self.bucket, versions="1")
        self.page.wait("document.querySelector('.notice .gone')")
        gone = (
            "[...document.querySelectorAll('.notice .gone')]"
            ".map((each) => each.previousElementSibling.innerText)"
        )
        self.assertEqual(self.page.evaluate(gone), ["d/"])
        self.assertNotIn("No objects", self.page.evaluate("document.body.innerText"))
        self.page.show(self.bucket, prefix="d/", versions="1")
        self.page.press("Restore all below d/")
        self.page.wait("document.querySelector('dialog')")
        self.page.evaluate("document.querySelector('dialog .primary').click()")
        self.waitKeys("d/1", "d/e/2", "kept/3")

    def test_dialogFocus(self) -> None:
        """A dialog begins at its field; where nothing brings the objects back, at Cancel."""
        self.put("a", "d/1")
        self.page.show(self.bucket)
        self.page.waitRow("a")
        self.item(0, "Delete")
        self.page.wait("document.activeElement.matches('dialog input')")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        self.item(1, "Delete")
        self.page.wait("document.activeElement.innerText === 'Cancel'")

    def test_counts(self) -> None:
        """Current objects and older versions are counted apart, in the list and in the bucket."""
        self.enable()
        for body in (b"1", b"22", b"333"):
            self.put("k", body=body)
        self.s3.delete_object(Bucket=self.bucket, Key="k")
        self.page.show(self.bucket)
        self.page.waitText("No objects here")
        facts = self.page.evaluate("document.querySelector('.factsLine').innerText")
        for each in ("0 objects", "3 older versions, 6 B", "6 B in all"):
            self.assertIn(each, facts)
        self.page.evaluate(f"location.hash = '#/buckets?prefix={self.bucket}'")
        self.page.wait("document.querySelectorAll('tbody tr').length === 1")
        cells = self.page.evaluate(
            "[...document.querySelectorAll('tbody td.number')].map((each) => each.innerText)"
        )
        self.assertEqual(cells, ["0", "6 B", "3"])

    def test_meters(self) -> None:
        """The list of buckets has rows of one line, also for a key without the overview."""
        self.put("a")
        reader = self.narrow("readonly")
        self.page.press("Sign out")
        # Without the styles that the overview has loaded.
        self.page.visit()
        self.page.signIn(reader.accessKey, reader.secretKey)
        self.page.wait("document.querySelector('tbody .meter')")
        height = "document.querySelector('tbody tr').getBoundingClientRect().height"
        self.assertLess(self.page.evaluate(height), 60)

    def test_order(self) -> None:
        """A folder whose names are all here shows folders first, and names as people sort them."""
        self.put("B.txt", "a.txt", "Z/x", "file10", "file9")
        self.page.show(self.bucket)
        self.page.waitRow("Z/")
        self.assertEqual(self.page.rows(), ["Z/", "a.txt", "B.txt", "file9", "file10"])
        self.page.press("Name")
        self.page.wait("document.querySelector('#row-1 bdi').textContent === 'file10'")
        self.assertEqual(self.page.rows(), ["Z/", "file10", "file9", "B.txt", "a.txt"])

    def item(self, row: int, label: str) -> None:
        """Choose an item of the menu of a row."""
        self.page.evaluate(f"document.querySelector('#row-{row} .more').click()")
        self.page.wait("document.querySelector('[role=menuitem]')")
        self.page.evaluate(
            "[...document.querySelectorAll('[role=menuitem]')]"
            f".find((each) => each.innerText.startsWith({json.dumps(label)})).click()"
        )

    def test_copyFolder(self) -> None:
        """A folder is copied to another bucket from its row, with its result on the same page."""
        target = self.makeBucket()
        self.put("d/1", "d/e/2", "f")
        self.s3.put_object(Bucket=target, Key="x/1", Body=b"old")
        self.page.show(self.bucket)
        self.page.waitRow("d/")
        self.item(0, "Copy")
        self.page.wait(
            "[...document.querySelectorAll('dialog option')]"
            f".some((each) => each.value === {json.dumps(target)})"
        )
        self.page.choose("dialog select[name=toBucket]", target)
        self.page.fill("dialog input[name=toFolder]", "x")
        self.page.press("Copy folder")
        self.page.waitText("those with the same names are replaced")
        body = self.s3.get_object(Bucket=target, Key="x/1")["Body"].read()
        self.assertEqual(body, b"old")
        self.page.press("Copy folder")
        self.page.waitText(": 2 objects")
        self.assertIn("/objects", self.page.evaluate("location.hash"))
        found = self.s3.list_objects_v2(Bucket=target)["Contents"]
        self.assertEqual([each["Key"] for each in found], ["x/1", "x/e/2"])
        self.waitKeys("d/1", "d/e/2", "f")

    def test_renameFolder(self) -> None:
        """A folder gets another name, which must be free; into itself it cannot be moved."""
        self.put("d/1", "d/e/2", "taken/1")
        self.page.show(self.bucket)
        self.page.waitRow("d/")
        self.item(0, "Rename")
        self.page.fill("dialog input[name=name]", "taken")
        self.page.press("Rename folder")
        self.page.wait("document.querySelector('dialog .help.bad')?.innerText.includes('taken/')")
        self.page.fill("dialog input[name=name]", "new")
        self.page.press("Rename folder")
        self.page.waitText(": 2 objects")
        self.waitKeys("new/1", "new/e/2", "taken/1")
        # While the job ran, the list had both names.
        self.page.wait("document.querySelector('#row-0 bdi')?.textContent === 'new/'")
        self.item(0, "Move")
        self.page.waitText("New path of the folder")
        self.page.waitText("Archive/new/")
        self.page.fill("dialog input[name=toFolder]", "")
        self.page.press("Move folder")
        self.page.waitText("goes to the top of")
        self.waitKeys("new/1", "new/e/2", "taken/1")
        self.page.fill("dialog input[name=toFolder]", "new/in/")
        self.page.press("Move folder")
        self.page.wait("document.querySelector('dialog .help.bad')?.innerText.includes('itself')")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.problem').length"), 0)

    def test_endedJobs(self) -> None:
        """Only the last job that has ended keeps its bar."""
        self.put("a/1", "b/1")
        self.page.show(self.bucket)
        self.page.waitRow("a/")
        for before, after in (("a", "c"), ("b", "d")):
            first = f"document.querySelector('#row-0 bdi')?.textContent === '{before}/'"
            self.page.wait(first)
            self.item(0, "Rename")
            self.page.fill("dialog input[name=name]", after)
            self.page.press("Rename folder")
            self.page.waitText(f"Moved {before}/ to {after}/: 1 object")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.notice.job').length"), 1)

    def test_table(self) -> None:
        """Comma-separated values are a table, of bounded size, and all of them are text."""
        evil = "<img src=x onerror=alert(1)>"
        rows = [f'"{evil}, 1";{number};=1+1' for number in range(70)]
        body = "\ufeff" + "a;b;c\r\n" + "\r\n".join(rows)
        self.put("sheet.csv", body=body.encode(), ContentType="text/csv")
        self.put("wide.tsv", body=b"\t".join([b"x"] * 500) + b"\n" + b"y" * 5000)
        self.put("large.csv", body=b"name,amount\n" * 40_000, ContentType="text/csv")
        self.page.show(self.bucket, object="sheet.csv")
        self.page.wait("document.querySelector('.sheet tbody tr')")
        cells = "[...document.querySelectorAll('.sheet tbody tr:first-child td')]"
        texts = self.page.evaluate(f"{cells}.map((each) => each.textContent)")
        self.assertEqual(texts, [f"{evil}, 1", "0", "=1+1"])
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.sheet img').length"), 0)
        self.page.waitText("The first 50 of 70 rows")
        self.page.press("Show as text")
        self.page.wait(
            f"document.querySelector('.preview pre').textContent.includes({json.dumps(evil)})"
        )
        self.page.show(self.bucket, object="wide.tsv")
        self.page.waitText("480 more columns")
        self.page.show(self.bucket, object="large.csv")
        self.page.waitText("The first 50 rows")
        self.page.press("Show as text")
        self.page.waitText("The first 131 kB are shown.")

    def test_selection(self) -> None:
        """A selection says how much it is; the head shows whether it is everything."""
        self.put("folder/a", "b", body=b"x" * 1500)
        self.put("c", body=b"x" * 500)
        self.page.show(self.bucket)
        self.page.waitRow("c")
        for row in (0, 1):
            self.page.evaluate(f"document.querySelector('#row-{row} .pick').click()")
        self.page.waitText("2 selected")
        self.page.waitText("1 folder, 1 object, 1.5 kB")
        head = "document.querySelector('.listHead .tick').className"
        self.assertEqual(self.page.evaluate(head), "tick isSome")
        self.page.evaluate("document.querySelector('#row-2 .pick').click()")
        self.page.waitText("1 folder, 2 objects, 2 kB")
        self.assertEqual(self.page.evaluate(head), "tick isAll")
        self.page.evaluate("document.querySelector('[aria-label=\"Clear the selection\"]').click()")
        self.page.wait("!document.querySelector('.bulk')")
        self.assertEqual(self.page.evaluate(head), "tick ")

    def test_copySelection(self) -> None:
        """Selected objects and folders are copied and moved together; nothing is replaced."""
        self.put("folder/a", "b", "c", "new/c")
        self.page.show(self.bucket)
        self.page.waitRow("c")
        for row in (0, 2, 3):
            self.page.evaluate(f"document.querySelector('#row-{row} .pick').click()")
        self.page.waitText("1 folder, 2 objects")
        self.page.press("Copy to…")
        self.page.fill("dialog input[name=toFolder]", "new")
        self.page.press("Copy")
        self.page.waitText("1 failed, the first: c")
        kept = ["b", "c", "folder/a", "new/b", "new/c", "new/folder/a"]
        self.eventually(self.keys, kept)
        self.page.waitText("1 selected")
        self.page.press("Move to…")
        self.page.fill("dialog input[name=toFolder]", "other/")
        self.page.press("Move")
        self.page.waitText("1 moved to")
        self.eventually(self.keys, [each for each in kept if each != "c"] + ["other/c"])

    def refuseJob(self, number: int) -> None:
        """Refuse the start of one job from now on, by its number, as if too many ran."""
        body = {"error": "RATE_LIMITED", "message": "4 jobs are already running"}
        self.page.evaluate(
            "(() => { const really = window.fetch; let count = 0;"
            " window.fetch = (place, options) => String(place).endsWith('/jobs')"
            f" && options.method === 'POST' && (count += 1) === {number}"
            f" ? Promise.resolve(new Response(JSON.stringify({json.dumps(body)}), {{status: 429}}))"
            " : really(place, options) })()"
        )

    def test_refusedJob(self) -> None:
        """What is not copied or deleted because its job is refused stays selected, and alone."""
        self.enable()
        self.put("d1/x", "d2/x", "k")
        self.page.show(self.bucket)
        self.page.waitRow("k")
        for row in range(3):
            self.page.evaluate(f"document.querySelector('#row-{row} .pick').click()")
        self.refuseJob(2)
        self.page.press("Copy to…")
        self.page.fill("dialog input[name=toFolder]", "to")
        self.page.press("Copy")
        self.page.waitText("1 failed, the first: d2/: 4 jobs are already running")
        self.page.waitText("1 selected")
        self.waitKeys("d1/x", "d2/x", "k", "to/d1/x", "to/k")
        self.page.press("Copy to…")
        self.page.fill("dialog input[name=toFolder]", "to")
        self.page.press("Copy")
        self.waitKeys("d1/x", "d2/x", "k", "to/d1/x", "to/d2/x", "to/k")
        self.page.wait("!document.querySelector('dialog, .bulk')")
        self.page.waitRow("to/")
        for row in (0, 1, 3):
            self.page.evaluate(f"document.querySelector('#row-{row} .pick').click()")
        self.refuseJob(2)
        self.page.press("Delete")
        self.page.wait("document.activeElement.matches('dialog form button.danger')")
        self.page.key("Enter")
        self.page.waitText("1 objects were not deleted: d2/: 4 jobs are already running")
        self.page.waitText("Deleted d1/: 1 object")
        self.waitKeys("d2/x", "to/d1/x", "to/d2/x", "to/k")
        self.page.waitText("1 selected")

    def test_lateRefusal(self) -> None:
        """The refusal of a request of the session before does not end the new one."""
        self.page.show(self.bucket)
        self.page.press("New folder")
        self.page.fill("dialog input[name=folder]", "made")
        for session in self.call("GET", "sessions").json["items"]:
            self.call("DELETE", f"sessions/{session['id']}")
        self.page.evaluate(
            "(() => { const really = window.fetch;"
            " const held = new Promise((done) => { window.release = done });"
            " window.fetch = async (place, options) => {"
            " const found = await really(place, options);"
            " if (options.method === 'PUT') await held; return found } })()"
        )
        self.page.press("Create folder")
        self.page.evaluate("location.hash = '#/keys'")
        self.page.waitText("Your session has ended")
        self.page.fill("dialog input[name=password]", ROOT.secretKey)
        self.page.press("Sign in")
        self.page.waitText(ROOT.accessKey)
        self.page.wait("!document.querySelector('dialog')")
        self.page.evaluate("release()")
        self.page.evaluate("location.hash = '#/sessions'")
        self.page.waitText("This session")
        self.assertFalse(self.page.evaluate("document.querySelector('dialog') !== null"))

    def test_folderTree(self) -> None:
        """The target of a copy is picked in a tree, which reads folders as they are seen."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.put, ["a", *(f"f{number:04}/x" for number in range(1200))]))
        self.put("z/in/x")
        self.page.show(self.bucket)
        self.page.waitRow("a")
        self.item(0, "Copy")
        tree = "document.querySelector('dialog [role=tree]')"
        self.page.wait(f"{tree}?.innerText.includes('f0002/')")
        before = len(self.page.requested)
        self.assertEqual(self.page.evaluate("document.activeElement.name"), "toKey")
        self.page.key("ArrowDown")
        self.assertEqual(self.page.evaluate("document.activeElement.role"), "tree")
        self.assertEqual(self.page.requested[before:], [])
        self.page.key("End")
        self.page.wait(f"{tree}.innerText.includes('f1002/')")
        self.assertEqual(len(self.page.requested), before + 1)
        active = f"{tree}.querySelector('.active')?.innerText.trim()"
        self.page.key("End")
        self.page.wait(f"{active} === 'z/'")
        self.page.key("ArrowRight")
        self.page.wait(f"{tree}.innerText.includes('in/')")
        self.page.key("ArrowDown")
        self.page.key("Enter")
        field = "document.querySelector('dialog input[name=toKey]').value"
        self.page.wait(f"{field} === 'z/in/a'")
        # The folder has no folders, which is known once it has been read.
        self.page.wait(f"!{tree}.innerText.includes('Loading')")
        self.page.key("ArrowLeft")
        self.page.wait(f"{active} === 'z/'")
        self.page.key("f")
        self.page.wait(f"{active} === 'f0000/'")
        self.page.fill("dialog input[name=toKey]", "f111")
        items = f"[...{tree}.querySelectorAll('[role=treeitem]')]"
        rows = f"{items}.map((each) => each.innerText.trim()).join()"
        wanted = ",".join([self.bucket, *(f"f111{digit}/" for digit in range(10))])
        self.page.wait(f"{rows} === {json.dumps(wanted)}")
        self.page.evaluate(f"{tree}.querySelectorAll('[role=treeitem]')[2].click()")
        self.page.wait(f"{field} === 'f1111/a'")
        self.page.press("Copy")
        self.page.wait("!document.querySelector('dialog')")
        self.assertEqual(self.body("f1111/a"), b"some text")

    def test_tagSelection(self) -> None:
        """Tags are added to a selection by a job, which names each object that it cannot tag."""
        self.put("folder/x", "full", "free")
        tags = [{"Key": f"k{number}", "Value": "v"} for number in range(10)]
        self.s3.put_object_tagging(Bucket=self.bucket, Key="full", Tagging={"TagSet": tags})
        kept = [{"Key": "stage", "Value": "prod"}]
        self.s3.put_object_tagging(Bucket=self.bucket, Key="free", Tagging={"TagSet": kept})
        self.page.show(self.bucket)
        self.page.waitRow("full")
        for row in range(3):
            self.page.evaluate(f"document.querySelector('#row-{row} .pick').click()")
        self.page.press("Add tags…")
        name, value = (f"dialog .pair input:nth-of-type({number})" for number in (1, 2))
        self.page.fill(name, "aws:team")
        self.page.fill(value, "b")
        self.page.press("Add tags")
        self.page.waitText("cannot be prefixed with aws:")
        self.page.fill(name, "team")
        self.page.press("Add tags")
        self.page.waitText("1 failed, the first: full: BadRequest: Object tags cannot be greater")
        for key, before in (("folder/x", []), ("free", kept)):
            found = self.s3.get_object_tagging(Bucket=self.bucket, Key=key)["TagSet"]
            self.assertEqual(found, [*before, {"Key": "team", "Value": "b"}])
        self.s3.delete_object_tagging(Bucket=self.bucket, Key="full")
        self.page.press("Run again")
        self.page.waitText("Added the tags team: 3 objects")
        found = self.s3.get_object_tagging(Bucket=self.bucket, Key="full")["TagSet"]
        self.assertEqual(found, [{"Key": "team", "Value": "b"}])

    def test_manyFolders(self) -> None:
        """However many folders there are, deleted objects and versions have the page."""
        self.enable()
        self.put("a", *(f"folder-{number:03}/x" for number in range(150)))
        self.s3.create_multipart_upload(Bucket=self.bucket, Key="u")
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self.page.send("Emulation.setDeviceMetricsOverride", **phone)
        self.page.show(self.bucket, versions="1")
        self.page.waitRow("a")
        self.page.waitText("1 unfinished upload,")
        heights = self.page.evaluate(
            "['.folders', '.listBox'].map((each) => document.querySelector(each).offsetHeight)"
        )
        self.assertLess(heights[0], 100)
        self.assertGreater(heights[1], 180)

    def test_focusRing(self) -> None:
        """The active row has a ring for those who use the keyboard only."""
        self.put("a", "b")
        self.page.show(self.bucket)
        self.page.waitRow("b")
        ring = "getComputedStyle(document.querySelector('.listRow.active')).outlineStyle"
        place = self.page.evaluate(
            "(({right, y}) => ({x: right - 200, y: y + 10}))"
            "(document.querySelector('#row-1').getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.page.send(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place
            )
        self.page.wait("document.querySelector('#row-1.active')")
        self.assertEqual(self.page.evaluate(ring), "none")
        self.page.key("ArrowUp")
        self.page.wait("document.querySelector('#row-0.active')")
        self.assertEqual(self.page.evaluate(ring), "solid")

    def test_narrowed(self) -> None:
        """A key for one folder opens the bucket at that folder, and reads which one it has."""
        self.put("2026/a", "2027/b")
        self.become(self.narrow("readwrite", "2026/*"))
        self.page.wait("document.querySelector('main tbody tr')")
        row = self.page.evaluate("document.querySelector('main tbody tr').innerText")
        self.assertRegex(row, "\u2013\\s+\u2013")
        self.assertIsNone(self.page.evaluate("document.querySelector('.sums')"))
        self.page.press(self.bucket)
        self.page.waitRow("a")
        self.assertNotRegex(
            self.page.evaluate("document.querySelector('.factsLine').innerText"), "object|null"
        )
        self.assertEqual(self.page.rows(), ["a"])
        self.page.waitText("2026/*")
        self.assertNotIn("2027", self.page.evaluate("document.body.innerText"))

    def test_readonly(self) -> None:
        """A key that may only read is offered neither uploads nor deletions nor new buckets."""
        self.put("a")
        self.become(self.narrow("readonly"))
        self.page.press(self.bucket)
        self.page.waitRow("a")
        text = self.page.evaluate("document.body.innerText")
        for each in ("Upload", "New folder"):
            self.assertNotIn(each, text)
        self.page.evaluate("document.querySelector('#row-0 .pick').click()")
        self.page.waitText("1 selected")
        names = self.page.evaluate(
            "[...document.querySelectorAll('button')].map((each) => each.innerText.trim())"
        )
        self.assertIn("Download", names)
        self.assertNotIn("Delete", names)
        self.page.evaluate("location.hash = '#/buckets'")
        self.page.wait("[...document.querySelectorAll('main th a, main td a')].length")
        self.assertNotIn("New bucket", self.page.evaluate("document.body.innerText"))
        self.page.evaluate("location.hash = '#/jobs'")
        self.page.waitText("No jobs yet")
        self.assertNotIn("New job", self.page.evaluate("document.body.innerText"))

    def test_uploadButtons(self) -> None:
        """The fields for files behind the buttons are no second element with the same name."""
        self.put("a")
        self.page.show(self.bucket)
        self.page.waitRow("a")
        self.page.send("Accessibility.enable")
        nodes = self.page.send("Accessibility.getFullAXTree")["nodes"]
        names = [
            each["name"].get("value")
            for each in nodes
            if each.get("role", {}).get("value") == "button" and not each["ignored"]
        ]
        for name in ("Upload files", "Upload folder"):
            self.assertEqual(names.count(name), 1, names)

    def test_contains(self) -> None:
        """A name is found by a part of it, in any folder."""
        self.put("x/y/report-2026.txt", "x/other", "z")
        self.page.show(self.bucket)
        self.page.waitRow("z")
        self.page.press("Contains")
        self.page.fill("input[name=find]", "PORT-20")
        self.page.waitRow("x/y/report-2026.txt")
        self.assertEqual(self.page.rows(), ["x/y/report-2026.txt"])
        self.page.waitText("3 names")
        self.assertEqual(
            self.page.evaluate("document.querySelector('.listRow mark').textContent"), "port-20"
        )
        self.item(0, "Show in folder")
        self.page.wait("document.querySelectorAll('.listRow').length === 1")
        self.page.waitRow("report-2026.txt")
        query = self.page.evaluate(
            "Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))"
        )
        self.assertEqual(query, {"prefix": "x/y/", "object": "x/y/report-2026.txt"})
        self.page.evaluate("history.back()")
        self.page.waitRow("x/y/report-2026.txt")
        self.page.evaluate("document.querySelector('[aria-label=\"Clear the field\"]').click()")
        self.page.wait("document.querySelector('input[name=find]').value === ''")
        self.assertEqual(self.page.evaluate("document.activeElement.name"), "find")

    def test_insteadContains(self) -> None:
        """What no name begins with is offered as a part of names."""
        self.put("x/report-2026.txt", "z")
        self.page.show(self.bucket)
        self.page.waitRow("z")
        self.page.fill("input[name=find]", "port")
        self.page.press("Find names that contain port")
        self.page.waitRow("x/report-2026.txt")

    def test_folderSizes(self) -> None:
        """Folders are added up on demand, and then sort by size."""
        self.put("a/1", "a/b/2", body=bytes(1000))
        self.put("c/3", body=bytes(9000))
        self.put("d", body=bytes(5))
        self.page.show(self.bucket)
        self.page.waitRow("c/")
        self.page.press("Show folder sizes")
        self.page.waitText("Folders hold the current objects of 4 names")
        sizes = "[...document.querySelectorAll('.listRow .number')].map((each) => each.innerText)"
        self.assertEqual(self.page.evaluate(sizes), ["2 kB", "9 kB", "5 B"])
        self.page.press("Size")
        self.page.wait("document.querySelector('[aria-sort]').innerText === 'Size'")
        self.page.press("Size")
        self.page.wait("document.querySelector('#row-0 bdi').textContent === 'c/'")
        self.assertEqual(self.page.rows(), ["c/", "a/", "d"])

    def test_restoreAll(self) -> None:
        """All that was deleted in a folder comes back by one button."""
        self.enable()
        self.put("d/1", "d/2", "kept")
        for key in ("d/1", "d/2"):
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        self.page.show(self.bucket, prefix="d/", versions="1")
        self.page.press("Restore all 2 deleted")
        self.waitKeys("d/1", "d/2", "kept")

    def test_startsWith(self) -> None:
        """What is typed narrows the list at once to names that begin with it."""
        self.put("aa", "ab", "b")
        self.page.show(self.bucket)
        self.page.waitRow("b")
        self.page.fill("input[name=find]", "a")
        self.page.wait("document.querySelectorAll('.listRow bdi').length === 2")
        self.assertEqual(self.page.rows(), ["aa", "ab"])
        self.page.key("b")
        self.page.wait("document.querySelectorAll('.listRow bdi').length === 1")
        self.page.press("Contains")
        self.page.evaluate("document.querySelector('input[name=find]').focus()")
        self.page.key("Backspace")
        self.page.key("Backspace")
        self.page.key("b")
        self.page.wait("document.querySelectorAll('.listRow bdi').length === 2")
        self.assertEqual(self.page.evaluate("document.activeElement.name"), "find")

    def test_sort(self) -> None:
        """The columns sort the list; folders come first."""
        self.put("f/x")
        for name, size in (("a", 5), ("b", 900), ("c", 10)):
            self.put(name, body=bytes(size))
        self.page.show(self.bucket)
        self.page.waitRow("c")
        for order in (["f/", "a", "c", "b"], ["f/", "b", "c", "a"]):
            self.page.press("Size")
            wanted = json.dumps(json.dumps(order, separators=(",", ":")))
            self.page.wait(
                "JSON.stringify([...document.querySelectorAll('.listRow bdi')]"
                f".map((each) => each.textContent)) === {wanted}"
            )

    def test_rename(self) -> None:
        """The menu of a row renames just this object; a name in use is refused."""
        self.put("a", "ab", "taken")
        self.page.show(self.bucket)
        self.page.waitRow("ab")

        def rename(name: str) -> None:
            self.page.evaluate("document.querySelector('#row-0 .more').click()")
            self.page.wait("document.querySelector('[role=menuitem]')")
            self.page.evaluate(
                "[...document.querySelectorAll('[role=menuitem]')]"
                ".find((each) => each.innerText.startsWith('Rename')).click()"
            )
            self.page.fill("dialog input[name=name]", name)
            self.page.press("Rename")

        rename("taken")
        self.page.waitText("already exists")
        self.page.press("Cancel")
        rename("z")
        self.waitKeys("ab", "taken", "z")

    def test_lifecycle(self) -> None:
        """An empty rule is refused with the field that it lacks, not with a message about XML."""
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}?setting=lifecycle'")
        self.page.press("Add rule")
        self.page.press("Save")
        self.page.wait("document.querySelector('[aria-invalid=true]')")
        text = self.page.evaluate("document.querySelector('main').innerText")
        self.assertNotIn("XML", text)
        self.assertEqual(text.count("Enter at least one number of days"), 1)
        self.assertIn("A rule deletes objects", text)
        for wrong in ("0", "1.5", "x"):
            self.page.fill("input[name=expire1]", wrong)
            self.page.press("Save")
            # A form whose fields the browser checks by itself is not submitted.
            self.page.wait("document.body.innerText.split('number of days, from').length === 2")
        self.page.fill("input[name=expire1]", "30")
        self.page.wait("!document.querySelector('[aria-invalid=true]')")

    def test_unsaved(self) -> None:
        """A link asks before it leaves a changed rule; Cancel keeps it, Leave drops it."""
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}?setting=lifecycle'")
        self.page.press("Add rule")
        self.page.fill("input[name=id1]", "mine")
        self.page.press("CORS")
        self.page.waitText("Leave without saving?")
        self.page.press("Cancel")
        self.page.wait("!document.querySelector('dialog')")
        self.assertEqual(self.page.evaluate("document.querySelector('[name=id1]').value"), "mine")
        self.page.press("CORS")
        self.page.press("Leave")
        self.page.wait("location.hash.includes('cors')")
        self.page.wait("!document.querySelector('dialog')")

    def test_untouchedLock(self) -> None:
        """The form that can enable object lock as it is asks nothing before it is left."""
        self.enable()
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}/settings'")
        self.page.wait(
            "[...document.querySelectorAll('main form .button')].some((each) =>"
            " each.innerText.startsWith('Enable object lock') && !each.disabled)"
        )
        self.page.press("Keys")
        self.page.wait("location.hash.startsWith('#/keys')")
        self.page.wait("document.querySelector('main h1').innerText === 'Keys'")
        self.assertFalse(self.page.evaluate("document.querySelector('dialog') !== null"))

    def test_unsavedBack(self) -> None:
        """Back in the browser asks too, once, and the page stays until Leave."""
        self.page.evaluate("location.hash = '#/keys'")
        self.page.waitText("New key")
        here = f"#/buckets/{self.bucket}?setting=lifecycle"
        self.page.evaluate(f"location.hash = {json.dumps(here)}")
        self.page.press("Add rule")
        self.page.fill("input[name=id1]", "mine")
        self.page.evaluate("history.back()")
        self.page.waitText("Leave without saving?")
        self.assertEqual(self.page.evaluate("location.hash"), here)
        self.page.press("Cancel")
        self.page.wait("!document.querySelector('dialog')")
        self.assertEqual(self.page.evaluate("document.querySelector('[name=id1]').value"), "mine")
        self.page.evaluate("history.back()")
        self.page.waitText("Leave without saving?")
        self.page.press("Leave")
        self.page.wait("location.hash === '#/keys' && !document.querySelector('dialog')")
        self.page.waitText("New key")

    def test_neverEnabled(self) -> None:
        """Versions of a bucket that never had any are not one careless click from being enabled."""
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}?setting=versioning'")
        self.page.waitText("Never enabled")
        names = self.page.evaluate(
            "[...document.querySelectorAll('main button')].map((each) => each.innerText.trim())"
        )
        self.assertNotIn("Save", names)
        self.assertIsNone(self.page.evaluate("document.querySelector('select[name=status]')"))
        self.page.press("Enable versions…")
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=self.bucket))
        self.page.press("Enable versions")
        self.eventually(
            lambda: self.s3.get_bucket_versioning(Bucket=self.bucket).get("Status"), "Enabled"
        )

    def test_reach(self) -> None:
        """A new key says what it reaches: so many objects of an account, or nothing."""
        self.put("2026/a", "2026/b", "2027/c")
        self.page.evaluate("location.hash = '#/keys'")
        self.page.press("New key")
        self.page.wait(
            "[...document.querySelectorAll('option')]"
            f".some((each) => each.value === {json.dumps(self.bucket)})"
        )
        self.page.choose("select[name=bucket]", self.bucket)
        self.page.fill("input[name=prefix]", "2026/")
        self.page.waitText("2 objects today")
        self.page.choose("select[name=account]", "")
        self.page.fill("input[name=newAccount]", "someone")
        self.page.waitText("reaches no object")

    def test_openFolder(self) -> None:
        """A folder without its slash says what else the key reaches."""
        self.put("2026/a", "2026-old/b")
        self.page.evaluate(f"location.hash = '#/keys?make=1&bucket={self.bucket}'")
        self.page.wait("document.querySelector('input[name=prefix]:enabled')")
        self.page.fill("input[name=prefix]", "2026")
        self.page.waitText("Also reaches 2026-old/")
        self.page.fill("input[name=prefix]", "2026/")
        self.page.wait("!document.body.innerText.includes('Also reaches')")

    def test_tray(self) -> None:
        """
        Uploads stay in sight while pages change, take one line when all is sent, and can be
        opened and closed.
        """
        self.page.show(self.bucket)
        self.page.waitText("No objects here")
        self.page.evaluate(
            "window.setTimeout = ((real) => (act, ms, ...more) => real(act, ms / 20, ...more))"
            "(setTimeout); undefined"
        )
        self.page.evaluate(
            "(() => { const input = document.querySelector('input[type=file]');"
            " const files = new DataTransfer();"
            " files.items.add(new File(['some text'], 'sent.txt', {type: 'text/plain'}));"
            " input.files = files.files;"
            " input.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )
        self.page.waitRow("sent.txt")
        self.page.press("Keys")
        self.page.wait("document.querySelector('main h1').innerText === 'Keys'")
        self.page.wait(
            "document.querySelector('.tray').innerText.trim() === '1 file uploaded'"
            " && !document.querySelector('.tray li')"
        )
        self.page.evaluate("document.querySelector('.tray [aria-expanded]').click()")
        self.page.wait("document.querySelector('.tray li').innerText.includes('sent.txt')")
        self.page.evaluate("document.querySelector('.tray [aria-expanded]').click()")
        self.page.wait("!document.querySelector('.tray li')")
        self.page.evaluate("document.querySelector('.tray [aria-label=Close]').click()")
        self.page.wait("!document.querySelector('.tray')")

    def test_signedOutFiles(self) -> None:
        """A file that is read while its owner signs out is no upload of the next one."""
        self.page.show(self.bucket)
        self.page.waitText("No objects here")
        self.page.evaluate(
            "(() => { const input = document.querySelector('input[type=file]');"
            " const files = new DataTransfer();"
            " files.items.add(new File(['some text'], 'sent.txt'));"
            " input.files = files.files; input.dispatchEvent(new Event('change')) })()"
        )
        self.page.waitRow("sent.txt")
        self.page.evaluate(
            "(async () => { const names = performance.getEntriesByType('resource');"
            " const { uploads } = await import("
            "names.find(({ name }) => name.includes('/upload.')).name);"
            " const gate = new Promise((done) => { window.give = done }); window.uploads = uploads;"
            " const files = async function* () { await gate;"
            " yield { file: new File(['x'], 'late.txt'), path: 'late.txt' } };"
            f" uploads.add({{ files }}, (file, key) => ({{ bucket: '{self.bucket}', key }})) }})()"
        )
        self.page.press("Sign out")
        self.page.wait("document.querySelector('input[name=password]')")
        self.page.evaluate("give(); new Promise((done) => setTimeout(done))")
        self.assertEqual(self.page.evaluate("uploads.items.length"), 0)

    def test_stop(self) -> None:
        """A search of many names shows its progress and can be stopped."""
        self.put("a", "b")
        self.page.show(self.bucket)
        self.page.waitRow("b")
        self.page.send("Fetch.enable", patterns=[{"urlPattern": r"*/objects\?*"}])
        self.page.press("Contains")
        self.page.fill("input[name=find]", "a")
        self.page.waitText("0 names searched")
        self.page.press("Stop")
        self.page.waitText("Stopped after 0 names")
        self.page.send("Fetch.disable")

    def test_phoneVersions(self) -> None:
        """A row of a bucket on a phone says what is on: versions."""
        self.enable()
        self.addCleanup(self.page.send, "Emulation.clearDeviceMetricsOverride")
        self.page.send("Emulation.setDeviceMetricsOverride", **_PHONE)
        self.page.evaluate(f"location.hash = '#/buckets?prefix={self.bucket}'")
        cell = "document.querySelector('main tbody td[data-label=Versions]')"
        self.page.wait(f"{cell}?.getBoundingClientRect().height > 0")
        self.assertEqual(self.page.evaluate(f"{cell}.innerText"), "On")

    def test_toast(self) -> None:
        """The text of a message has as much space after it as before it."""
        paddings = self.page.evaluate(
            "(() => { const made = document.createElement('div'); made.className = 'toast';"
            " document.body.append(made); const found = getComputedStyle(made);"
            " return [found.paddingLeft, found.paddingRight] })()"
        )
        self.assertEqual(paddings[0], paddings[1])

    def test_zero(self) -> None:
        """Sizes have the units of the field."""
        self.put("empty", body=b"")
        self.page.show(self.bucket)
        self.page.waitRow("empty")
        text = self.page.evaluate("document.querySelector('#row-0').innerText")
        self.assertIn("0 B", text)
        self.assertNotIn("byte", text)

    def test_palette(self) -> None:
        """The palette offers no bucket that does not exist, and finds those that do."""
        self.page.key("k", 2)
        self.page.fill("[role=combobox]", "absent-bucket")
        self.page.waitText("Nothing found")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('[role=option]').length"), 0)
        self.page.fill("[role=combobox]", self.bucket)
        self.page.wait("document.querySelectorAll('[role=option]').length === 3")
        first = "document.querySelector('[role=option] .fill').innerText"
        self.assertEqual(self.page.evaluate(first), self.bucket)
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")


@long("drives Chromium")
class ExplorerTests(PagesCase):
    """Pages of the gateway, the live view and the configuration."""

    def phone(self) -> None:
        """Have a narrow screen."""
        self.page.send("Emulation.setDeviceMetricsOverride", **_PHONE)
        self.addCleanup(self.page.send, "Emulation.clearDeviceMetricsOverride")

    def requests(self) -> None:
        """Make requests until the live view shows some."""
        s3 = botoClient(self.daemon.url("s3"))
        self.page.waitText("Connected")

        def isShown() -> bool:
            s3.list_objects_v2(Bucket=BUCKET)
            self.page.evaluate("new Promise((done) => setTimeout(done, 50))")
            return bool(self.page.evaluate("document.querySelectorAll('.live td').length > 12"))

        self.assertTrue(eventually(isShown))

    def transports(self, view: str) -> list[Any]:
        """Press the button that calls a method; return the transports of the requests."""
        sent: list[Any] = []
        noted = self.page._note

        def note(message: Any) -> None:
            if message.get("method") == "Network.requestWillBeSent":
                request = message["params"]["request"]
                if request["url"].endswith("/gateway/calls"):
                    sent.append(json.loads(request["postData"])["wire"])
            noted(message)

        self.patch(self.page, "_note", note)
        self.page.show(view)
        self.page.press("Call")
        self.page.wait("document.querySelector('.answers').innerText.includes('ms')")
        self.page.evaluate("new Promise((done) => setTimeout(done, 300))")
        return sent

    def test_oneTransport(self) -> None:
        """A call uses one transport; a comparison with all of them asks first."""
        self.enter()
        sent = self.transports("gateway/Probe/echo")
        self.assertEqual(len(sent), 1)
        self.page.press("Compare all…")
        self.page.wait("document.querySelector('dialog[open]')")
        self.assertEqual(len(sent), 1)
        self.page.press("Call all 5")
        done = "[...document.querySelectorAll('.answers section')]"
        self.page.wait(f"{done}.filter((each) => each.innerText.includes('ms')).length === 5")
        self.assertEqual(len(sent), 6)

    def test_phone(self) -> None:
        """On a phone no table loses a column or breaks its words."""
        self.phone()
        self.enter()
        for view in ("buckets", "configuration", "live", "keys"):
            self.page.show(view)
            if view == "live":
                self.requests()
            self.page.wait("document.querySelector('tbody tr :is(td, th):not(:empty)')")
            wide, narrow, cut = self.page.evaluate(
                "(() => { const cells = [...document.querySelectorAll("
                "'tbody tr:not([aria-hidden]) :is(td, th):not(:empty)')];"
                " const box = (each) => each.getBoundingClientRect();"
                " const scroll = [...document.querySelectorAll('.scroll, .list')]"
                ".filter((each) => each.scrollWidth > each.clientWidth + 1).length;"
                " return [scroll, cells.filter((each) => each.innerText.length > 6"
                " && box(each).height > 3 * box(each).width).length,"
                " cells.filter((each) => box(each).width && (box(each).right > 391"
                " || box(each).left < -1)).length] })()"
            )
            self.assertEqual((wide, narrow, cut), (0, 0, 0), view)

    def test_liveHeads(self) -> None:
        """The heads of the live view stand over their columns, to the pixel."""
        self.enter()
        self.page.show("live")
        self.requests()
        edges = self.page.evaluate(
            "['thead th', 'tbody tr:not([aria-hidden])'].map((each, at) => at === 0"
            " ? [...document.querySelectorAll('.live thead th')]"
            " : [...document.querySelector('.live ' + each).children])"
            ".map((cells) => cells.map((each) => {"
            " const range = document.createRange(); range.selectNodeContents(each);"
            " const own = range.getBoundingClientRect();"
            " return getComputedStyle(each).textAlign === 'end'"
            " || getComputedStyle(each).textAlign === 'right' ? ['end', Math.round(own.right)]"
            " : ['start', Math.round(own.left)] }))"
        )
        heads, cells = edges
        self.assertEqual(len(heads), len(cells))
        for head, cell in zip(heads, cells, strict=True):
            self.assertEqual(head[0], cell[0])
            if cell[1] and head[1]:
                self.assertLess(abs(head[1] - cell[1]), 3, edges)

    def test_identity(self) -> None:
        """The font comes from the console itself, and the theme is kept by the browser."""
        self.enter()
        self.page.wait(
            "[...document.fonts].some((each) => each.family.includes('Inter')"
            " && each.status === 'loaded')"
        )
        fonts = [url for url in self.page.requested if url.endswith(".woff2")]
        self.assertTrue(fonts)
        self.assertTrue(all(url.startswith(self.page.origin) for url in fonts))
        back = "getComputedStyle(document.body).backgroundColor"
        light = self.page.evaluate(back)
        self.page.evaluate("document.querySelector('.seg [aria-label=Dark]').click()")
        dark = self.page.evaluate(back)
        self.assertNotEqual(light, dark)
        self.page.send("Page.reload")
        # The page before the reload may still be the one that is asked.
        self.page.wait("document.querySelector('.seg [aria-pressed=true]').ariaLabel === 'Dark'")
        self.page.wait(f"{back} === {json.dumps(dark)}")

    def test_accessKeyWhole(self) -> None:
        """A key of 20 characters is whole in the header."""
        self.enter(self.reader)
        cut = self.page.evaluate(
            "(() => { const who = document.querySelector('.who');"
            " return [who.innerText, who.scrollWidth - who.clientWidth] })()"
        )
        self.assertIn(self.reader.accessKey, cut[0])
        self.assertLessEqual(cut[1], 0)
