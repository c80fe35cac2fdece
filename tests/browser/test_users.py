"""Users, groups and policies in Chromium, against a daemon."""

import json
from typing import Any

from tests.browser.test_objects import BrowserCase
from tests.support.selection import long

DOCUMENT = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
)

HOSTILE = "<img src=x onerror=alert(1)>"


@long("drives Chromium")
class UserPageTests(BrowserCase):
    """The page."""

    def setUp(self) -> None:
        """Have an account with a key."""
        super().setUp()
        self.account = f"of-{self.bucket}"
        self.issueKey(self.account)

    def change(self, operation: str, **fields: Any) -> Any:
        """Perform an operation of IAM as root."""
        answer = self.call("POST", f"identities/{operation}", {"account": self.account, **fields})
        self.assertIn(answer.status, (200, 204), answer)
        return answer.json if answer.body else None

    def read(self, operation: str, **query: str) -> Any:
        """Read what is stored."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return self.call("GET", f"identities/{operation}?account={self.account}&{text}").json

    def show(self, view: str) -> None:
        """Go to a view of the account."""
        self.page.evaluate(f"location.hash = '#/users{view}?account={self.account}'")

    def press(self, label: str) -> None:
        """Press the button with a label."""
        button = (
            "[...document.querySelectorAll('main button, dialog button')].findLast((each) =>"
            f" (each.ariaLabel || each.textContent).trim() === {json.dumps(label)})"
        )
        self.page.wait(f"{button} && !{button}.disabled")
        self.page.evaluate(f"{button}.click()")

    def fill(self, selector: str, text: str) -> None:
        """Put a text in a field."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.page.wait(found)
        self.page.evaluate(
            f"{found}.value = {json.dumps(text)};"
            f" {found}.dispatchEvent(new Event('input', {{bubbles: true}}))"
        )

    def test_user(self) -> None:
        """A user is made, gets a key whose secret is shown once, and a policy by the editor."""
        self.change("CreateGroup", groupName="readers")
        self.change("CreatePolicy", policyName="Mine", policyDocument=DOCUMENT, description=HOSTILE)
        self.show("")
        self.press("New user…")
        self.fill("dialog input", "ann")
        self.press("Create")
        self.page.wait("document.querySelector('.drawer h2')?.textContent === 'ann'")
        self.press("New key")
        self.page.wait("document.querySelector('#secretKey')")
        key = self.page.evaluate("document.querySelector('#accessKey').textContent")
        self.press("I have stored it")
        uses = "document.querySelector('.drawer .plain li code + small')?.textContent"
        self.page.wait(f"{uses} === 'The key has never been used.'")
        keys = self.read("ListAccessKeys", userName="ann")["accessKeyMetadata"]
        self.assertEqual([each["accessKeyId"] for each in keys], [key])
        self.press("New inline policy…")
        self.fill("dialog input", "own")
        self.fill("dialog textarea", '{"Version": oops}')
        self.press("Save")
        self.page.wait("document.querySelector('dialog textarea').ariaInvalid === 'true'")
        self.fill("dialog textarea", DOCUMENT)
        self.press("Save")
        self.page.wait("!document.querySelector('dialog')")
        found = self.read("GetUserPolicy", userName="ann", policyName="own")
        self.assertEqual(found["policyDocument"], DOCUMENT)

    def test_status(self) -> None:
        """A user is disabled after a question, and enabled again."""
        self.change("CreateUser", userName="ann")
        self.show("/users/ann")
        self.press("Disable…")
        self.page.wait("document.querySelector('dialog')")
        self.press("Disable")
        self.page.wait("document.querySelector('.drawer .facts')?.innerText.includes('Disabled')")
        self.assertEqual(self.read("GetUser", userName="ann")["user"]["status"], "Inactive")
        self.press("Enable")
        self.page.wait("!document.querySelector('.drawer .facts')?.innerText.includes('Disabled')")
        self.assertIsNone(self.read("GetUser", userName="ann")["user"].get("status"))

    def test_hostile(self) -> None:
        """Tags and descriptions are shown as text."""
        tags = [{"key": "a", "value": "javascript: alert"}]
        self.change("CreateUser", userName="ann", tags=tags)
        self.show("/users/ann")
        self.page.wait("document.querySelector('.drawer .facts')")
        text = self.page.evaluate("document.querySelector('.drawer .facts').innerText")
        self.assertIn("a=javascript: alert", text)
        self.assertIn(f"arn:aws:iam::{self.account}:user/ann", text)
