"""Access keys by the API."""

import json
from contextlib import closing
from typing import Any

from storagegate.storage.embedded.keyadmin import openForTools
from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT, ToolFailed
from tests.wire.s3.fixture import eventually, runKeys


class NewKeyTests(ConsoleCase):
    """Keys that are issued."""

    def test_reuse(self) -> None:
        """A key of a removed account that a bucket names needs C{reuse}; others do not."""
        bucket = self.makeBucket("reuse")
        account = f"account-of-{bucket}"
        made = self.call("POST", "keys", {"account": account}).json["accessKey"]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statement}))
        other = self.call("POST", "keys", {"account": account, "disabled": True})
        self.assertEqual(self.call("DELETE", f"keys/{made}").status, 204)
        again = self.call("POST", "keys", {"account": account})
        self.assertEqual(again.status, 200)
        for each in (other, again):
            self.assertEqual(self.call("DELETE", f"keys/{each.json['accessKey']}").status, 204)
        refused = self.call("POST", "keys", {"account": account})
        self.assertEqual(refused.status, 409)
        self.assertEqual(
            refused.json,
            {
                "error": "FAILED_PRECONDITION",
                "message": f"The removed account {account} is still named in a policy or an ACL"
                f" of: {bucket}",
                "details": {"buckets": [bucket]},
            },
        )
        self.assertEqual(self.call("POST", "keys", {"account": f"new-{account}"}).status, 200)
        issued = self.call("POST", "keys", {"account": account, "reuse": True})
        self.assertEqual((issued.status, issued.json["account"]), (200, account))

    def test_ownKey(self) -> None:
        """A key without a role cannot issue itself again with other rights, or a second key."""
        account = f"account-of-{self.makeName()}"
        made = self.call("POST", "keys", {"account": account}).json["accessKey"]
        plain = self.issueKey(account, "--policy", "readonly")
        for more in ({"parent": f"key/{made}"}, {"parent": made}, {"user": "ann"}, {}):
            body = {
                "account": account,
                "accessKey": plain.accessKey,
                "secretKey": "another-secret-of-this-key",
                "reuse": True,
                **more,
            }
            self.assertEqual(self.call("POST", "keys", body, plain).status, 403, more)
        shown = self.call("GET", f"keys/{plain.accessKey}", None, plain)
        self.assertEqual((shown.status, shown.json["policy"]), (200, "readonly"))

    def test_policyWithoutParent(self) -> None:
        """A key that nothing bounds has no session policy, which would not be evaluated."""
        account = f"account-of-{self.makeName()}"
        answer = self.call("POST", "keys", {"account": account, "sessionPolicy": "{}"})
        self.assertEqual((answer.status, answer.json["error"]), (400, "INVALID_ARGUMENT"))
        self.assertEqual(answer.json["details"], {"field": "sessionPolicy"})
        file = self.makeDirectory() / "own.json"
        file.write_text('{"Statement": []}')
        arguments = (*self.daemon.storeArguments, "--account", account, "--policy-file", file)
        with self.assertRaises(ToolFailed):
            runKeys("create", *arguments)
        self.assertEqual(self.call("GET", f"keys?find={account}").json["items"], [])

    def test_taken(self) -> None:
        """A service key does not take the name of another key."""
        account = f"account-of-{self.makeName()}"
        parent, taken = (
            self.call("POST", "keys", {"account": account}).json["accessKey"] for _ in range(2)
        )
        body = {
            "account": account,
            "accessKey": taken,
            "secretKey": "another-secret-of-this-key",
            "parent": parent,
        }
        answer = self.call("POST", "keys", body)
        self.assertEqual((answer.status, answer.json["error"]), (409, "EntityAlreadyExists"))
        self.assertEqual(self.call("GET", f"keys/{taken}").json["parent"], "")

    def revision(self, account: str) -> int:
        """Return the revision of an account."""
        with closing(openForTools(str(self.daemon.data / "catalog.sqlite"))) as catalog:
            found = catalog.identities().get(account)
        return 0 if found is None else found.revision

    def test_keyEdits(self) -> None:
        """Each edit of a key is a change of its account, which exists no longer than the key."""
        account = f"account-of-{self.makeName()}"
        made = self.call("POST", "keys", {"account": account}).json["accessKey"]
        arguments = (*self.daemon.storeArguments, "--access-key", made)
        seen = [self.revision(account)]
        self.assertEqual(self.call("PATCH", f"keys/{made}", {"note": "n"}).status, 200)
        seen.append(self.revision(account))
        runKeys("edit", *arguments, "--policy", "readonly")
        seen.append(self.revision(account))
        self.assertEqual(seen, sorted(set(seen)))
        shown = self.call("PATCH", f"keys/{made}", {"disabled": True}).json
        self.assertEqual((shown["note"], shown["policy"]), ("n", "readonly"))
        self.assertIn(account, self.call("GET", "accounts").json["accounts"])
        self.assertEqual(self.call("DELETE", f"keys/{made}").status, 204)
        self.assertNotIn(account, self.call("GET", "accounts").json["accounts"])

    def test_userKeyEdits(self) -> None:
        """Each edit of a user's key is a change of its account, with which IAM's do not mix."""
        account = f"account-of-{self.makeName()}"

        def change(operation: str, **fields: str) -> Any:
            body = {"account": account, **fields}
            answer = self.call("POST", f"identities/{operation}", body)
            self.assertIn(answer.status, (200, 204), answer)
            return answer.json if answer.body else None

        change("CreateUser", userName="ann")
        made = [change("CreateAccessKey", userName="ann")["accessKey"] for _ in range(2)]
        first, second = (each["accessKeyId"] for each in made)
        arguments = (*self.daemon.storeArguments, "--access-key")
        seen = [self.revision(account)]
        for edit in (
            lambda: self.call("PATCH", f"keys/{first}", {"note": "n"}),
            lambda: self.call("DELETE", f"keys/{first}"),
            lambda: runKeys("edit", *arguments, second, "--note", "n"),
            lambda: runKeys("revoke", *arguments, second),
        ):
            edit()
            seen.append(self.revision(account))
        self.assertEqual(seen, sorted(set(seen)))
        left = {first, second}
        keys = f"keys?find={account}"

        def areRevoked() -> bool:
            items = self.call("GET", keys).json["items"]
            return left.isdisjoint(each["accessKey"] for each in items)

        self.assertTrue(eventually(areRevoked))

    def test_rootServiceKey(self) -> None:
        """Only root issues a service key of the root pair, or changes one."""
        admin = self.issueKey(f"account-of-{self.makeName()}", "--role", "admin")
        body = {"account": "root", "parent": ROOT.accessKey}
        self.assertEqual(self.call("POST", "keys", body, admin).status, 403)
        made = self.call("POST", "keys", body).json["accessKey"]
        below = self.call("POST", "keys", {"account": "root", "parent": made}, admin)
        self.assertEqual(below.status, 403)
        for change in ({"newSecret": True}, {"policy": "readonly"}):
            refused = self.call("PATCH", f"keys/{made}", change, admin)
            self.assertEqual(refused.status, 403, change)
        self.assertEqual(self.call("PATCH", f"keys/{made}", {"disabled": True}).status, 200)
        refused = self.call("PATCH", f"keys/{made}", {"newSecret": True}, admin)
        self.assertEqual(refused.status, 403)


class ReachTests(ConsoleCase):
    """The objects that a key would reach."""

    def test_counts(self) -> None:
        """Objects are counted by both patterns; an account without buckets reaches none."""
        bucket = self.makeBucket()
        for name in ("2026/a", "2026/b", "2027/c"):
            self.s3.put_object(Bucket=bucket, Key=name, Body=b"12345")
        body = {"account": "root", "bucket": bucket, "prefix": "2026/*"}
        found = self.call("POST", "reach", body).json
        self.assertEqual((found["objects"], found["bytes"], found["isMore"]), (2, 10, False))
        self.assertEqual(found["buckets"], [bucket])
        self.assertIn("root", found["accounts"])
        nothing = self.call("POST", "reach", {"account": "unknown-here"}).json
        self.assertEqual((nothing["owned"], nothing["objects"]), ([], 0))
        self.assertEqual(self.call("POST", "reach", body, self.issueKey("plain")).status, 403)


class JudgementTests(ConsoleCase):
    """Whether a key allows an access."""

    def test_listIsNotRead(self) -> None:
        """The right to list does not count as one to read, for any object or a missing one."""
        bucket = self.makeBucket("judge")
        account = f"account-of-{bucket}"
        key = self.call("POST", "keys", {"account": account}).json["accessKey"]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statement}))
        self.s3.put_object(Bucket=bucket, Key="present", Body=b"x")
        for access, name, isAllowed in (
            ("list", "", True),
            ("read", "", False),
            ("read", "present", False),
            ("read", "missing", False),
        ):
            asked = {"access": access, "bucket": bucket, "key": name}
            judged = self.call("POST", f"keys/{key}/judge", asked)
            self.assertEqual((judged.status, judged.json["allowed"]), (200, isAllowed), asked)
        statement.update(Action="s3:GetObject", Resource=f"arn:aws:s3:::{bucket}/*")
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statement}))
        for access, isAllowed in (("list", False), ("read", True)):
            asked = {"access": access, "bucket": bucket}
            judged = self.call("POST", f"keys/{key}/judge", asked)
            self.assertEqual((judged.status, judged.json["allowed"]), (200, isAllowed), asked)

    def test_statement(self) -> None:
        """A deletion is not a write, and the statement that denies it is named to its account."""
        bucket = self.makeBucket("named")
        key = self.call("POST", "keys", {"account": "root"}).json["accessKey"]
        statements = [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": action,
                "Resource": f"arn:aws:s3:::{bucket}/*",
            }
            for action in ("s3:GetObjectAcl", "s3:DeleteObject")
        ]
        statements[1]["Sid"] = "KeepAll"
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statements}))
        self.s3.put_object(Bucket=bucket, Key="a", Body=b"x")
        asked = {"bucket": bucket, "key": "a"}
        self.assertTrue(self.judge(key, access="write", **asked)["allowed"])
        text = f"statement KeepAll of the policy of {bucket} denies s3:DeleteObject"
        refused = {"allowed": False, "why": text, "statement": 2}
        self.assertEqual(self.judge(key, access="delete", **asked), refused)
        other = self.issueKey("elsewhere")
        found = self.call(
            "POST", f"keys/{other.accessKey}/judge", {"access": "delete", **asked}, other
        )
        self.assertEqual(found.json["statement"], 0)
        self.assertNotIn("KeepAll", found.json["why"])

    def judge(self, accessKey: str, **asked: str) -> dict[str, object]:
        """Check an access."""
        found: dict[str, object] = self.call("POST", f"keys/{accessKey}/judge", asked).json
        return found
