"""The rights of users over IAM itself: what a user with few rights cannot gain."""

import json
from typing import Any

from botocore.exceptions import ClientError

from tests.console.gatewayfixture import send
from tests.support.clients import Account
from tests.wire.s3.fixture import eventually
from tests.wire.s3.test_iam import FULL, IAMCase, policy

READ_IAM = "arn:aws:iam::aws:policy/IAMReadOnlyAccess"


class RightsTests(IAMCase):
    """Users that administer."""

    def arn(self, resource: str) -> str:
        """Return an ARN of the account."""
        return f"arn:aws:iam::{self.account}:{resource}"

    def assertDenied(self, call: Any, **arguments: Any) -> None:
        """Check that a call is refused for lack of a right."""
        self.assertRefused(403, "AccessDenied", call, **arguments)

    def service(self, account: Account, *documents: str) -> Account:
        """Issue a service key of a key, with an own policy."""
        body: dict[str, Any] = {"account": self.account, "parent": account.accessKey}
        if documents:
            body["sessionPolicy"] = documents[0]
        made = send(self.daemon, "POST", "keys", body).json
        return Account(made["accessKey"], made["secretKey"])

    def test_readOnly(self) -> None:
        """A user with IAMReadOnlyAccess reads everything and changes nothing."""
        reader = self.client(self.makeUser("reader"))
        self.assertDenied(reader.list_roles)
        self.iam.attach_user_policy(UserName="reader", PolicyArn=READ_IAM)
        self.assertEqual(reader.list_roles()["Roles"], [])
        self.assertEqual(reader.get_user()["User"]["UserName"], "reader")
        self.assertIn("Users", reader.get_account_summary()["SummaryMap"])
        for call, arguments in (
            (reader.create_user, {"UserName": "x"}),
            (reader.attach_user_policy, {"UserName": "reader", "PolicyArn": FULL}),
            (reader.create_access_key, {}),
            (reader.delete_user, {"UserName": "reader"}),
        ):
            self.assertDenied(call, **arguments)

    def test_group(self) -> None:
        """The policy of a group gives its users a right at once, and takes it when they leave."""
        user = self.client(self.makeUser("ann"))
        self.iam.create_group(GroupName="readers")
        self.iam.put_group_policy(
            GroupName="readers", PolicyName="p", PolicyDocument=policy("iam:ListUsers")
        )
        self.assertDenied(user.list_users)
        self.iam.add_user_to_group(GroupName="readers", UserName="ann")
        self.assertTrue(user.list_users()["Users"])
        self.iam.put_user_policy(
            UserName="ann",
            PolicyName="deny",
            PolicyDocument=policy("iam:*", effect="Deny"),
        )
        self.assertDenied(user.list_users)
        self.iam.delete_user_policy(UserName="ann", PolicyName="deny")
        self.iam.remove_user_from_group(GroupName="readers", UserName="ann")
        self.assertDenied(user.list_users)

    def test_ownKeys(self) -> None:
        """A user that may only create its own keys gets no right of another user."""
        own = policy("iam:CreateAccessKey", resource=self.arn("user/ann"))
        self.makeUser("boss", policy("iam:*", "s3:*"))
        ann = self.makeUser("ann", own)
        iam = self.client(ann)
        key = self.makeKey("ann", iam)
        for user in ("boss", self.admin.accessKey):
            self.assertDenied(iam.create_access_key, UserName=user)
        again = self.client(key)
        self.assertDenied(again.list_users)
        self.assertDenied(again.put_user_policy, UserName="ann", PolicyName="p", PolicyDocument=own)
        self.assertDenied(again.attach_user_policy, UserName="ann", PolicyArn=FULL)
        self.assertDenied(self.client(key, "s3").list_buckets)

    def test_withoutAccount(self) -> None:
        """An ARN without an account names the account of the identity."""
        own = "arn:aws:iam:::user/ann"
        ann = self.makeUser("ann", policy("iam:*", resource=own))
        self.makeUser("bob", policy("iam:*"), policy("iam:GetUser", effect="Deny", resource=own))
        iam = self.client(ann)
        self.assertEqual(iam.get_user(UserName="ann")["User"]["UserName"], "ann")
        self.assertRefused(403, "AccessDenied", iam.get_user, UserName="bob")
        bob = self.client(self.makeKey("bob"))
        self.assertRefused(403, "AccessDenied", bob.get_user, UserName="ann")
        bob.get_user(UserName="bob")

    def test_path(self) -> None:
        """A right on one path reaches no identity of another, nor one that moves there."""
        helper = self.client(
            self.makeUser("helper", policy("iam:*", resource=self.arn("user/staff/*")))
        )
        helper.create_user(UserName="ann", Path="/staff/")
        self.assertDenied(helper.create_user, UserName="bob")
        self.assertDenied(helper.create_user, UserName="bob", Path="/staffing/")
        self.assertDenied(helper.update_user, UserName="ann", NewPath="/")
        helper.update_user(UserName="ann", NewPath="/staff/a/")
        self.assertDenied(helper.update_user, UserName="helper", NewPath="/staff/")
        self.assertDenied(
            helper.put_user_policy,
            UserName="helper",
            PolicyName="p",
            PolicyDocument=policy("iam:*"),
        )
        self.assertDenied(
            helper.delete_access_key,
            UserName=self.admin.accessKey,
            AccessKeyId=self.admin.accessKey,
        )

    def test_operatorKey(self) -> None:
        """A user with all rights over IAM cannot disable or delete the key of an administrator."""
        boss = self.client(self.makeUser("boss", policy("iam:*")))
        named = {"UserName": self.admin.accessKey, "AccessKeyId": self.admin.accessKey}
        self.assertDenied(boss.delete_access_key, **named)
        self.assertDenied(boss.update_access_key, Status="Inactive", **named)
        key = boss.create_access_key(UserName=self.admin.accessKey)["AccessKey"]
        made = self.client(Account(key["AccessKeyId"], key["SecretAccessKey"]))
        self.assertDenied(made.list_users)

    def test_serviceKeys(self) -> None:
        """A key that a service key makes is bound by it, also in a chain, and to its own user."""
        boss = self.makeUser("boss", policy("iam:*", "s3:*"))
        self.makeUser("other", policy("iam:*", "s3:*"))
        narrow = self.service(boss, policy("iam:CreateAccessKey", "iam:ListAccessKeys"))
        iam = self.client(narrow)
        self.assertTrue(eventually(lambda: self.isKnown(iam)))
        self.assertDenied(iam.list_users)
        self.assertDenied(iam.create_access_key, UserName="other")
        child = self.client(self.makeKey("boss", iam))
        self.assertDenied(child.list_users)
        self.assertDenied(child.attach_user_policy, UserName="boss", PolicyArn=FULL)
        grandchild = self.makeKey("boss", child)
        self.assertDenied(self.client(grandchild).list_users)
        self.assertDenied(self.client(grandchild, "s3").list_buckets)
        # Without its parent a service key is none.
        self.iam.delete_access_key(UserName="boss", AccessKeyId=boss.accessKey)
        self.assertTrue(eventually(lambda: not self.isKnown(self.client(grandchild))))

    def isKnown(self, iam: Any) -> bool:
        """Return whether the key of a client authenticates."""
        try:
            iam.get_account_summary()
        except ClientError as error:
            return bool(error.response["Error"]["Code"] != "InvalidClientTokenId")
        return True

    def test_otherAccount(self) -> None:
        """An administrator of one account reaches no identity of another."""
        self.makeUser("ann")
        other = self.client(
            self.issueKey(self.makeName("other").replace("-", ""), "--role", "admin")
        )
        self.assertRefused(404, "NoSuchEntity", other.get_user, UserName="ann")
        made = self.iam.create_policy(PolicyName="p", PolicyDocument=policy("s3:*"))["Policy"]
        self.assertRefused(404, "NoSuchEntity", other.get_policy, PolicyArn=made["Arn"])
        other.create_user(UserName="ann")
        self.assertRefused(
            404, "NoSuchEntity", other.attach_user_policy, UserName="ann", PolicyArn=made["Arn"]
        )

    def test_tagKeys(self) -> None:
        """A policy can limit the keys of the tags that a user adds to identities, or removes."""
        named = {"ForAllValues:StringEquals": {"aws:TagKeys": ["team"]}}
        self.makeUser("bob")
        own = self.client(self.makeUser("ann", policy("iam:*", Condition=named)))
        for key, call in (("team", own), ("cost", self.iam)):
            call.tag_user(UserName="bob", Tags=[{"Key": key, "Value": "x"}])
        for keys in (["cost"], ["team", "cost"]):
            tags = [{"Key": key, "Value": "x"} for key in keys]
            self.assertRefused(403, "AccessDenied", own.tag_user, UserName="bob", Tags=tags)
            self.assertRefused(403, "AccessDenied", own.untag_user, UserName="bob", TagKeys=keys)
        own.untag_user(UserName="bob", TagKeys=["team"])
        found = self.iam.list_user_tags(UserName="bob")["Tags"]
        self.assertEqual([each["Key"] for each in found], ["cost"])

    def test_place(self) -> None:
        """The API of the console gives the place of an error in a policy."""
        self.iam.create_user(UserName="ann")
        statements = [
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"},
            {"Effect": "Permit", "Action": "s3:GetObject", "Resource": "*"},
        ]
        body = {
            "account": self.account,
            "userName": "ann",
            "policyName": "p",
            "policyDocument": json.dumps({"Version": "2012-10-17", "Statement": statements}),
        }
        answer = send(self.daemon, "POST", "identities/PutUserPolicy", body)
        self.assertEqual((answer.status, answer.json["error"]), (400, "MalformedPolicyDocument"))
        self.assertEqual(answer.json["details"], {"statement": 2})

    def test_trust(self) -> None:
        """Policies and trust policies of another form are refused."""
        wrong = (
            "no JSON",
            "[]",
            json.dumps(
                {"Version": "2010-10-17", "Statement": json.loads(policy("s3:*"))["Statement"]}
            ),
            json.dumps({"Version": "2012-10-17"}),
            policy("s3:*", Principal={"AWS": "*"}),
            policy("s3:*", Sid=1),
            policy(),
        )
        self.iam.create_user(UserName="ann")
        for document in wrong:
            self.assertRefused(
                400,
                "MalformedPolicyDocument",
                self.iam.put_user_policy,
                UserName="ann",
                PolicyName="p",
                PolicyDocument=document,
            )
            self.assertRefused(
                400,
                "MalformedPolicyDocument",
                self.iam.create_policy,
                PolicyName="p",
                PolicyDocument=document,
            )
        for document in ("no JSON", policy("sts:AssumeRole"), policy("s3:*", Principal="*")):
            self.assertRefused(
                400,
                "MalformedPolicyDocument",
                self.iam.create_role,
                RoleName="r",
                AssumeRolePolicyDocument=document,
            )
