"""The objects of a bucket and its settings, in Chromium, against a daemon."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen

from botocore.exceptions import ClientError

from tests.browser.fixture import ConsoleBrowser
from tests.console.fixture import ConsoleCase
from tests.support.browser import SECONDS
from tests.support.clients import ROOT, botoClient
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory

CURL = shutil.which("curl")

PDF = (
    b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]"
    b"/Count 1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\n"
    b"trailer<</Root 1 0 R>>\n"
)

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\u202etxt.exe",
    "\x01\x1b[31m\n",
    "..",
    "a'\"$(id)`\\",
    "k" * 1024,
    "ü\u200b😀",
)

KEYS = {
    name: (name, code)
    for name, code in (
        ("ArrowDown", 40),
        ("ArrowUp", 38),
        ("Home", 36),
        ("End", 35),
        ("PageDown", 34),
        ("Enter", 13),
        ("Escape", 27),
        ("Delete", 46),
        ("Backspace", 8),
        ("Tab", 9),
    )
}


class ObjectsBrowser(ConsoleBrowser):
    """The browser, at the pages of a bucket."""

    def show(self, bucket: str, **query: str) -> None:
        """Go to the objects of a bucket, or to one of them."""
        self.evaluate(
            f"location.hash = '#/buckets/{bucket}/objects?' + "
            f"new URLSearchParams({json.dumps(query)}).toString()"
        )

    def key(self, name: str, modifiers: int = 0) -> None:
        """
        Press a key of the keyboard.

        @param modifiers: 2 for Ctrl, 8 for Shift.
        """
        key, code = KEYS.get(name, (name, ord(name[0].upper())))
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 and not modifiers else "")
        named = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        if len(name) > 1:
            named["code"] = name
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def rows(self) -> list[str]:
        """Return the names that are elements now."""
        found: list[str] = self.evaluate(
            "[...document.querySelectorAll('.listRow bdi')].map((each) => each.textContent)"
        )
        return found

    def waitRow(self, text: str) -> None:
        """Wait until a name is shown in the list."""
        self.wait(
            "[...document.querySelectorAll('.listRow bdi')]"
            f".some((each) => each.textContent === {json.dumps(text)})"
        )


@needs("chromium")
class BrowserCase(ConsoleCase):
    """Tests of a bucket with a page that root has signed in at."""

    def setUp(self) -> None:
        """Sign in."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.page = ObjectsBrowser(self.daemon).__enter__()
        self.addCleanup(self.page.__exit__, None, None, None)
        self.page.visit()
        self.page.signIn(ROOT.accessKey, ROOT.secretKey)

    def put(self, *names: str, body: bytes = b"some text", **more: Any) -> None:
        """Store objects."""
        for name in names:
            self.s3.put_object(Bucket=self.bucket, Key=name, Body=body, **more)

    def keys(self) -> list[str]:
        """Return the keys that there are."""
        found = self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [each["Key"] for each in found]

    def eventually(self, look: Callable[[], Any], wanted: Any) -> None:
        """Wait until something looks as wanted."""
        end = monotonic() + SECONDS
        while monotonic() < end:
            # May be an error at first. A module's own `suppress` would be taken by trial.
            with contextlib.suppress(ClientError):
                if look() == wanted:
                    return
            self.page.evaluate("new Promise((done) => setTimeout(done, 50))")
        self.assertEqual(look(), wanted)

    def waitKeys(self, *names: str) -> None:
        """Wait until the bucket has just these."""
        self.eventually(self.keys, sorted(names, key=str.encode))


@long("drives Chromium")
class ObjectListTests(BrowserCase):
    """The list."""

    def test_hostile(self) -> None:
        """Any name is shown as text, in the list and with its details, and is found by its link."""
        page = self.page
        self.put(*HOSTILE, "a//b", body=b"x")
        shown = {name: name for name in HOSTILE}
        shown["\u202etxt.exe"] = "\\u{202e}txt.exe"
        shown["\x01\x1b[31m\n"] = "\\u{1}\\u{1b}[31m\\u{a}"
        shown["ü\u200b😀"] = "ü\\u{200b}😀"
        page.show(self.bucket)
        page.waitRow("..")
        self.assertEqual(set(page.rows()), {*shown.values(), "a/"})
        for name in HOSTILE:
            page.show(self.bucket, object=name)
            page.wait("document.querySelector('.drawer .facts')")
            title = page.evaluate("document.querySelector('.drawer h2').title")
            self.assertEqual(title, shown[name])
            page.key("Escape")
            page.wait("!document.querySelector('.drawer')")
        page.show(self.bucket, prefix="a//")
        page.waitRow("b")

    def test_keyboard(self) -> None:
        """A folder is entered, an object opened, others selected and deleted, by keys alone."""
        page = self.page
        self.put(*(f"d/{number:03}" for number in range(5)), "e", "f")
        page.show(self.bucket)
        page.waitRow("d/")
        page.evaluate("document.querySelector('[role=grid]').focus()")
        page.key("Enter")
        page.waitRow("000")
        page.wait("document.activeElement.getAttribute('role') === 'grid'")
        page.key("End")
        page.key("Enter")
        page.wait("document.querySelector('.drawer h2')?.title === 'd/004'")
        page.key("Escape")
        page.wait("!document.querySelector('.drawer')")
        page.wait("document.activeElement.getAttribute('role') === 'grid'")
        page.key("Home")
        page.key(" ")
        page.key("ArrowDown")
        page.key("ArrowDown", 8)
        page.waitText("2 selected")
        page.key("Delete")
        page.wait("document.activeElement.innerText === 'Cancel'")
        page.key("Tab")
        page.key("Enter")
        self.waitKeys("d/000", "d/003", "d/004", "e", "f")
        page.wait("!document.querySelector('dialog')")
        page.wait("document.querySelectorAll('.listRow bdi').length === 3")
        page.evaluate("document.querySelector('[role=grid]').focus()")
        page.key("a", 2)
        page.waitText("3 selected")
        page.key("Escape")
        page.waitText("3 objects")
        page.key("Backspace")
        page.waitRow("e")

    def test_deleteFolders(self) -> None:
        """Whole folders are deleted by a job, once a name was typed."""
        page = self.page
        self.put("d/1", "d/2", "e/1", "f")
        page.show(self.bucket)
        page.waitRow("d/")
        page.evaluate("document.querySelector('#row-0 .pick').click()")
        page.press("Delete")
        page.wait("document.querySelector('dialog form button.danger').disabled")
        page.fill("dialog input", "d/")
        page.wait("!document.querySelector('dialog form button.danger').disabled")
        page.press("Delete")
        page.waitText("Deleted d/: 2 objects")
        self.waitKeys("e/1", "f")
        page.wait("document.querySelectorAll('.listRow bdi').length === 2")
        page.evaluate("document.querySelector('#row-0 .pick').click()")
        page.press("Select all below this folder")
        page.press("Delete")
        page.fill("dialog input", self.bucket)
        page.wait("!document.querySelector('dialog form button.danger').disabled")
        page.press("Delete")
        page.waitText("No objects here")
        self.waitKeys()


@long("drives Chromium")
class ObjectDetailsTests(BrowserCase):
    """One object."""

    def test_edit(self) -> None:
        """Type, metadata and tags are changed, and S3 has them."""
        page = self.page
        self.put("k", Metadata={"old": "1"})
        page.show(self.bucket, object="k", tab="tags")
        page.wait("document.querySelector('#part-metadata')?.innerText.includes('old')")
        self.assertIsNone(page.evaluate("document.querySelector('input[name=contentType]')"))
        page.evaluate("document.querySelector('#part-metadata .link').click()")
        page.fill("input[name=contentType]", "text/css")
        page.fill("#part-metadata .pair input:nth-of-type(2)", "2")
        page.press("Save type and metadata")
        page.waitText("The change is saved")
        page.wait("document.querySelector('.drawer .facts').textContent.includes('text/css')")
        page.evaluate("document.querySelector('#part-tags fieldset > button').click()")
        page.fill("#part-tags .pair input:nth-of-type(1)", "team")
        page.fill("#part-tags .pair input:nth-of-type(2)", "blue")
        page.press("Save tags")
        self.eventually(
            lambda: self.s3.get_object_tagging(Bucket=self.bucket, Key="k")["TagSet"],
            [{"Key": "team", "Value": "blue"}],
        )
        seen = self.s3.head_object(Bucket=self.bucket, Key="k")
        self.assertEqual((seen["ContentType"], seen["Metadata"]), ("text/css", {"old": "2"}))

    def test_versions(self) -> None:
        """A version is shown, made current again, and another deleted for good."""
        page = self.page
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        self.put("k", body=b"first")
        for number in range(101):
            self.put("k", body=b"%d" % number)
        self.put("k2", body=b"other")
        page.show(self.bucket, object="k", tab="versions")
        page.wait("document.querySelectorAll('#part-versions li').length === 100")
        page.press("Show more")
        page.wait("document.querySelectorAll('#part-versions li').length === 102")
        page.evaluate(
            "[...document.querySelectorAll('#part-versions button.small:not(.only)')]"
            ".at(-1).click()"
        )
        page.waitText("is restored")
        body = self.s3.get_object(Bucket=self.bucket, Key="k")["Body"].read()
        self.assertEqual(body, b"first")
        page.wait("document.querySelectorAll('#part-versions li').length === 100")
        page.evaluate("document.querySelector('#part-versions li .only:last-child').click()")
        page.wait("document.querySelector('dialog form')")
        page.evaluate("document.querySelector('dialog form .danger').click()")
        page.waitText("The version is deleted")
        body = self.s3.get_object(Bucket=self.bucket, Key="k")["Body"].read()
        self.assertEqual(body, b"100")

    def test_previews(self) -> None:
        """What can run a script is text or a picture, and runs none; a PDF is in a sandbox."""
        page = self.page
        script = b"<script>parent.ran = top.ran = 1; document.title = 'ran'</script><p>seen</p>"
        svg = (
            b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
            b"<script>top.ran = 1</script></svg>"
        )
        self.put("a.html", body=script, ContentType="text/html")
        self.put("b.svg", body=svg, ContentType="image/svg+xml")
        self.put("c.pdf", body=PDF, ContentType="application/pdf")
        self.put("d.bin", body=b"\0", ContentType="x/y")
        page.show(self.bucket, object="a.html", tab="preview")
        page.wait("document.querySelector('.preview pre')")
        text = page.evaluate("document.querySelector('.preview pre').textContent")
        self.assertEqual(text, script.decode())
        page.show(self.bucket, object="b.svg", tab="preview")
        page.wait("document.querySelector('.preview img')?.naturalWidth === 40")
        page.show(self.bucket, object="d.bin", tab="preview")
        page.waitText("cannot show the type x/y")
        page.show(self.bucket, object="c.pdf", tab="preview")
        page.wait("document.querySelector('.preview iframe')")
        viewer = "chrome-extension:"
        page.allowed.append(viewer)
        self.eventually(lambda: any(url.startswith(viewer) for url in page.problems()), True)
        self.assertIsNone(page.evaluate("window.ran || null"))

    def test_keysBesidePDF(self) -> None:
        """The viewer of a PDF, which takes the focus for its error, leaves the keys to the page."""
        page = self.page
        page.allowed.append("chrome-extension:")
        self.put("a.pdf", body=b"%PDF-1.4\nbroken", ContentType="application/pdf")
        page.show(self.bucket, object="a.pdf")
        page.wait("document.querySelector('.preview iframe')")
        page.evaluate("new Promise((done) => setTimeout(done, 1500))")
        self.assertEqual(page.evaluate("document.activeElement.tagName"), "H2")

    def test_share(self) -> None:
        """A link works without signing in, and says that only this machine finds it."""
        page = self.page
        self.put("a b/ü'")
        page.show(self.bucket, object="a b/ü'", tab="share")
        page.waitText("Only this machine can reach S3")
        page.choose("select[name=expires]", "604800")
        page.waitText("Everyone who has the link can read this object")
        page.press("Create link")
        page.wait("document.querySelector('dialog a[href=\"#/configuration?find=s3Url\"]')")
        page.waitText("Only this machine can reach S3")
        page.wait("document.activeElement.innerText.trim() === 'Copy link'")
        names = (
            "[...document.querySelectorAll('dialog button')].map((each) => each.innerText.trim())"
        )
        self.assertNotIn("Create link", page.evaluate(names))
        link = page.evaluate("document.querySelector('#link').textContent")
        self.assertIn("X-Amz-Expires=604800", link)
        with urlopen(link, timeout=20) as found:
            self.assertEqual(found.read(), b"some text")

    def test_shareWithoutS3(self) -> None:
        """Where S3 is off, sharing and the commands say so, and lead to where it is set."""
        data = ownDirectory("off") / "data"
        with makeDaemon(data) as daemon:
            s3 = botoClient(daemon.url("s3"))
            s3.create_bucket(Bucket="off")
            s3.put_object(Bucket="off", Key="a.txt", Body=b"text")
        off = makeDaemon(data, "--s3", "off")
        off._expect = ("admin",)
        with off, ObjectsBrowser(off) as page:
            page.visit()
            page.signIn(ROOT.accessKey, ROOT.secretKey)
            page.show("off", object="a.txt", tab="share")
            page.waitText("S3 is off in this daemon")
            page.wait("document.querySelector('dialog a[href=\"#/configuration?find=s3\"]')")
            made = "[...document.querySelectorAll('dialog button')].at(-1)"
            self.assertEqual(page.evaluate(f"{made}.innerText.trim()"), "Create link")
            self.assertTrue(page.evaluate(f"{made}.disabled"))
            page.evaluate("location.hash = '#/buckets/off/objects?object=a.txt'")
            page.wait("document.querySelector('.drawer a[href=\"#/configuration?find=s3\"]')")

    def test_customerKey(self) -> None:
        """An object with a client's key is neither shown nor fetched, and its page says why."""
        page = self.page
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes(range(32))}
        self.put("sealed.txt", **customer)
        self.put("own.txt", ServerSideEncryption="AES256")
        page.show(self.bucket, object="sealed.txt")
        page.waitText("encrypted with a key that only its owner has (SSE-C)")
        facts = "document.querySelector('.drawer .facts')?.innerText.includes({})"
        page.wait(facts.format("'SSE-C'"))
        buttons = "[...document.querySelectorAll('.drawerActions button')].map((b) => b.ariaLabel)"
        self.assertEqual(page.evaluate(buttons), ["Delete"])
        page.show(self.bucket, object="own.txt")
        page.wait(facts.format("'SSE-S3'"))
        page.waitText("some text")

    def test_snippets(self) -> None:
        """What is copied fetches just that object, whatever its name; no secret is in it."""
        page = self.page
        for name in (*HOSTILE, "--help", "file://x", "a//b"):
            self.put(name, body=name.encode())
            page.show(self.bucket, object=name, tab="code")
            page.wait(
                "document.querySelector('.drawer h2:not([data-seen])')"
                " && document.querySelector('#code-python')"
            )
            shown = page.evaluate(
                "(() => { document.querySelector('.drawer h2').dataset.seen = '1';"
                " return Object.fromEntries([...document.querySelectorAll('#part-code pre')]"
                ".map((each) => [each.id.slice(5), each.textContent])) })()"
            )
            self.assertNotIn(ROOT.secretKey, json.dumps(shown))
            self.runSnippets(name, shown)

    def runSnippets(self, name: str, shown: dict[str, str]) -> None:
        """Run those of which the programs are here, and read how a shell takes the others."""
        directory = Path(self.mktemp())
        directory.mkdir()
        pair = {"AWS_ACCESS_KEY_ID": ROOT.accessKey, "AWS_SECRET_ACCESS_KEY": ROOT.secretKey}
        with patch.dict(os.environ, pair):
            exec(shown["python"], {"open": lambda name, mode: (directory / name).open(mode)})
        self.assertEqual(self.onlyFile(directory), name.encode())
        words = subprocess.run(
            ["bash", "-c", "aws() { printf '%s\\0' \"$@\"; }; " + shown["aws"]],
            capture_output=True,
            check=True,
        ).stdout.split(b"\0")
        if name == "file://x":
            self.assertEqual(json.loads(words[7])["Key"], name)
        else:
            self.assertIn(f"--key={name}".encode(), words)
        if CURL:
            subprocess.run(
                ["bash", "-c", shown["curl"]],
                env={**os.environ, **pair},
                cwd=directory,
                check=True,
                capture_output=True,
            )
            self.assertEqual(self.onlyFile(directory), name.encode())

    def onlyFile(self, directory: Path) -> bytes:
        """Return what is in the one file of a directory, which is removed."""
        (path,) = directory.iterdir()
        body = path.read_bytes()
        path.unlink()
        return body


@long("drives Chromium")
class BucketSettingsTests(BrowserCase):
    """The forms of a bucket's settings."""

    def fresh(self, act: Callable[[], Any]) -> None:
        """Do something, after which there is a form that was not there before."""
        forms = "document.querySelectorAll('.card form, .card h3')"
        self.page.evaluate(f"for (const each of {forms}) each.dataset.old = '1'")
        act()
        self.page.wait(f"[...{forms}].some((each) => !each.dataset.old)")

    def open(self, name: str) -> None:
        """Open a section."""
        target = f"location.hash = '#/buckets/{self.bucket}?setting={name}'"
        self.fresh(lambda: self.page.evaluate(target))

    def save(self) -> None:
        """Save the form."""
        self.fresh(lambda: self.page.press("Save"))

    def confirm(self, label: str = "Save") -> str:
        """Save a change with a consequence, which is asked first; return the question."""
        self.page.press(label + "…")
        self.page.wait("document.querySelector('dialog[open] p')")
        asked: str = self.page.evaluate("document.querySelector('dialog[open] p').innerText")
        self.fresh(lambda: self.page.press(label))
        return asked

    def test_forms(self) -> None:
        """What forms save is what S3 has, and what they show again."""
        page, bucket = self.page, self.bucket
        self.open("versioning")
        page.press("Enable versions…")
        self.fresh(lambda: page.press("Enable versions"))
        status = self.s3.get_bucket_versioning(Bucket=bucket)["Status"]
        self.assertEqual(status, "Enabled")
        self.open("lock")
        page.choose("select[name=mode]", "GOVERNANCE")
        page.fill("input[name=period]", "3")
        self.assertIn("cannot be disabled", self.confirm("Enable object lock"))
        self.eventually(
            lambda: self.s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"][
                "Rule"
            ]["DefaultRetention"],
            {"Mode": "GOVERNANCE", "Days": 3},
        )
        self._encryption()
        self._lifecycle()
        self._cors()
        self.open("ownership")
        page.choose("select[name=ownership]", "ObjectWriter")
        self.assertIn("ACLs work again", self.confirm())
        self.open("acl")
        page.choose("select[name=acl]", "public-read")
        self.assertIn("without signing in", self.confirm())
        page.wait("document.querySelector('select[name=acl]')?.value === 'public-read'")
        grants = self.s3.get_bucket_acl(Bucket=bucket)["Grants"]
        self.assertEqual(sorted(each["Permission"] for each in grants), ["FULL_CONTROL", "READ"])
        self.open("publicAccessBlock")
        page.evaluate("document.querySelector('input[name=BlockPublicPolicy]').click()")
        self.save()
        block = self.s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
        self.assertEqual([name for name, on in block.items() if on], ["BlockPublicPolicy"])
        self._tags()
        self._policy()

    def _encryption(self) -> None:
        page, bucket = self.page, self.bucket
        self.open("encryption")
        page.wait("document.querySelector('.card .now')?.innerText.includes('None')")
        page.choose("select[name=encryption]", "aws:kms")
        page.wait("document.querySelector('input[name=masterKey]')")
        page.fill("input[name=masterKey]", "team")
        page.evaluate("document.querySelector('input[name=blocks]').click()")
        self.save()
        default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "team"}
        blocked = {"EncryptionType": ["SSE-C"]}
        made = {"ApplyServerSideEncryptionByDefault": default, "BlockedEncryptionTypes": blocked}
        self.assertEqual(self._encryptionRules(), [made])
        page.wait("document.querySelector('.card .now')?.innerText.includes('master key team')")
        page.choose("select[name=encryption]", "AES256")
        self.save()
        made["ApplyServerSideEncryptionByDefault"] = {"SSEAlgorithm": "AES256"}
        self.assertEqual(self._encryptionRules(), [made])
        page.choose("select[name=encryption]", "")
        self.assertIn("stored without encryption", self.confirm())
        self.assertEqual(self._encryptionRules(), [{"BlockedEncryptionTypes": blocked}])
        page.evaluate("document.querySelector('input[name=blocks]').click()")
        self.save()
        with self.assertRaises(ClientError) as caught:
            self.s3.get_bucket_encryption(Bucket=bucket)
        code = caught.exception.response["Error"]["Code"]
        self.assertEqual(code, "ServerSideEncryptionConfigurationNotFoundError")

    def _encryptionRules(self) -> Any:
        """Return the rules of the configuration of encryption."""
        found = self.s3.get_bucket_encryption(Bucket=self.bucket)
        return found["ServerSideEncryptionConfiguration"]["Rules"]

    def _lifecycle(self) -> None:
        page, bucket = self.page, self.bucket
        other = {"ID": "kept", "Status": "Enabled", "Filter": {"Tag": {"Key": "a", "Value": "b"}}}
        rule = {**other, "Expiration": {"Days": 9}}
        self.s3.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": [rule]}
        )
        self.open("lifecycle")
        page.press("Add rule")
        page.fill("input[name=id2]", "old <logs>")
        page.fill("input[name=prefix2]", "logs/")
        page.fill("input[name=expire2]", "30")
        page.fill("input[name=abort2]", "2")
        asked = self.confirm()
        self.assertIn("logs/: deleted after 30 days", asked)
        self.assertIn("older versions keep it", asked)
        rules = self.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        made = {
            "ID": "old <logs>",
            "Status": "Enabled",
            "Filter": {"Prefix": "logs/"},
            "Expiration": {"Days": 30},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        }
        self.assertEqual(sorted(rules, key=lambda each: each["ID"]), [rule, made])
        page.wait("document.querySelector('input[name=expire2]')?.value === '30'")

    def _cors(self) -> None:
        page, bucket = self.page, self.bucket
        self.open("cors")
        page.press("Add rule")
        page.wait("document.querySelector('textarea[name=AllowedOrigin1]')")
        page.fill("textarea[name=AllowedOrigin1]", "https://a.example\nhttps://b.example")
        page.fill("input[name=maxAge1]", "60")
        self.save()
        (rule,) = self.s3.get_bucket_cors(Bucket=bucket)["CORSRules"]
        self.assertEqual(
            (rule["AllowedOrigins"], rule["AllowedMethods"], rule["MaxAgeSeconds"]),
            (["https://a.example", "https://b.example"], ["GET"], 60),
        )

    def _tags(self) -> None:
        page = self.page
        self.open("tags")
        page.press("Add")
        page.fill(".pair input:nth-of-type(1)", "team")
        page.fill(".pair input:nth-of-type(2)", "blue")
        self.save()
        tags = self.s3.get_bucket_tagging(Bucket=self.bucket)["TagSet"]
        self.assertEqual(tags, [{"Key": "team", "Value": "blue"}])

    def _replace(self, old: str, new: str) -> None:
        """Replace a word of the document, as a user who types."""
        self.page.evaluate(
            "(() => { const field = document.querySelector('textarea');"
            f" field.value = field.value.replace('{old}', '{new}');"
            " field.dispatchEvent(new InputEvent('input', {bubbles: true})) })()"
        )

    def _policy(self) -> None:
        page, bucket = self.page, self.bucket
        self.open("policy")
        page.press("Only over TLS")
        page.wait("document.querySelector('textarea').value.includes('SecureTransport')")
        page.waitText("No one may do anything without TLS")
        page.fill("textarea", "{")
        page.waitText("This is not JSON")
        self.assertTrue(self.isDisabled("Save"))
        page.press("Discard changes")
        page.press("One account may list and read")
        self._replace("ACCOUNT", "colleague")
        page.press("Save")
        page.wait("document.querySelector('input[name=names]')?.ariaInvalid === 'true'")
        page.waitText("Invalid principal in policy")
        self._replace("colleague", "root")
        self.save()
        policy = json.loads(self.s3.get_bucket_policy(Bucket=bucket)["Policy"])
        self.assertEqual(policy["Statement"][0]["Effect"], "Allow")

    def isDisabled(self, label: str) -> bool:
        """Return whether a button cannot be pressed."""
        found: bool = self.page.evaluate(
            "[...document.querySelectorAll('main button')]"
            f".find((each) => each.innerText.trim() === {json.dumps(label)}).disabled"
        )
        return found

    def test_unchanged(self) -> None:
        """What has not changed cannot be saved; what has changed back cannot, either."""
        page = self.page
        self.s3.put_bucket_tagging(
            Bucket=self.bucket, Tagging={"TagSet": [{"Key": "team", "Value": "blue"}]}
        )
        for name in ("lifecycle", "cors", "tags", "publicAccessBlock", "ownership", "acl"):
            self.open(name)
            self.assertTrue(self.isDisabled("Save"), name)
        self.open("tags")
        for value, isSame in (("red", False), ("blue", True)):
            page.fill(".pair input:nth-of-type(2)", value)
            page.evaluate("new Promise(requestAnimationFrame)")
            self.assertEqual(self.isDisabled("Save"), isSame)
        page.press("Add")
        page.fill(".pair:nth-of-type(2) input:nth-of-type(1)", "team")
        page.press("Save")
        page.wait("document.querySelectorAll('.pair input[aria-invalid=true]').length")
        page.waitText("The name team comes twice")

    def test_opens(self) -> None:
        """A change that opens the bucket asks first, and is not made where that is refused."""
        page, bucket = self.page, self.bucket
        blocks = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy")
        whole = dict.fromkeys((*blocks, "RestrictPublicBuckets"), True)
        self.s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=whole)

        def block() -> Any:
            found = self.s3.get_public_access_block(Bucket=bucket)
            return found["PublicAccessBlockConfiguration"]["BlockPublicPolicy"]

        self.open("publicAccessBlock")
        page.evaluate("document.querySelector('input[name=BlockPublicPolicy]').click()")
        page.press("Save…")
        page.waitText("A policy can then make this bucket public.")
        page.press("Cancel")
        self.assertTrue(block())
        self.confirm()
        self.assertFalse(block())

    def test_lockNeedsVersions(self) -> None:
        """Object lock of a bucket without versions is not offered, and says what it lacks."""
        self.open("lock")
        self.page.waitText("Requires versions.")
        self.assertTrue(self.isDisabled("Enable object lock…"))

    def test_fieldOfRefusal(self) -> None:
        """A refusal of the server stands at the field that it concerns, and nowhere else."""
        page = self.page
        self.s3.put_bucket_ownership_controls(
            Bucket=self.bucket,
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        )
        self.open("acl")
        page.choose("select[name=acl]", "public-read")
        page.press("Save…")
        page.wait("document.querySelector('dialog[open]')")
        page.press("Save")
        page.wait("document.querySelector('main .field .help.bad')?.innerText.includes('ACLs')")
        self.assertEqual(page.evaluate("document.querySelectorAll('.problem').length"), 0)
