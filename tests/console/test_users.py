"""Users, groups and policies by the API."""

import json
from typing import Any

from tests.console.fixture import ConsoleCase
from tests.support.clients import Account

DOCUMENT = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
)


class UserTests(ConsoleCase):
    """IAM's operations as JSON."""

    def setUp(self) -> None:
        """Have an account, and a key without a role in it."""
        super().setUp()
        self.account = self.makeBucket("account")
        self.plain = self.issueKey(self.account)

    def change(self, operation: str, status: int = 200, **fields: Any) -> Any:
        """Perform a change in the account as root."""
        answer = self.call("POST", f"identities/{operation}", {"account": self.account, **fields})
        self.assertEqual(answer.status, status, answer)
        return answer.json if answer.body else None

    def test_operations(self) -> None:
        """A change answers as IAM does, a read shows it, and a change without an answer is 204."""
        made = self.change("CreateUser", userName="Ann", path="/a/")["user"]
        self.assertEqual(made["arn"], f"arn:aws:iam::{self.account}:user/a/Ann")
        self.change("PutUserPolicy", 204, userName="ann", policyName="p", policyDocument=DOCUMENT)
        key = self.change("CreateAccessKey", userName="ann")["accessKey"]
        self.assertTrue(key["secretAccessKey"])
        query = f"?account={self.account}&userName=ann"
        found = self.call("GET", f"identities/GetUserPolicy{query}&policyName=p").json
        self.assertEqual(found["policyDocument"], DOCUMENT)
        listed = self.call("GET", f"identities/ListUsers?account={self.account}").json["users"]
        self.assertIn("Ann", [user["userName"] for user in listed])
        self.assertIn(self.account, self.call("GET", "accounts").json["accounts"])

    def test_simulation(self) -> None:
        """A simulation, whose fields are lists, is posted."""
        self.change("CreateUser", userName="ann")
        self.change("PutUserPolicy", 204, userName="ann", policyName="p", policyDocument=DOCUMENT)
        fields = {
            "policySourceArn": f"arn:aws:iam::{self.account}:user/ann",
            "actionNames": ["s3:GetObject", "s3:PutObject"],
            "contextEntries": [{"contextKeyName": "s3:prefix", "contextKeyValues": ["a"]}],
        }
        found = self.change("SimulatePrincipalPolicy", **fields)["evaluationResults"]
        self.assertEqual([each["evalDecision"] for each in found], ["allowed", "implicitDeny"])
        wrong = self.change("SimulatePrincipalPolicy", 400, **{**fields, "actionNames": ["s3:x"]})
        self.assertEqual(wrong["error"], "InvalidInput")
        self.assertEqual(self.call("GET", "identities/SimulateCustomPolicy").status, 400)

    def test_refused(self) -> None:
        """Unknown operations and fields, and values that IAM refuses, are refused with a reason."""
        self.assertEqual(self.change("Nonsense", 404)["error"], "NOT_FOUND")
        self.assertEqual(self.change("ListUsers", 404)["error"], "NOT_FOUND")
        for fields in ({"user": "x"}, {}, {"userName": 1}, {"userName": "x", "tags": ["a"]}):
            self.assertEqual(self.change("CreateUser", 400, **fields)["error"], "INVALID_ARGUMENT")
        self.assertEqual(self.change("CreateUser", 400, userName="<b>")["error"], "ValidationError")
        self.assertEqual(self.change("DeleteUser", 404, userName="x")["error"], "NoSuchEntity")
        self.assertEqual(self.call("GET", "identities/CreateUser?userName=x").status, 404)
        self.assertEqual(self.call("GET", "identities/ListUsers?userName=x").status, 400)

    def test_rights(self) -> None:
        """A key without a role reads and changes nothing; an auditor reads every account."""
        body = {"userName": "x"}
        for fields in (body, {**body, "account": "root"}):
            answer = self.call("POST", "identities/CreateUser", fields, self.plain)
            self.assertEqual((answer.status, answer.json["error"]), (403, "PERMISSION_DENIED"))
        self.assertEqual(self.call("GET", "identities/ListUsers", None, self.plain).status, 403)
        self.assertEqual(self.call("GET", "accounts", None, self.plain).status, 403)
        auditor = self.issueKey("elsewhere", "--role", "auditor")
        path = f"identities/ListUsers?account={self.account}"
        self.assertEqual(self.call("GET", path, None, auditor).status, 200)
        fields = {**body, "account": self.account}
        self.assertEqual(self.call("POST", "identities/CreateUser", fields, auditor).status, 403)

    def test_requestTags(self) -> None:
        """The tags of a request are those of C{aws:RequestTag}, as at the S3 listener."""
        condition = {"StringEquals": {"aws:RequestTag/team": "red"}}
        rule = {"Effect": "Deny", "Action": "iam:*", "Resource": "*", "Condition": condition}
        every = {"Effect": "Allow", "Action": "iam:*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [rule, every]})
        self.change("CreateUser", userName="tagger")
        self.change(
            "PutUserPolicy", 204, userName="tagger", policyName="p", policyDocument=document
        )
        made = self.change("CreateAccessKey", userName="tagger")["accessKey"]
        pair = Account(made["accessKeyId"], made["secretAccessKey"])
        for team, status in (("red", 403), ("blue", 204)):
            body = {"userName": "tagger", "tags": [{"key": "team", "value": team}]}
            answer = self.call("POST", "identities/TagUser", body, pair)
            self.assertEqual(answer.status, status, team)
