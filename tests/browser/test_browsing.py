"""Finding, restoring and sharing objects, narrowed keys, and forms that show the present state."""

import json
from typing import Any

from botocore.exceptions import ClientError

from tests.browser.pages import BUCKET, PagesCase
from tests.browser.test_objects import BrowserCase
from tests.support.clients import Account, botoClient
from tests.support.selection import long

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
        self.page.evaluate("document.querySelector('dialog form button.danger').click()")
        self.waitKeys("b")
        self.page.press("Undo")
        self.waitKeys("a", "b")
        versions = self.s3.list_object_versions(Bucket=self.bucket)
        self.assertNotIn("DeleteMarkers", versions)

    def test_narrowed(self) -> None:
        """A key for one folder opens the bucket at that folder, and reads which one it has."""
        self.put("2026/a", "2027/b")
        self.become(self.narrow("readwrite", "2026/*"))
        self.page.press(self.bucket)
        self.page.waitRow("a")
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
        self.assertIn("Enter at least one number of days", text)

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

    def test_tray(self) -> None:
        """Uploads stay in sight while pages change, and can be collapsed and closed."""
        self.page.show(self.bucket)
        self.page.waitText("No objects here")
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
        self.page.wait("document.querySelector('.tray li').innerText.includes('sent.txt')")
        self.page.evaluate("document.querySelector('.tray [aria-expanded]').click()")
        self.page.wait("!document.querySelector('.tray li')")
        self.page.evaluate("document.querySelector('.tray [aria-label=Close]').click()")
        self.page.wait("!document.querySelector('.tray')")

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

        self.assertTrue(any(isShown() for _ in range(100)))

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
        self.page.wait(f"document.querySelector('.seg') && {back} === {json.dumps(dark)}")
        pressed = "document.querySelector('.seg [aria-pressed=true]').ariaLabel"
        self.assertEqual(self.page.evaluate(pressed), "Dark")

    def test_accessKeyWhole(self) -> None:
        """A key of 20 characters is whole in the header."""
        self.enter(self.reader)
        cut = self.page.evaluate(
            "(() => { const who = document.querySelector('.who');"
            " return [who.innerText, who.scrollWidth - who.clientWidth] })()"
        )
        self.assertIn(self.reader.accessKey, cut[0])
        self.assertLessEqual(cut[1], 0)
