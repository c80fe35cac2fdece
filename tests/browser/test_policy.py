"""The policy of a bucket in Chromium: sentences, the form of its statements, and its JSON."""

import json
from typing import Any

from tests.browser.test_objects import BrowserCase
from tests.support.selection import long

_TEXT = "document.querySelector('#policyText').value"


@long("drives Chromium")
class PolicyTests(BrowserCase):
    """The tab of access."""

    def setUp(self) -> None:
        """Open it."""
        super().setUp()
        self.openPolicy()

    def openPolicy(self) -> None:
        """Open the policy."""
        self.page.evaluate("location.hash = '#/buckets'")
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}/access'")
        self.page.wait("document.querySelector('#policyText')")

    def document(self) -> Any:
        """Return the document that the JSON shows."""
        return json.loads(self.page.evaluate(_TEXT))

    def stored(self) -> Any:
        """Return the policy that S3 has."""
        return json.loads(self.s3.get_bucket_policy(Bucket=self.bucket)["Policy"])

    def granted(self) -> str:
        """Return the sentences of what the policy grants."""
        found: str = self.page.evaluate("document.querySelector('.notice.accent').innerText")
        return " ".join(found.split())

    def arn(self, key: str = "") -> str:
        """Name a resource."""
        return f"arn:aws:s3:::{self.bucket}{key and '/' + key}"

    def statement(self, **more: Any) -> dict[str, Any]:
        """Return a statement that lets all read a folder."""
        return {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": self.arn("public/*"),
            **more,
        }

    def put(self, *statements: Any) -> None:  # type: ignore[override]
        """Store a policy, and show it."""
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        self.s3.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(policy))
        self.openPolicy()
        self.page.wait(f"{_TEXT} !== ''")

    def test_build(self) -> None:
        """A statement is made by the form, shown as JSON and as a sentence, and asked about."""
        page = self.page
        self.assertIn("No statement lets in another account", self.granted())
        page.press("Add statement")
        page.choose("select[name=who]", "anyone")
        page.fill("input[name=where]", "public/")
        page.fill("input[name=sid]", "PublicRead")
        page.wait(f"{_TEXT}.includes('PublicRead')")
        wanted = {"Sid": "PublicRead", **self.statement()}
        self.assertEqual(self.document()["Statement"], [wanted])
        self.assertIn("Anyone may read public/*.", self.granted())
        page.press("Save…")
        page.waitText("Anyone may read public/*, without signing in.")
        page.press("Save")
        self.eventually(lambda: self.stored()["Statement"], [wanted])

    def test_inStep(self) -> None:
        """A change of the JSON is in the form at once, and one of the form in the JSON."""
        page = self.page
        self.put(self.statement())
        page.evaluate("document.querySelector('[aria-label^=Edit]').click()")
        page.wait("document.querySelector('input[name=where]').value === 'public/'")
        changed = json.dumps({"Statement": [self.statement(Resource=self.arn("other/*"))]})
        page.fill("#policyText", changed)
        page.evaluate("document.querySelector('[aria-label^=Edit]').click()")
        page.wait("document.querySelector('input[name=where]')?.value === 'other/'")
        self.assertIn("Anyone may read other/*.", self.granted())
        page.choose("select[name=condition]", "from")
        page.fill("input[name=value]", "10.0.0.0/8")
        page.wait(f"{_TEXT}.includes('10.0.0.0/8')")
        condition = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
        self.assertEqual(self.document()["Statement"][0]["Condition"], condition)
        self.assertIn("Anyone may read other/* from 10.0.0.0/8.", self.granted())

    def test_kept(self) -> None:
        """What the form cannot show is said in a sentence, not offered as fields, and kept."""
        page = self.page
        odd = self.statement(
            Sid="Odd",
            Effect="Deny",
            Principal={"AWS": ["root", "arn:aws:iam::root:root"]},
            Action=["s3:GetObject", "s3:PutObjectTagging"],
            Condition={"StringNotLike": {"aws:UserAgent": "a*"}},
        )
        self.put(odd, self.statement())
        page.waitText("The form does not show all of this statement")
        self.assertIn(
            "Account root, Account root may not use s3:GetObject, s3:PutObjectTagging public/*"
            " when StringNotLike aws:UserAgent a*.",
            self.granted(),
        )
        edits = "[...document.querySelectorAll('[aria-label^=Edit]')].map((each) => each.ariaLabel)"
        self.assertEqual(page.evaluate(edits), ["Edit Statement 2"])
        page.evaluate("document.querySelector('[aria-label^=Edit]').click()")
        page.fill("input[name=where]", "x/")
        page.press("Save…")
        page.wait("document.querySelector('dialog[open]')")
        page.press("Save")
        self.eventually(lambda: self.stored()["Statement"][1]["Resource"], self.arn("x/*"))
        self.assertEqual(self.stored()["Statement"][0], odd)

    def test_link(self) -> None:
        """A link to a statement opens it."""
        self.put(self.statement(Sid="One"), self.statement(Sid="Two", Resource=self.arn("b/*")))
        self.page.evaluate("location.hash = '#/buckets'")
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}/access?statement=2'")
        self.page.wait("document.querySelector('input[name=sid]')?.value === 'Two'")

    def test_fields(self) -> None:
        """A refusal stands at the field of its statement; what is missing is not even sent."""
        page = self.page
        self.put(self.statement())
        page.press("Add statement")
        wrong = "document.querySelector('[name={}][aria-invalid=true] ~ .help').innerText"
        page.press("Save")
        page.wait(wrong.format("names") + ".includes('Enter an account')")
        page.fill("input[name=names]", "nobody-here")
        page.press("Save")
        page.wait(wrong.format("names") + ".includes('Invalid principal')")
        page.fill("input[name=names]", "root")
        page.choose("select[name=condition]", "from")
        page.fill("input[name=value]", "nowhere")
        page.press("Save")
        page.wait(wrong.format("value") + ".includes('nowhere')")
        self.assertEqual(page.evaluate("document.querySelectorAll('.problem').length"), 0)
        self.assertEqual(len(self.stored()["Statement"]), 1)
        page.fill("input[name=value]", "127.0.0.0/8")
        page.press("Save")
        self.eventually(lambda: len(self.stored()["Statement"]), 2)

    def test_refusalAtOnce(self) -> None:
        """A refusal stays that comes with the drawing of what it refuses, before any frame."""
        page = self.page
        self.put(self.statement())
        page.wait("document.querySelector('.statements')")
        press = (
            "[...document.querySelectorAll('button')]"
            ".find((each) => each.innerText.trim() === '{}').click()"
        )
        page.evaluate(
            f"(async () => {{ {press.format('Add statement')};"
            " for (let count = 0; count < 10; count += 1) await null;"
            f" {press.format('Save')};"
            " await new Promise((done) => requestAnimationFrame(() => setTimeout(done))) })()"
        )
        wrong = "document.querySelector('[name=names][aria-invalid=true] ~ .help').innerText"
        page.wait(wrong + ".includes('Enter an account')")

    def test_check(self) -> None:
        """An access by a key is checked against the policy that is saved."""
        page = self.page
        self.put(self.statement(Effect="Deny", Principal={"AWS": "root"}))
        key = self.issueKey("root").accessKey
        self.openPolicy()
        page.choose("select[name=checkKey]", key)
        page.fill("input[name=checkObject]", "public/a")
        page.press("Check")
        page.waitText(f"Refused: statement 1 of the policy of {self.bucket} denies s3:GetObject")
