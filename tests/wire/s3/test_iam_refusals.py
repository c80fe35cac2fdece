"""Every operation of IAM: for a caller without rights, and with wrong input."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import fields

from storagegate.objects.identities.table import OPERATIONS
from storagegate.s3.iam.parameters import amazonName
from tests.support.clients import Account
from tests.support.s3signer import Answer, Outgoing, Signer
from tests.wire.s3.test_iam import FORM, FULL, TRUST, IAMCase, policy

HOSTILE = "<a>&\"'\x01\u202e\n"

VALUES = {
    "userName": "ann",
    "groupName": "readers",
    "roleName": "role",
    "policyName": "policy",
    "policyArn": FULL,
    "policyDocument": policy("s3:GetObject"),
    "assumeRolePolicyDocument": TRUST,
    "accessKeyId": "AKIA0000000000000000",
    "status": "Active",
    "versionId": "v1",
    "description": "text",
    "url": "https://id.example.com",
    "clientID": "client",
    "openIDConnectProviderArn": "arn:aws:iam::acme:oidc-provider/id.example.com",
    "tags": {"member.1.Key": "a", "member.1.Value": "b"},
    "tagKeys": {"member.1": "a"},
    "thumbprintList": {"member.1": "0" * 40},
    "actionNames": {"member.1": "s3:GetObject"},
    "policyInputList": {"member.1": policy("s3:GetObject")},
    "policySourceArn": "arn:aws:iam::acme:user/ann",
}
"""Valid values of required fields."""


def parametersOf(kind: Any) -> dict[str, str]:
    """Return the required parameters of an operation, with valid values."""
    found: dict[str, str] = {}
    for field in fields(kind):
        if field.required:
            name, value = amazonName(field.name), VALUES[field.name]
            if isinstance(value, str):
                found[name] = value
            else:
                found |= {f"{name}.{part}": text for part, text in value.items()}
    return found


class RefusalTests(IAMCase):
    """What IAM refuses."""

    def perform(self, name: str, parameters: dict[str, str], account: Account) -> Answer:
        """Send a call."""
        form = {"Action": name, "Version": "2010-05-08", **parameters}
        outgoing = Outgoing("POST", "/", FORM, urlencode(form).encode())
        return self.send(Signer(self.host, account, service="iam").sign(outgoing))

    def assertCode(self, answer: Answer, status: int, code: str, why: Any) -> None:
        """Check the error of a call."""
        self.assertEqual((answer.status, answer.code), (status, code), (why, answer.body))

    def test_withoutRights(self) -> None:
        """A user without policies, and a key without a role, are refused every operation."""
        plain = self.issueKey(self.account)
        user = self.makeUser("nobody")
        for name, kind in OPERATIONS.items():
            for account in (plain, user):
                answer = self.perform(name, parametersOf(kind), account)
                self.assertCode(answer, 403, "AccessDenied", name)

    def test_required(self) -> None:
        """Each required parameter is required."""
        for name, kind in OPERATIONS.items():
            whole = parametersOf(kind)
            for left in {each.partition(".")[0] for each in whole}:
                fewer = {n: v for n, v in whole.items() if n.partition(".")[0] != left}
                answer = self.perform(name, fewer, self.admin)
                self.assertCode(answer, 400, "ValidationError", (name, left))

    def wrong(self, kind: Any) -> Iterator[tuple[str, dict[str, str]]]:
        """Give the parameters of an operation with one wrong value each."""
        whole = parametersOf(kind)
        for field in fields(kind):
            name = amazonName(field.name)
            others = {n: v for n, v in whole.items() if n.partition(".")[0] != name}
            text = str(field.type)
            if "tuple" in text:
                part = ".Key" if "Tag" in text else ""
                values = [f"{name}.member.1{part}", f"{name}.member.x", f"{name}.1"]
                more = {f"{name}.member.1.Value": HOSTILE} if part else {}
                for each in values:
                    yield name, {**others, **more, each: HOSTILE}
            else:
                yield name, {**others, name: HOSTILE}
                if field.name not in ("description", "serviceName"):
                    yield name, {**others, name: "x" * 140_000}

    def test_wrong(self) -> None:
        """Each parameter with a wrong value is 400, and the text of it is never markup."""
        codes = ("ValidationError", "MalformedPolicyDocument", "LimitExceeded")
        for name, kind in OPERATIONS.items():
            for parameter, parameters in self.wrong(kind):
                if parameter == "ServiceName":
                    continue
                answer = self.perform(name, parameters, self.admin)
                self.assertIn(answer.code, codes, (name, parameter, answer.body[:500]))
                self.assertNotIn(b"<a>", answer.body)
                self.assertNotIn(b"\x01", answer.body)
        self.assertNotIn("\x01", self.daemon.log[self._logStart :])

    def test_absent(self) -> None:
        """Each operation on an identity that does not exist is 404."""
        for name, kind in OPERATIONS.items():
            parameters = parametersOf(kind)
            if not parameters or name.startswith(("Create", "GetAccessKeyLastUsed")):
                continue
            if name == "SimulateCustomPolicy":
                # It names no identity.
                continue
            if "PolicySourceArn" in parameters:
                parameters["PolicySourceArn"] = f"arn:aws:iam::{self.account}:user/ann"
            if "PolicyArn" in parameters and len(parameters) == 1:
                parameters["PolicyArn"] = f"arn:aws:iam::{self.account}:policy/none"
            if name in ("TagPolicy", "UntagPolicy") or "PolicyVersion" in name:
                parameters["PolicyArn"] = f"arn:aws:iam::{self.account}:policy/none"
            answer = self.perform(name, parameters, self.admin)
            self.assertCode(answer, 404, "NoSuchEntity", name)
