"""The keys that reach a bucket, by the API."""

import json
from typing import Any

from tests.console.fixture import ConsoleCase


class BucketKeyTests(ConsoleCase):
    """What keys may do in a bucket."""

    def make(self, **values: Any) -> str:
        """Issue a key."""
        made = self.call("POST", "keys", values)
        self.assertEqual(made.status, 200, made)
        name: str = made.json["accessKey"]
        self.addCleanup(self.call, "DELETE", f"keys/{name}")
        return name

    def reach(self, bucket: str, query: str = "") -> dict[str, Any]:
        """Return the rows of the keys, by key."""
        page = self.call("GET", f"buckets/{bucket}/keys{query}").json
        return {each["accessKey"]: each for each in page["items"]}

    def test_reach(self) -> None:
        """Each key is there with what it may do and why; one that reaches nothing is not."""
        bucket = self.makeBucket()
        account = f"other-of-{bucket}"
        whole = self.make(account="root")
        narrow = self.make(account="root", policy="readonly", bucket=bucket, prefix="2026/*")
        disabled = self.make(account="root", disabled=True)
        elsewhere = self.make(account="root", bucket="another-*")
        guest = self.make(account=account)
        stranger = self.make(account=f"no-{account}")
        found = self.reach(bucket)
        for name in (disabled, elsewhere, guest, stranger):
            self.assertNotIn(name, found)
        rows = [(found[name]["by"], found[name]["may"]) for name in (whole, narrow)]
        every = ["list", "read", "write", "delete", "admin"]
        self.assertEqual(rows, [("owner", every), ("owner", ["list", "read"])])
        self.assertEqual((found[narrow]["keyPattern"], found[narrow]["patterns"]), ("2026/*", []))
        statements = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
                "Action": "s3:GetObject",
                "Resource": f"arn:aws:s3:::{bucket}/shared/*",
            },
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:DeleteObject",
                "Resource": f"arn:aws:s3:::{bucket}/*",
            },
        ]
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statements}))
        found = self.reach(bucket)
        row = found[guest]
        self.assertEqual(
            (row["by"], row["may"], row["patterns"]), ("policy", ["read"], ["shared/*"])
        )
        self.assertEqual(found[whole]["may"], ["list", "read", "write", "admin"])
        self.assertNotIn(stranger, found)

    def test_surrogate(self) -> None:
        """A resource with half of a surrogate pair, which JSON can escape, is shown without it."""
        bucket = self.makeBucket()
        account = f"half-of-{bucket}"
        guest = self.make(account=account)
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/a\ud800*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [statement]}))
        self.assertEqual(self.reach(bucket)[guest]["patterns"], ["a?*"])

    def test_users(self) -> None:
        """The key of a user is there with what the user's policies could allow, not as an owner."""
        bucket, account = self.makeBucket(), "root"

        def change(operation: str, **fields: Any) -> Any:
            answer = self.call("POST", f"identities/{operation}", {"account": account, **fields})
            self.assertIn(answer.status, (200, 204), answer)
            return answer.json if answer.body else None

        name = f"user-of-{bucket}"
        change("CreateUser", userName=name)
        key = change("CreateAccessKey", userName=name)["accessKey"]["accessKeyId"]
        self.addCleanup(change, "DeleteUser", userName=name)
        self.addCleanup(change, "DeleteAccessKey", userName=name, accessKeyId=key)
        self.assertNotIn(key, self.reach(bucket))
        statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        change("PutUserPolicy", userName=name, policyName="p", policyDocument=document)
        self.addCleanup(change, "DeleteUserPolicy", userName=name, policyName="p")
        row = self.reach(bucket)[key]
        self.assertEqual((row["by"], row["may"], row["note"]), ("user", ["read"], name))

    def test_pages(self) -> None:
        """Keys come in pages, for those who may list keys."""
        bucket = self.makeBucket()
        names = {self.make(account="root") for _ in range(3)}
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = self.call("GET", f"buckets/{bucket}/keys?limit=1&after={after}").json
            self.assertLessEqual(len(page["items"]), 1)
            seen += [each["accessKey"] for each in page["items"]]
            after = page["next"]
        self.assertEqual(seen, sorted(set(seen)))
        self.assertLessEqual(names, set(seen))
        plain = self.issueKey("plain")
        self.assertEqual(self.call("GET", f"buckets/{bucket}/keys", account=plain).status, 403)
        self.assertEqual(self.call("GET", "buckets/no-such-bucket/keys").status, 404)
