"""STS and temporary keys, with the clients of its SDK."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session as BotocoreSession

from tests.support.clients import REGION, ROOT, Account
from tests.support.contention import Stopwatch
from tests.support.s3signer import Outgoing, Signer
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, runCommand
from tests.wire.s3.forms import formRequest
from tests.wire.s3.test_iam import FULL, IAMCase, policy


def trust(principal: Any, action: Any = "sts:AssumeRole", **more: Any) -> str:
    """Return a trust policy of one statement."""
    statement = {"Effect": "Allow", "Action": action, "Principal": principal, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


class STSCase(IAMCase):
    """Tests of STS in an account with a user and a bucket."""

    def setUp(self) -> None:
        """Make a user that may read and assume roles, and a bucket with an object."""
        super().setUp()
        self.ann = self.makeUser("ann", policy("s3:Get*", "s3:List*"), policy("sts:AssumeRole"))
        self.sts = self.client(self.ann, "sts")
        self.bucket = self.makeName()
        owner = self.client(self.admin, "s3")
        owner.create_bucket(Bucket=self.bucket)
        owner.put_object(Bucket=self.bucket, Key="k", Body=b"held")

    def makeRole(self, document: str | None = None, name: str = "ops", **more: Any) -> str:
        """Create a role with all rights of S3; return its ARN."""
        made = self.iam.create_role(
            RoleName=name,
            AssumeRolePolicyDocument=document
            or trust({"AWS": f"arn:aws:iam::{self.account}:root"}),
            **more,
        )
        self.iam.attach_role_policy(RoleName=name, PolicyArn=FULL)
        arn: str = made["Role"]["Arn"]
        return arn

    def using(self, made: dict[str, Any], service: str = "s3", signature: str | None = None) -> Any:
        """Return a client with temporary credentials."""
        found = made["Credentials"]
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=found["AccessKeyId"],
            aws_secret_access_key=found["SecretAccessKey"],
            aws_session_token=found["SessionToken"],
            region_name=REGION,
            config=Config(retries={"total_max_attempts": 1}, signature_version=signature),
        )

    def assume(self, arn: str, sts: Any = None, **more: Any) -> dict[str, Any]:
        """Assume a role."""
        more.setdefault("RoleSessionName", "work")
        made: dict[str, Any] = (sts or self.sts).assume_role(RoleArn=arn, **more)
        return made

    def assertNotAssumed(
        self, status: int, code: str, arn: str, sts: Any = None, **more: Any
    ) -> None:
        """Check that a role cannot be assumed."""
        self.assertRefused(status, code, lambda: self.assume(arn, sts, **more))

    def assertMay(self, s3: Any, *, read: bool, write: bool) -> None:
        """Check what a client may do in the bucket."""
        for may, call in (
            (read, lambda: s3.get_object(Bucket=self.bucket, Key="k")),
            (write, lambda: s3.put_object(Bucket=self.bucket, Key="new", Body=b"x")),
        ):
            if may:
                call()
            else:
                self.assertRefused(403, "AccessDenied", call)


class CallerIdentityTests(STSCase):
    """C{GetCallerIdentity}."""

    def test_callers(self) -> None:
        """Each caller is named: the root pair, a key of an operator, a user and sessions."""
        user = f"arn:aws:iam::{self.account}:user/ann"
        found = self.sts.get_caller_identity()
        self.assertEqual((found["Account"], found["Arn"]), (self.account, user))
        self.assertRegex(found["UserId"], r"\AAIDA")
        root = self.client(ROOT, "sts").get_caller_identity()
        self.assertEqual((root["UserId"], root["Arn"]), ("root", "arn:aws:iam::root:root"))
        admin = self.client(self.admin, "sts").get_caller_identity()
        self.assertEqual(admin["UserId"], self.admin.accessKey)
        session = self.using(self.sts.get_session_token(), "sts").get_caller_identity()
        self.assertEqual((session["Arn"], session["UserId"]), (user, found["UserId"]))
        made = self.assume(self.makeRole())
        role = self.using(made, "sts").get_caller_identity()
        self.assertEqual(role["Arn"], f"arn:aws:sts::{self.account}:assumed-role/ops/work")
        self.assertEqual(role["Arn"], made["AssumedRoleUser"]["Arn"])
        self.assertEqual(role["UserId"], made["AssumedRoleUser"]["AssumedRoleId"])

    def test_refused(self) -> None:
        """A wrong secret, a wrong token and no credentials are refused with codes of STS."""
        wrong = self.client(Account(self.ann.accessKey, "wrong"), "sts")
        self.assertRefused(403, "SignatureDoesNotMatch", wrong.get_caller_identity)
        made = self.sts.get_session_token()
        made["Credentials"]["SessionToken"] += "A"
        bad = self.using(made, "sts")
        self.assertRefused(403, "InvalidClientTokenId", bad.get_caller_identity)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        for action, status, code in (
            ("GetCallerIdentity", 403, b"MissingAuthenticationToken"),
            ("AssumeRole", 403, b"MissingAuthenticationToken"),
            ("DecodeAuthorizationMessage", 501, b"NotImplemented"),
        ):
            call = f"Action={action}&Version=2011-06-15".encode()
            answer = self.send(Outgoing("POST", "/", form, call))
            self.assertEqual(answer.status, status)
            self.assertIn(code, answer.body)


class SessionTests(STSCase):
    """Sessions of keys."""

    def test_rights(self) -> None:
        """A session of a user has the rights of the user, and calls neither IAM nor STS."""
        made = self.sts.get_session_token(DurationSeconds=900)
        left = made["Credentials"]["Expiration"] - datetime.now(UTC)
        self.assertLess(abs(left - timedelta(seconds=900)), timedelta(seconds=30))
        self.assertMay(self.using(made), read=True, write=False)
        sts = self.using(made, "sts")
        self.assertRefused(403, "AccessDenied", sts.get_session_token)
        self.assertNotAssumed(403, "AccessDenied", "arn:xxx:xxx:xxx:xxxx", sts)
        self.iam.put_user_policy(
            UserName="ann", PolicyName="all", PolicyDocument=policy("iam:*", "s3:*")
        )
        self.assertMay(self.using(made), read=True, write=True)
        iam = self.using(made, "iam")
        self.assertRefused(403, "AccessDenied", iam.create_access_key, UserName="ann")
        self.assertRefused(403, "AccessDenied", iam.list_users)

    def test_limits(self) -> None:
        """A length out of range is refused."""
        for seconds in (899, 43_201):
            call = f"Action=GetSessionToken&Version=2011-06-15&DurationSeconds={seconds}"
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            outgoing = Outgoing("POST", "/", form, call.encode())
            signer = Signer(self.host, self.ann, service="sts")
            answer = self.send(signer.sign(outgoing))
            self.assertEqual(answer.status, 400)
            self.assertIn(b"<Code>ValidationError</Code>", answer.body)

    def test_withoutRole(self) -> None:
        """Without a role, a session has the rights of the caller, narrowed by its policy."""
        arn = "arn:xxx:xxx:xxx:xxxx"
        self.assertMay(self.using(self.assume(arn)), read=True, write=False)
        narrow = self.assume(arn, Policy=policy("s3:PutObject", "s3:ListBucket"))
        self.assertMay(self.using(narrow), read=False, write=False)
        sts = self.client(self.admin, "sts")
        self.assertMay(self.using(self.assume(arn, sts)), read=True, write=True)
        narrow = self.assume(arn, sts, Policy=policy("s3:PutObject"))
        self.assertMay(self.using(narrow), read=False, write=True)
        self.assertNotAssumed(400, "ValidationError", arn, Tags=[{"Key": "a", "Value": "b"}])

    def test_limitedKeys(self) -> None:
        """A session of a key with limits has them too, and such a key assumes no role."""
        limited = self.issueKey(self.account, "--policy", "readonly")
        sts = self.client(limited, "sts")
        session = self.using(self.assume("arn:xxx:xxx:xxx:xxxx", sts, Policy=policy("s3:*")))
        self.assertMay(session, read=True, write=False)
        self.assertNotAssumed(403, "AccessDenied", self.makeRole(), sts)

    def test_policySizes(self) -> None:
        """A policy that is too large or malformed is refused."""
        arn = "arn:xxx:xxx:xxx:xxxx"
        large = policy("s3:Get*", Sid="x" * 2048)
        self.assertNotAssumed(400, "PackedPolicyTooLarge", arn, Policy=large)
        self.assertNotAssumed(400, "MalformedPolicyDocument", arn, Policy="{}")
        fits = policy("s3:Get*", Sid="x" * (2048 - len(policy("s3:Get*", Sid=""))))
        made = self.assume(arn, Policy=fits)
        self.assertGreater(made["PackedPolicySize"], 40)
        self.assertMay(self.using(made), read=True, write=False)

    def test_deletedKey(self) -> None:
        """A session ends within a second when its key is disabled, and so does its URL."""
        made = self.sts.get_session_token()
        s3 = self.using(made)
        url = s3.generate_presigned_url("get_object", {"Bucket": self.bucket, "Key": "k"})
        target = url.removeprefix(self.endpoint)
        self.assertEqual(self.send(Outgoing("GET", target)).body, b"held")
        self.iam.update_access_key(
            UserName="ann", AccessKeyId=self.ann.accessKey, Status="Inactive"
        )
        self.assertAnswer(self.send(Outgoing("GET", target)), 400, "InvalidToken")
        self.assertRefused(400, "InvalidToken", s3.get_object, Bucket=self.bucket, Key="k")

    def test_presigned(self) -> None:
        """A URL of either version needs the token that it was signed with."""
        made = self.sts.get_session_token()
        for version in ("s3", "s3v4"):
            url = self.using(made, signature=version).generate_presigned_url(
                "get_object", {"Bucket": self.bucket, "Key": "k"}
            )
            target = url.removeprefix(self.endpoint)
            self.assertEqual(self.send(Outgoing("GET", target)).body, b"held")
            named = re.search("[?&]x-amz-security-token=([^&]*)", target, re.IGNORECASE)
            assert named is not None
            head, rest = target[: named.start(1)], target[named.start(1) :]
            removed = target.replace(named[0][1:], "x-id=GetObject")
            self.assertAnswer(self.send(Outgoing("GET", removed)), 403, "InvalidAccessKeyId")
            changed = Outgoing("GET", f"{head}A{rest}")
            self.assertAnswer(self.send(changed), 400, "InvalidToken")

    def test_form(self) -> None:
        """A form of either version carries the token as a field, which its policy covers."""
        made = self.client(self.admin, "sts").get_session_token()
        for version in ("s3", "s3v4"):
            s3 = self.using(made, signature=version)
            post = s3.generate_presigned_post(self.bucket, "formed")
            call = formRequest(self.bucket, post["fields"], b"by form")
            self.assertEqual(self.send(call).status, 204)
            found = self.using(made).get_object(Bucket=self.bucket, Key="formed")
            self.assertEqual(found["Body"].read(), b"by form")
            fields = {k: v for k, v in post["fields"].items() if k != "x-amz-security-token"}
            call = formRequest(self.bucket, fields, b"by form")
            self.assertAnswer(self.send(call), 403, "InvalidAccessKeyId")

    def test_upload(self) -> None:
        """A session uploads in parts, and in signed chunks."""
        s3 = self.using(self.client(self.admin, "sts").get_session_token())
        named = {"Bucket": self.bucket, "Key": "parts"}
        upload = s3.create_multipart_upload(**named)["UploadId"]
        part = s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"part")
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        s3.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": parts})
        self.assertEqual(s3.get_object(**named)["Body"].read(), b"part")


class RoleTests(STSCase):
    """C{AssumeRole}."""

    def test_role(self) -> None:
        """A session has the rights of the role and of its policy, under both forms of the ARN."""
        arn = self.makeRole(Path="/x/")
        for each in (arn, arn.replace(self.account, "")):
            self.assertMay(self.using(self.assume(each)), read=True, write=True)
        narrow = self.assume(arn, Policy=policy("s3:GetObject"))
        self.assertMay(self.using(narrow), read=True, write=False)
        for wrong in (arn.replace("/x/", "/"), f"arn:aws:iam::{self.account}:role/none"):
            self.assertNotAssumed(403, "AccessDenied", wrong)
        for wrong in (arn.replace(":role/", ":user/"), "arn:aws:s3:::bucket/key/and/more"):
            self.assertNotAssumed(400, "ValidationError", wrong)

    def test_trust(self) -> None:
        """The trust policy and the caller's own policies decide."""
        named = trust({"AWS": f"arn:aws:iam::{self.account}:user/ann"})
        other = trust({"AWS": f"arn:aws:iam::{self.account}:user/bob"})
        account = trust({"AWS": self.account})
        arn = self.makeRole(other)
        for document, own, isAllowed in (
            (other, "Allow", False),
            (named, "Allow", True),
            (account, "Allow", True),
            (named, "", True),
            (account, "", False),
            (named, "Deny", False),
            (trust({"AWS": "*"}, "sts:TagSession"), "Allow", False),
            (trust({"AWS": "*"}, ["sts:*"]), "", True),
            (trust("*", Effect="Deny"), "Allow", False),
        ):
            self.iam.update_assume_role_policy(RoleName="ops", PolicyDocument=document)
            self.iam.delete_user_policy(UserName="ann", PolicyName="p1")
            self.iam.put_user_policy(
                UserName="ann",
                PolicyName="p1",
                PolicyDocument=policy("sts:AssumeRole", resource=arn, effect=own or "Allow")
                if own
                else policy("s3:GetObject"),
            )
            if isAllowed:
                self.assume(arn)
            else:
                self.assertNotAssumed(403, "AccessDenied", arn)

    def test_accounts(self) -> None:
        """Across accounts, the trust policy and the caller's own policies must allow it."""
        arn = self.makeRole()
        other = self.issueKey(self.makeName("other").replace("-", ""))
        stranger = self.client(other, "sts")
        self.assertNotAssumed(403, "AccessDenied", arn, stranger)
        owner = stranger.get_caller_identity()["Account"]
        for document in (trust({"AWS": owner}), trust({"AWS": "*"})):
            self.iam.update_assume_role_policy(RoleName="ops", PolicyDocument=document)
            self.assertMay(self.using(self.assume(arn, stranger)), read=True, write=True)

    def test_externalId(self) -> None:
        """A trust policy can require a text that the caller knows."""
        condition = {"StringEquals": {"sts:ExternalId": "secret-7"}}
        arn = self.makeRole(trust({"AWS": "*"}, Condition=condition))
        self.assertNotAssumed(403, "AccessDenied", arn)
        self.assertNotAssumed(403, "AccessDenied", arn, ExternalId="other")
        self.assume(arn, ExternalId="secret-7")

    def test_tags(self) -> None:
        """Session tags are tags of the principal, and need their own permission."""
        arn = self.makeRole(trust({"AWS": "*"}), Tags=[{"Key": "team", "Value": "blue"}])
        tags = [{"Key": "team", "Value": "red"}]
        self.iam.put_user_policy(UserName="ann", PolicyName="p1", PolicyDocument=policy("sts:*"))
        self.assertNotAssumed(403, "AccessDenied", arn, Tags=tags)
        allowed = trust(
            {"AWS": "*"},
            ["sts:AssumeRole", "sts:TagSession"],
            Condition={"StringEqualsIfExists": {"aws:RequestTag/team": "red"}},
        )
        self.iam.update_assume_role_policy(RoleName="ops", PolicyDocument=allowed)
        self.iam.detach_role_policy(RoleName="ops", PolicyArn=FULL)
        reading = policy(
            "s3:GetObject", Condition={"StringEquals": {"aws:PrincipalTag/team": "red"}}
        )
        self.iam.put_role_policy(RoleName="ops", PolicyName="p", PolicyDocument=reading)
        self.assertMay(self.using(self.assume(arn)), read=False, write=False)
        self.assertMay(self.using(self.assume(arn, Tags=tags)), read=True, write=False)
        other = [{"Key": "team", "Value": "green"}]
        self.assertNotAssumed(403, "AccessDenied", arn, Tags=other)

    def test_transitiveTags(self) -> None:
        """The session of a further role inherits the tags that a call names, and no others."""
        both = trust({"AWS": "*"}, ["sts:AssumeRole", "sts:TagSession"])
        first, second = self.makeRole(both, "first"), self.makeRole(both, "second")
        rights = policy("sts:AssumeRole", "sts:TagSession")
        self.iam.put_role_policy(RoleName="first", PolicyName="p", PolicyDocument=rights)
        self.iam.put_user_policy(UserName="ann", PolicyName="p1", PolicyDocument=rights)
        self.iam.detach_role_policy(RoleName="second", PolicyArn=FULL)
        reading = policy(
            "s3:GetObject", Condition={"StringEquals": {"aws:PrincipalTag/team": "red"}}
        )
        self.iam.put_role_policy(RoleName="second", PolicyName="p", PolicyDocument=reading)
        tags = [{"Key": "Team", "Value": "red"}, {"Key": "cost", "Value": "7"}]
        for named, isInherited in ((["team"], True), (["cost"], False), ([], False)):
            made = self.assume(first, Tags=tags, TransitiveTagKeys=named)
            chained = self.assume(second, self.using(made, "sts"))
            self.assertMay(self.using(chained), read=isInherited, write=False)
            again = self.assume(second, self.using(chained, "sts")) if isInherited else chained
            self.assertMay(self.using(again), read=isInherited, write=False)
        self.assertNotAssumed(400, "ValidationError", first, Tags=tags, TransitiveTagKeys=["other"])
        self.assertNotAssumed(400, "ValidationError", first, TransitiveTagKeys=["team"])
        many = [f"k{number}" for number in range(51)]
        self.assertNotAssumed(409, "LimitExceeded", first, Tags=tags, TransitiveTagKeys=many)

    def test_lengths(self) -> None:
        """A role limits the length of its sessions; a chain is limited to an hour."""
        arn = self.makeRole(trust({"AWS": "*"}), MaxSessionDuration=7200)
        self.assume(arn, DurationSeconds=7200)
        self.assertNotAssumed(400, "ValidationError", arn, DurationSeconds=7201)
        sts = self.using(self.assume(arn), "sts")
        self.assume(arn, sts, DurationSeconds=3600)
        self.assertNotAssumed(400, "ValidationError", arn, sts, DurationSeconds=3601)

    def test_bucketPolicy(self) -> None:
        """A bucket policy names the role, and denies its sessions."""
        arn = self.makeRole()
        s3 = self.using(self.assume(arn))
        self.assertMay(s3, read=True, write=True)
        statement = {
            "Effect": "Deny",
            "Principal": {"AWS": arn},
            "Action": "s3:PutObject",
            "Resource": f"arn:aws:s3:::{self.bucket}/*",
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.client(self.admin, "s3").put_bucket_policy(Bucket=self.bucket, Policy=document)
        self.assertMay(s3, read=True, write=False)

    def test_sessionPrincipal(self) -> None:
        """
        A bucket policy names one session of a role. It may do what its own policy does not allow,
        but not what it denies; another session of the role may not.
        """
        self.makeRole(Path="/x/")
        arn = self.makeRole(name="none")
        self.iam.detach_role_policy(RoleName="none", PolicyArn=FULL)
        owner = self.client(self.admin, "s3")

        def put(principal: str) -> None:
            statement = {
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:sts::{self.account}:assumed-role/{principal}"},
                "Action": "s3:GetObject",
                "Resource": f"arn:aws:s3:::{self.bucket}/*",
            }
            document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
            owner.put_bucket_policy(Bucket=self.bucket, Policy=document)

        for wrong in ("gone/work", "x/ops/work", "OPS/work", "ops/*", "ops"):
            self.assertRefused(400, "MalformedPolicy", lambda wrong=wrong: put(wrong))
        ops = arn.replace("role/none", "role/x/ops")
        putOnly, deny = policy("s3:PutObject"), policy("s3:GetObject", effect="Deny")
        narrow = self.using(self.assume(ops, Policy=putOnly))
        self.assertMay(narrow, read=False, write=True)
        put("ops/work")
        self.assertMay(narrow, read=True, write=True)
        self.assertMay(self.using(self.assume(ops, Policy=deny)), read=False, write=False)
        other = self.assume(ops, Policy=putOnly, RoleSessionName="other")
        self.assertMay(self.using(other), read=False, write=True)
        put("none/work")
        self.assertMay(narrow, read=False, write=True)
        self.assertMay(self.using(self.assume(arn)), read=True, write=False)
        self.assertMay(
            self.using(self.assume(arn, RoleSessionName="other")), read=False, write=False
        )

    def test_chainedPrincipal(self) -> None:
        """A trust policy names one session of another role, with and without the account."""
        first = self.makeRole(name="first")
        sts = self.using(self.assume(first), "sts")
        other = self.using(self.assume(first, RoleSessionName="other"), "sts")
        narrow = self.using(self.assume(first, Policy=policy("s3:*")), "sts")
        for number, account in enumerate((self.account, "")):
            named = f"arn:aws:sts::{account}:assumed-role/first/work"
            second = self.makeRole(trust({"AWS": named}), name=f"second{number}")
            self.assume(second, sts)
            self.assertNotAssumed(403, "AccessDenied", second, other)
            self.assertNotAssumed(403, "AccessDenied", second, self.sts)
            # The policy of a session bounds whatever it assumes.
            self.assertNotAssumed(403, "AccessDenied", second, narrow)

    def test_deleted(self) -> None:
        """The sessions of a deleted role end, and a new role of its name does not revive them."""
        arn = self.makeRole()
        s3 = self.using(self.assume(arn))
        self.assertMay(s3, read=True, write=True)
        self.iam.detach_role_policy(RoleName="ops", PolicyArn=FULL)
        self.assertMay(s3, read=False, write=False)
        self.iam.delete_role(RoleName="ops")
        self.assertRefused(400, "InvalidToken", s3.list_buckets)
        self.makeRole()
        self.assertRefused(400, "InvalidToken", s3.list_buckets)

    @long("runs four commands")
    def test_disabled(self) -> None:
        """
        All keys and sessions of a disabled user, and all sessions of a disabled role, are refused
        within a second; enabling brings back the keys, but no session.
        """
        arn = self.makeRole()
        arguments = [*self.daemon.storeArguments, "--account", self.account]
        own = self.client(self.ann, "s3")
        child = self.issueKey(self.account, "--parent", "user/ann")
        service = self.client(child, "s3")
        user, role = self.using(self.sts.get_session_token()), self.using(self.assume(arn))
        link = user.generate_presigned_url("get_object", Params={"Bucket": self.bucket, "Key": "k"})
        for s3 in (own, service, user, role):
            self.assertMay(s3, read=True, write=s3 is role)
        path = link.partition(self.endpoint)[2]
        self.assertEqual(self.send(Outgoing("GET", path, {})).status, 200)

        code = self.codeOf
        runCommand("users", "disable", "ann", *arguments)
        watch = Stopwatch()
        self.assertTrue(eventually(lambda: code(own) == "InvalidAccessKeyId"))
        self.assertLess(watch.seconds(), 1)
        self.assertEqual(code(service), "InvalidAccessKeyId")
        self.assertEqual(code(user), "InvalidToken")
        self.assertEqual(self.send(Outgoing("GET", path, {})).status, 400)
        self.assertRefused(403, "InvalidClientTokenId", self.sts.get_caller_identity)
        # The session of the role does not depend on the user that has assumed it.
        self.assertEqual(code(role), "")
        self.assertEqual(self.iam.get_user(UserName="ann")["User"]["UserName"], "ann")
        for shown in (("show", "ann"), ("list",)):
            self.assertIn("inactive", runCommand("users", *shown, *arguments))
        runCommand("users", "disable", "ops", "--role", *arguments)
        self.assertTrue(eventually(lambda: code(role) == "InvalidToken"))
        self.assertNotAssumed(403, "AccessDenied", arn, self.client(self.admin, "sts"))
        runCommand("users", "enable", "ann", *arguments)
        runCommand("users", "enable", "ops", "--role", *arguments)
        self.assertTrue(eventually(lambda: code(own) == "" and code(service) == ""))
        for s3 in (user, role):
            self.assertEqual(code(s3), "InvalidToken")
        self.assertMay(self.using(self.sts.get_session_token()), read=True, write=False)
        self.assertMay(self.using(self.assume(arn)), read=True, write=True)

    @long("runs commands")
    def test_assumer(self) -> None:
        """
        The session of a role goes on without the user that has assumed it, as at Amazon: when its
        sessions are revoked, its key is removed, and it is disabled and deleted. Revoking the
        sessions of the role ends it.
        """
        arn = self.makeRole()
        arguments = [*self.daemon.storeArguments, "--account", self.account]
        own, session = self.using(self.sts.get_session_token()), self.using(self.assume(arn))
        self.assertMay(session, read=True, write=True)
        runCommand("users", "revoke-sessions", "ann", *arguments)
        self.assertTrue(eventually(lambda: self.codeOf(own) == "InvalidToken"))
        self.assertMay(session, read=True, write=True)
        runCommand("users", "disable", "ann", *arguments)
        self.assertTrue(eventually(lambda: self.codeOf(self.client(self.ann, "s3")) != ""))
        self.assertMay(session, read=True, write=True)
        self.iam.delete_access_key(UserName="ann", AccessKeyId=self.ann.accessKey)
        for name in self.iam.list_user_policies(UserName="ann")["PolicyNames"]:
            self.iam.delete_user_policy(UserName="ann", PolicyName=name)
        self.iam.delete_user(UserName="ann")
        self.assertMay(session, read=True, write=True)
        runCommand("users", "revoke-sessions", "ops", "--role", *arguments)
        self.assertTrue(eventually(lambda: self.codeOf(session) == "InvalidToken"))

    def codeOf(self, s3: Any) -> str:
        """Read the object; return the code of the error, or nothing."""
        try:
            s3.get_object(Bucket=self.bucket, Key="k")
        except ClientError as error:
            found: str = error.response["Error"]["Code"]
            return found
        return ""

    def test_statusRights(self) -> None:
        """A user needs the right to disable another, over IAM as in the console."""
        self.iam.create_user(UserName="bob")
        call = b"Action=UpdateUserStatus&Version=2010-05-08&UserName=bob&Status="
        form = {"Content-Type": "application/x-www-form-urlencoded"}

        def status(account: Account, value: bytes) -> int:
            signer = Signer(self.host, account, service="iam")
            found: int = self.send(signer.sign(Outgoing("POST", "/", form, call + value))).status
            return found

        self.assertEqual(status(self.ann, b"Inactive"), 403)
        self.iam.put_user_policy(
            UserName="ann", PolicyName="iam", PolicyDocument=policy("iam:UpdateUserStatus")
        )
        self.assertEqual(status(self.ann, b"Inactive"), 200)
        self.assertEqual(status(self.admin, b"Off"), 400)
        self.assertEqual(status(self.admin, b"Active"), 200)

    def test_revoked(self) -> None:
        """The command ends the sessions of a user and of a role within a second; new ones begin."""
        arn = self.makeRole()
        user, role = self.using(self.sts.get_session_token()), self.using(self.assume(arn))
        for s3, name in ((user, ["ann"]), (role, ["ops", "--role"])):
            self.assertMay(s3, read=True, write=s3 is role)
            arguments = [*self.daemon.storeArguments, "--account", self.account]
            runCommand("users", "revoke-sessions", *name, *arguments)

            def isEnded(s3: Any = s3) -> bool:
                try:
                    s3.list_objects_v2(Bucket=self.bucket)
                except ClientError as error:
                    code: str = error.response["Error"]["Code"]
                    return code == "InvalidToken"
                return False

            self.assertTrue(eventually(isEnded))
        self.assertMay(self.using(self.sts.get_session_token()), read=True, write=False)
        self.assertMay(self.using(self.assume(arn)), read=True, write=True)

    def test_serviceKey(self) -> None:
        """A service key needs its own policy to assume a role."""
        arn = self.makeRole(trust({"AWS": "*"}))
        path = self.mktemp()
        with open(path, "w", encoding="utf-8") as file:
            file.write(policy("s3:GetObject"))
        key = self.issueKey(self.account, "--parent", "user/ann", "--policy-file", path)
        sts = self.client(key, "sts")
        self.assertNotAssumed(403, "AccessDenied", arn, sts)
        session = self.using(self.assume("arn:xxx:xxx:xxx:xxxx", sts, Policy=policy("s3:*")))
        self.assertMay(session, read=True, write=False)
        self.assertRefused(403, "AccessDenied", session.list_objects_v2, Bucket=self.bucket)

    def test_botocoreProvider(self) -> None:
        """The provider of botocore assumes the role of a profile, and renews the session."""
        arn = self.makeRole()
        path = self.mktemp()
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                f"[profile base]\naws_access_key_id={self.ann.accessKey}\n"
                f"aws_secret_access_key={self.ann.secretKey}\nregion={REGION}\n"
                f"[profile work]\nrole_arn={arn}\nsource_profile=base\nregion={REGION}\n"
                f"duration_seconds=900\nendpoint_url={self.endpoint}\n"
            )
        session = BotocoreSession(profile="work")
        session.set_config_variable("config_file", path)
        session.set_config_variable("credentials_file", path)
        credentials = session.get_credentials()
        first = credentials.get_frozen_credentials()
        s3 = session.create_client("s3", endpoint_url=self.endpoint)
        s3.get_object(Bucket=self.bucket, Key="k")
        # A session of 15 minutes is renewed by the first request of its last 10.
        credentials._expiry_time = datetime.now(UTC) + timedelta(seconds=60)
        s3.get_object(Bucket=self.bucket, Key="k")
        self.assertNotEqual(credentials.get_frozen_credentials().token, first.token)
