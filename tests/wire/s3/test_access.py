"""Who may: policies, lists, ownership and the block of public access, with real clients."""

import json
import socket
from contextlib import closing
from email.utils import formatdate
from typing import Any

import boto3
from attrs import evolve
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from storagegate.objects.accounts import canonicalId
from storagegate.s3.operations import OPERATIONS
from tests.support.clients import (
    REGION,
    Account,
    ToolFailed,
    awsEnvironment,
    botoClient,
    runTool,
)
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing, Signer, exchange
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, runKeys
from tests.wire.s3.forms import formRequest

# Of the shared daemon: a key is issued by a process of its own.
_issued: dict[str, Account] = {}

ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"


def statement(bucket: str, principal: Any, *actions: str, **changed: Any) -> dict[str, Any]:
    """Return a statement about a bucket and all that is in it."""
    return {
        "Effect": "Allow",
        "Principal": principal,
        "Action": list(actions),
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        **changed,
    }


@long("makes clients of three accounts")
class AccessCase(S3Case):
    """Three accounts, and requests of no account."""

    def setUp(self) -> None:
        """Have clients of three accounts, and a bucket of the first with an object."""
        super().setUp()
        names = ("acann", "acbob", "aceve")
        for name in names:
            if name not in _issued:
                _issued[name] = self.issueKey(name)
        self.accounts = [_issued[name] for name in names]
        self.ann, self.bob, self.eve = (self.client(account) for account in self.accounts)
        self.anonymous = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
        )
        self.bucket = self.makeName("access")
        self.ann.create_bucket(Bucket=self.bucket)
        self.ann.put_object(Bucket=self.bucket, Key="k", Body=b"bytes")

    def client(self, account: Account) -> Any:
        """Return a client that does not repeat."""
        return botoClient(self.endpoint, account, patient=False)

    def status(self, client: Any, operation: str, **arguments: Any) -> int:
        """Return the status of a request, of an error too."""
        try:
            answer = getattr(client, operation)(Bucket=self.bucket, **arguments)
        except ClientError as error:
            answer = error.response
        found: int = answer["ResponseMetadata"]["HTTPStatusCode"]
        return found

    def statuses(self, operation: str, **arguments: Any) -> list[int]:
        """Return the statuses that ann, bob, eve and an anonymous request get."""
        clients = (self.ann, self.bob, self.eve, self.anonymous)
        return [self.status(client, operation, **arguments) for client in clients]

    def setPolicy(self, *statements: Any) -> None:
        """Set the bucket's policy."""
        text = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.ann.put_bucket_policy(Bucket=self.bucket, Policy=text)

    def assertCode(self, code: str, client: Any, operation: str, **arguments: Any) -> None:
        """Check the code of an error."""
        with self.assertRaises(ClientError) as caught:
            getattr(client, operation)(Bucket=self.bucket, **arguments)
        self.assertEqual(caught.exception.response["Error"]["Code"], code)


class PolicyTests(AccessCase):
    """Bucket policies."""

    def test_document(self) -> None:
        """A policy is returned byte for byte; without one there is 404; a removal is not one."""
        self.assertCode("NoSuchBucketPolicy", self.ann, "get_bucket_policy")
        self.assertCode("NoSuchBucketPolicy", self.ann, "get_bucket_policy_status")
        text = json.dumps({"Statement": [statement(self.bucket, "*", "s3:*")]}, indent=3)
        self.ann.put_bucket_policy(Bucket=self.bucket, Policy=text)
        self.assertEqual(self.ann.get_bucket_policy(Bucket=self.bucket)["Policy"], text)
        status = self.ann.get_bucket_policy_status(Bucket=self.bucket)
        self.assertTrue(status["PolicyStatus"]["IsPublic"])
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.assertCode("NoSuchBucketPolicy", self.ann, "get_bucket_policy")
        wrong = json.dumps({"Statement": [statement("other", "*", "s3:*")]})
        self.assertCode("MalformedPolicy", self.ann, "put_bucket_policy", Policy=wrong)

    def test_allow(self) -> None:
        """What is allowed is open at once, to those that are named."""
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        self.setPolicy(statement(self.bucket, {"AWS": "acbob"}, "s3:GetObject"))
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 403, 403])
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])
        self.setPolicy(statement(self.bucket, "*", "s3:GetObject"))
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        self.assertEqual(self.statuses("head_object", Key="k"), [200] * 4)
        self.assertEqual(self.statuses("put_object", Key="k", Body=b"x"), [200, 403, 403, 403])
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])

    def test_missingKey(self) -> None:
        """Only those that may list learn that a key is missing."""
        self.setPolicy(statement(self.bucket, "*", "s3:GetObject"))
        self.assertEqual(self.statuses("get_object", Key="none"), [404, 403, 403, 403])
        self.setPolicy(
            statement(self.bucket, "*", "s3:GetObject"),
            statement(self.bucket, {"AWS": "acbob"}, "s3:ListBucket"),
        )
        self.assertEqual(self.statuses("get_object", Key="none"), [404, 404, 403, 403])
        # The right to list suffices, unless a statement denies the read.
        lists = statement(self.bucket, {"AWS": "acbob"}, "s3:ListBucket")
        self.setPolicy(lists)
        for operation in ("get_object", "head_object"):
            self.assertEqual(self.statuses(operation, Key="none"), [404, 404, 403, 403])
            self.assertEqual(self.statuses(operation, Key="k"), [200, 403, 403, 403])
        self.assertCode("NoSuchKey", self.bob, "get_object", Key="none")
        source = {"Key": "c", "CopySource": f"{self.bucket}/none"}
        self.setPolicy(lists, statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject"))
        self.assertCode("NoSuchKey", self.bob, "copy_object", **source)
        self.setPolicy(lists, statement(self.bucket, "*", "s3:GetObject", Effect="Deny"))
        self.assertEqual(self.statuses("get_object", Key="none"), [403] * 4)
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read")
        for operation in ("get_object", "head_object"):
            self.assertEqual(self.statuses(operation, Key="none"), [404] * 4)
            self.assertEqual(self.statuses(operation, Key="k"), [200, 403, 403, 403])
        self.assertCode("NoSuchKey", self.anonymous, "get_object", Key="none")

    def test_deny(self) -> None:
        """A denial binds the owner, but not its change of the policy, and not the root key."""
        self.setPolicy(
            statement(self.bucket, "*", "s3:*"), statement(self.bucket, "*", "s3:*", Effect="Deny")
        )
        self.assertEqual(self.statuses("get_object", Key="k"), [403] * 4)
        self.assertEqual(self.status(self.s3, "get_object", Key="k"), 200)
        self.assertEqual(self.statuses("get_bucket_policy"), [200, 403, 403, 403])
        self.assertEqual(self.statuses("delete_bucket_policy"), [204, 403, 403, 403])
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])

    @long("takes a second or more")
    def test_keyLimits(self) -> None:
        """No policy widens the limits of a key."""
        reader = self.client(self.issueKey("acbob", "--policy", "readonly"))
        self.setPolicy(statement(self.bucket, "*", "s3:*"))
        self.assertEqual(self.status(reader, "get_object", Key="k"), 200)
        self.assertEqual(self.status(reader, "put_object", Key="k", Body=b"x"), 403)

    def test_conditions(self) -> None:
        """Conditions see the request: its address, its user, and how it was signed."""
        home = statement(self.bucket, "*", "s3:PutObject")
        home["Resource"] = f"arn:aws:s3:::{self.bucket}/${{aws:username}}/*"
        near = {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
        signed = {"StringEquals": {"s3:signatureversion": "AWS4-HMAC-SHA256"}}
        self.setPolicy(
            home,
            statement(self.bucket, {"AWS": "acbob"}, "s3:ListBucket", Condition=near),
            statement(self.bucket, "*", "s3:GetObject", Condition=signed),
        )
        own = f"{self.accounts[1].accessKey}/x"
        self.assertEqual(self.statuses("put_object", Key=own, Body=b"x"), [200, 200, 403, 403])
        self.assertEqual(self.statuses("list_objects_v2"), [200, 200, 403, 403])
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 200, 403])
        far = {"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
        self.setPolicy(statement(self.bucket, "*", "s3:ListBucket", Condition=far))
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])

    def test_newPrincipals(self) -> None:
        """A new policy names identities that exist, and allows nothing to all but some."""
        account, key = "acbob", self.accounts[1].accessKey
        for principal in (
            "nosuchaccount",
            "arn:aws:iam::nosuchaccount:root",
            f"arn:aws:iam::nosuchaccount:user/{key}",
            f"arn:aws:iam::{account}:user/NOSUCHKEY",
            [account, "nosuchaccount"],
        ):
            policy = {"Statement": [statement(self.bucket, {"AWS": principal}, "s3:GetObject")]}
            with self.assertRaises(ClientError) as caught:
                self.ann.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(policy))
            answer = caught.exception.response
            self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 400)
            self.assertEqual(answer["Error"]["Code"], "MalformedPolicy")
            self.assertIn("Invalid principal in policy", answer["Error"]["Message"])
        unknown = statement(self.bucket, {"CanonicalUser": "0" * 64}, "s3:GetObject")
        excluding = statement(self.bucket, None, "s3:GetObject", NotPrincipal={"AWS": account})
        del excluding["Principal"]
        for wrong in (unknown, excluding):
            text = json.dumps({"Statement": [wrong]})
            self.assertCode("MalformedPolicy", self.ann, "put_bucket_policy", Policy=text)
        self.assertCode("NoSuchBucketPolicy", self.ann, "get_bucket_policy")
        for principal in (account, f"arn:aws:iam::{account}:user/{key}", "root", "*"):
            self.setPolicy(statement(self.bucket, {"AWS": principal}, "s3:GetObject"))
        self.setPolicy({**excluding, "Effect": "Deny"})
        self.assertEqual(self.statuses("get_object", Key="k"), [403, 403, 403, 403])
        self.ann.delete_bucket_policy(Bucket=self.bucket)

    def test_newAccount(self) -> None:
        """An account that was issued its first key a moment ago can be named at once."""
        name = f"acnew{self.bucket[-5:]}"
        runKeys(
            "create",
            *self.daemon.storeArguments,
            "--account",
            name,
            "--access-key",
            f"KEY{name.upper()}",
            "--secret-stdin",
            stdin="a-secret-of-the-new-account\n",
        )
        self.setPolicy(statement(self.bucket, {"AWS": name}, "s3:GetObject"))

    @long("runs commands")
    def test_reusedNames(self) -> None:
        """
        A key of a removed account or user that a bucket names is issued only on request. Until then
        a revoked key is replaced as before, and disabled and expired keys keep their account.
        """
        name = f"acold{self.bucket[-5:]}"
        old = self.issueKey(name)
        self.revoke(old)
        self.revoke(self.issueKey(name))
        old = self.issueKey(name)
        self.setPolicy(statement(self.bucket, {"AWS": name}, "s3:GetObject"))
        self.assertEqual(self.status(self.client(old), "get_object", Key="k"), 200)
        runKeys(
            "edit",
            *self.daemon.storeArguments,
            "--access-key",
            old.accessKey,
            "--disabled",
            "yes",
        )
        second = self.issueKey(name)
        self.revoke(second)
        self.revoke(old)
        refused = self.refusal("--account", name)
        self.assertIn(
            f" 1:\nstoragegate: The removed account {name} is still named in a policy or an ACL of:"
            f" {self.bucket} (FAILED_PRECONDITION); --reuse issues the key\n",
            refused,
        )
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        third = self.issueKey(name)
        grantee = f"id={canonicalId(name)}"
        self.ann.put_bucket_acl(Bucket=self.bucket, GrantRead=grantee)
        self.client(third).create_bucket(Bucket=f"{self.bucket}-own", ACL="public-read")
        self.revoke(third)
        refused = self.refusal("--account", name)
        self.assertIn(f"of: {self.bucket} (", refused)
        new = self.issueKey(name, "--reuse")
        self.assertEqual(self.status(self.client(new), "list_objects_v2"), 200)
        user = f"arn:aws:iam::{name}:user/{new.accessKey}"
        self.setPolicy(statement(self.bucket, {"AWS": user}, "s3:GetObject"))
        self.issueKey(name)
        self.revoke(new)
        again = ("--account", name, "--access-key", new.accessKey, "--secret-stdin")
        refused = self.refusal(*again, stdin="a-secret\n")
        self.assertIn(f"The removed user {name}/{new.accessKey} is still named", refused)
        self.issueKey(name)

    def revoke(self, account: Account) -> None:
        """Revoke a key."""
        runKeys("revoke", *self.daemon.storeArguments, "--access-key", account.accessKey)

    def refusal(self, *flags: str, stdin: str = "") -> str:
        """Have the command refuse a key; return what it says."""
        with self.assertRaises(ToolFailed) as caught:
            runKeys("create", *self.daemon.storeArguments, *flags, stdin=stdin)
        return str(caught.exception)

    def test_copySources(self) -> None:
        """A source that may not be copied is refused in every spelling that names it."""
        other = self.makeName("source")
        self.ann.create_bucket(Bucket=other)
        for key in ("private/x", "open/x"):
            self.ann.put_object(Bucket=other, Key=key, Body=b"x")
        for pattern in (f"{other}/private/*", f"/{other}/private/*"):
            condition = {"StringLike": {"s3:x-amz-copy-source": pattern}}
            self.setPolicy(
                statement(self.bucket, "*", "s3:PutObject", Effect="Deny", Condition=condition)
            )
            for source, status in (
                (f"{other}/private/x", 403),
                (f"/{other}/private/x", 403),
                (f"{other}/%70rivate/x", 403),
                (f"%2F{other}/private%2Fx", 403),
                (f"{other}/open/x", 200),
            ):
                fields = {"x-amz-copy-source": source, **self.accounts[0].plainHeaders()}
                answer = self.send(Outgoing("PUT", f"/{self.bucket}/copy", fields))
                self.assertEqual(answer.status, status, (pattern, source))

    def test_takenOver(self) -> None:
        """What a copy takes over from its source counts as what a request names."""
        tagged = {"Key": "tagged", "Body": b"x", "Tagging": "class=secret"}
        self.ann.put_object(Bucket=self.bucket, StorageClass="STANDARD_IA", **tagged)
        copy = {"Key": "copy", "CopySource": f"{self.bucket}/tagged"}
        condition = {"s3:RequestObjectTag/class": "secret"}
        denied = {"Effect": "Deny", "Condition": {"StringEquals": condition}}
        self.setPolicy(statement(self.bucket, "*", "s3:PutObject", **denied))
        self.assertEqual(self.status(self.ann, "copy_object", **copy), 403)
        replaced = {**copy, "Tagging": "class=open", "TaggingDirective": "REPLACE"}
        self.assertEqual(self.status(self.ann, "copy_object", **replaced), 200)
        # Named, and not obeyed: it hides nothing.
        named = {**copy, "Tagging": "class=open"}
        self.assertEqual(self.status(self.ann, "copy_object", **named), 403)

    def test_classOfCopy(self) -> None:
        """A copy that names no class counts as STANDARD, whatever the class of its source."""
        put = {"Bucket": self.bucket, "Key": "cold", "Body": b"x"}
        self.ann.put_object(StorageClass="STANDARD_IA", **put)
        copy = {"Key": "copy", "CopySource": f"{self.bucket}/cold"}
        for name, status, other in (("STANDARD_IA", 200, 403), ("STANDARD", 403, 200)):
            condition = {"StringEquals": {"s3:x-amz-storage-class": name}}
            denied = {"Effect": "Deny", "Condition": condition}
            self.setPolicy(statement(self.bucket, "*", "s3:PutObject", **denied))
            self.assertEqual(self.status(self.ann, "copy_object", **copy), status, name)
            named = {**copy, "StorageClass": "STANDARD_IA"}
            self.assertEqual(self.status(self.ann, "copy_object", **named), other, name)

    def test_formFields(self) -> None:
        """A form's object is judged by its fields, and its client by the fields of the request."""
        for condition, fields, headers in (
            (
                {"StringEquals": {"s3:RequestObjectTag/class": "secret"}},
                {"x-amz-tagging": "class=secret"},
                {"x-amz-tagging": "class=open"},
            ),
            (
                {"StringEquals": {"s3:x-amz-storage-class": "STANDARD_IA"}},
                {"x-amz-storage-class": "STANDARD_IA"},
                {"x-amz-storage-class": "STANDARD"},
            ),
            (
                {"StringNotLike": {"aws:Referer": "http://trusted/*"}},
                {"Referer": "http://trusted/x"},
                {},
            ),
            (
                {"StringEquals": {"s3:x-amz-content-sha256": "UNSIGNED-PAYLOAD"}},
                {"x-amz-content-sha256": "0" * 64},
                {},
            ),
            (
                {"StringNotLike": {"s3:x-amz-copy-source": "trusted/*"}},
                {"x-amz-copy-source": "trusted/x"},
                {"x-amz-copy-source": "trusted/x"},
            ),
        ):
            everyone = statement(self.bucket, "*", "s3:PutObject", "s3:PutObjectTagging")
            self.setPolicy(everyone, {**everyone, "Effect": "Deny", "Condition": condition})
            form = formRequest(self.bucket, {"key": "form", **fields}, b"x")
            for more in ({}, headers):
                answer = self.send(evolve(form, headers={**form.headers, **more}))
                self.assertEqual(answer.status, 403, (condition, more))

    def test_comparisons(self) -> None:
        """A writer that may not read an object learns nothing of it by a condition."""
        bob, own = self.accounts[1].plainHeaders(), self.makeName("own")
        self.bob.create_bucket(Bucket=own)
        self.bob.put_object(Bucket=own, Key="k", Body=b"other")
        writes = statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject", "s3:DeleteObject")
        self.setPolicy(writes)
        found = self.ann.head_object(Bucket=self.bucket, Key="k")
        etags = (found["ETag"], f'"{"0" * 32}"')

        def sent(method: str, **fields: str) -> int:
            named = {name.replace("_", "-"): value for name, value in fields.items()}
            body = b"new" if method == "PUT" and "x_amz_copy_source" not in fields else b""
            return self.send(Outgoing(method, f"/{self.bucket}/k", {**bob, **named}, body)).status

        for etag in etags:
            for fields in {"if_match": etag}, {"if_none_match": etag}:
                self.assertEqual(sent("PUT", **fields), 403, fields)
                self.assertEqual(sent("PUT", x_amz_copy_source=f"{own}/k", **fields), 403, fields)
                self.assertEqual(sent("DELETE", **fields), 403, fields)
        modified = formatdate(found["LastModified"].timestamp(), usegmt=True)
        for fields in (
            {"x_amz_if_match_size": "5"},
            {"x_amz_if_match_size": "6"},
            {"x_amz_if_match_last_modified_time": modified},
            {"x_amz_if_match_last_modified_time": "Thu, 01 Jan 1970 00:00:00 GMT"},
        ):
            self.assertEqual(sent("DELETE", **fields), 403, fields)
        objects = [{"Key": key, "ETag": etag} for key in ("k", "none") for etag in etags]
        errors = self.bob.delete_objects(Bucket=self.bucket, Delete={"Objects": objects})["Errors"]
        codes = [each["Code"] for each in errors]
        self.assertEqual(codes, ["AccessDenied", "AccessDenied", "NoSuchKey", "NoSuchKey"])
        named = {"Bucket": self.bucket, "Key": "k"}
        named["UploadId"] = self.bob.create_multipart_upload(**named)["UploadId"]
        part = self.bob.upload_part(**named, PartNumber=1, Body=b"part")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        for etag in etags:
            with self.assertRaises(ClientError) as caught:
                self.bob.complete_multipart_upload(**named, MultipartUpload=parts, IfMatch=etag)
            self.assertEqual(caught.exception.response["Error"]["Code"], "AccessDenied")
        limited = self.client(self.issueKey("acann", "--policy", "writeonly"))
        for etag in etags:
            self.assertEqual(self.status(limited, "put_object", Key="k", IfMatch=etag), 403)
        self.assertEqual(self.ann.get_object(Bucket=self.bucket, Key="k")["Body"].read(), b"bytes")
        reads = statement(self.bucket, {"AWS": "acbob"}, "s3:GetObject")
        self.setPolicy(writes, reads)
        self.assertEqual(sent("PUT", if_match=etags[1]), 412)
        self.assertEqual(sent("DELETE", x_amz_if_match_size="6"), 412)
        self.assertEqual(sent("PUT", if_match=etags[0]), 200)
        # Whether an object exists is no secret of its bytes. The object is bob's now.
        self.setPolicy(writes)
        self.assertEqual(sent("PUT", if_match="*"), 200)
        self.assertEqual(sent("PUT", if_none_match="*"), 412)
        self.assertEqual(self.status(self.ann, "put_object", Key="k", IfMatch=etags[0]), 403)
        self.assertEqual(sent("PUT", if_match=etags[0]), 412)

    def test_tags(self) -> None:
        """Tags that an object has, and tags that a request gives it, in a header or a document."""
        name = self.bucket
        target = {"Bucket": name, "Key": "tagged"}
        open_ = {"StringEquals": {"s3:ExistingObjectTag/class": "open"}}
        secret = {"StringEquals": {"s3:RequestObjectTag/class": "secret"}}
        self.setPolicy(
            statement(name, {"AWS": "acbob"}, "s3:GetObject", Condition=open_),
            statement(
                name,
                "*",
                "s3:PutObject",
                "s3:PutObjectTagging",
                Effect="Deny",
                Condition=secret,
            ),
        )
        self.ann.put_object(**target, Body=b"x")
        self.assertRefused(403, "AccessDenied", self.bob.get_object, **target)
        for word in "open", "closed":
            tags = {"TagSet": [{"Key": "class", "Value": word}]}
            self.ann.put_object_tagging(**target, Tagging=tags)
            if word == "open":
                self.assertEqual(self.bob.get_object(**target)["Body"].read(), b"x")
            else:
                self.assertRefused(403, "AccessDenied", self.bob.get_object, **target)
        tags = {"TagSet": [{"Key": "class", "Value": "secret"}]}
        self.assertRefused(403, "AccessDenied", self.ann.put_object_tagging, **target, Tagging=tags)
        self.assertRefused(
            403, "AccessDenied", self.ann.put_object, **target, Body=b"y", Tagging="class=secret"
        )
        self.ann.put_object(**target, Body=b"y", Tagging="class=open")
        self.assertEqual(self.bob.get_object(**target)["Body"].read(), b"y")

    def test_objectOfAnother(self) -> None:
        """An object that another account wrote is its own; the bucket's may delete it."""
        self.setPolicy(statement(self.bucket, "*", "s3:*"))
        self.bob.put_object(Bucket=self.bucket, Key="bobs", Body=b"x")
        self.assertEqual(self.statuses("get_object", Key="bobs"), [403, 200, 403, 403])
        self.ann.put_bucket_ownership_controls(
            Bucket=self.bucket,
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        )
        self.assertEqual(self.statuses("get_object", Key="bobs"), [200] * 4)
        self.assertEqual(self.status(self.ann, "delete_object", Key="bobs"), 204)

    def test_copy(self) -> None:
        """A copy needs its source and its target, and their tags where it takes them over."""
        own = self.makeName("access")
        self.bob.create_bucket(Bucket=own)
        copy = {"Bucket": own, "Key": "c", "CopySource": f"{self.bucket}/k"}
        with self.assertRaises(ClientError):
            self.bob.copy_object(**copy)
        self.setPolicy(statement(self.bucket, {"AWS": "acbob"}, "s3:GetObject"))
        self.bob.copy_object(**copy)
        tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
        self.ann.put_object_tagging(Bucket=self.bucket, Key="k", Tagging=tags)
        with self.assertRaises(ClientError) as caught:
            self.bob.copy_object(**copy)
        self.assertEqual(caught.exception.response["Error"]["Code"], "AccessDenied")
        self.bob.copy_object(**copy, TaggingDirective="REPLACE")
        self.setPolicy(
            statement(self.bucket, {"AWS": "acbob"}, "s3:GetObject", "s3:GetObjectTagging"),
            statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject"),
        )
        self.bob.copy_object(**copy)
        self.assertEqual(self.bob.get_object_tagging(Bucket=own, Key="c")["TagSet"], tags["TagSet"])
        back = {"Key": "back", "CopySource": f"{own}/c"}
        self.assertEqual(self.status(self.bob, "copy_object", **back), 403)
        rule = statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject", "s3:PutObjectTagging")
        self.setPolicy(rule)
        self.assertEqual(self.status(self.bob, "copy_object", **back), 200)
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.assertEqual(self.status(self.bob, "copy_object", **back), 403)

    def test_deleteMany(self) -> None:
        """Each key of a deletion is decided for itself; where none can be, nothing is read."""
        rule = statement(self.bucket, {"AWS": "acbob"}, "s3:DeleteObject")
        rule["Resource"] = f"arn:aws:s3:::{self.bucket}/bob/*"
        self.setPolicy(rule)
        self.ann.put_object(Bucket=self.bucket, Key="bob/a", Body=b"x")
        both = {"Objects": [{"Key": "bob/a"}, {"Key": "k"}]}
        answer = self.bob.delete_objects(Bucket=self.bucket, Delete=both)
        self.assertEqual([each["Key"] for each in answer["Deleted"]], ["bob/a"])
        self.assertEqual([each["Code"] for each in answer["Errors"]], ["AccessDenied"])
        self.assertEqual(self.status(self.eve, "delete_objects", Delete=both), 403)
        self.assertEqual(self.status(self.ann, "head_object", Key="k"), 200)

    def test_conditionalDeletes(self) -> None:
        """A policy that requires C{If-Match} means the element of each entry, not the header."""
        self.setPolicy(
            statement(
                self.bucket,
                "*",
                "s3:DeleteObject",
                Effect="Deny",
                Condition={"Null": {"s3:if-match": "true"}},
            )
        )
        signer = Signer(self.host, self.accounts[0])
        document = b"<Delete><Object><Key>k</Key></Object></Delete>"
        many = Outgoing("POST", f"/{self.bucket}?delete=", {"If-Match": "*"}, document)
        answer = self.send(signer.sign(many))
        self.assertEqual((answer.status, answer.code), (200, "AccessDenied"))
        self.assertEqual(self.status(self.ann, "delete_object", Key="k"), 403)
        etag = self.ann.head_object(Bucket=self.bucket, Key="k")["ETag"]
        wanted = {"Objects": [{"Key": "k", "ETag": etag}]}
        answer = self.ann.delete_objects(Bucket=self.bucket, Delete=wanted)
        self.assertEqual([each["Key"] for each in answer["Deleted"]], ["k"])
        self.ann.put_object(Bucket=self.bucket, Key="k", Body=b"bytes")
        self.assertEqual(self.status(self.ann, "delete_object", Key="k", IfMatch=etag), 204)


class ListTests(AccessCase):
    """Access control lists, ownership and the block of public access."""

    @long("takes seconds")
    def test_bucket(self) -> None:
        """A list opens what it grants, is read as it was set, and is private again."""
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read")
        self.assertEqual(self.statuses("list_objects_v2"), [200] * 4)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        acl = self.ann.get_bucket_acl(Bucket=self.bucket)
        self.assertEqual(acl["Owner"]["DisplayName"], "acann")
        self.assertEqual(
            [(each["Grantee"]["Type"], each["Permission"]) for each in acl["Grants"]],
            [("Group", "READ"), ("CanonicalUser", "FULL_CONTROL")],
        )
        bob = self.bob.list_buckets()["Owner"]["ID"]
        self.ann.put_bucket_acl(Bucket=self.bucket, GrantWrite=f'id="{bob}"')
        self.assertEqual(self.statuses("put_object", Key="b", Body=b"x"), [200, 200, 403, 403])
        owned = {key: acl[key] for key in ("Owner", "Grants")}
        self.ann.put_bucket_acl(Bucket=self.bucket, AccessControlPolicy=owned)
        self.assertEqual(self.ann.get_bucket_acl(Bucket=self.bucket)["Grants"], acl["Grants"])
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="private")
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])

    @long("takes seconds")
    def test_created(self) -> None:
        """A bucket can be created with a list and with an ownership."""
        self.bucket = self.makeName("access")
        self.ann.create_bucket(
            Bucket=self.bucket, ACL="public-read", ObjectOwnership="BucketOwnerPreferred"
        )
        self.assertEqual(self.statuses("list_objects_v2"), [200] * 4)
        controls = self.ann.get_bucket_ownership_controls(Bucket=self.bucket)
        rules = controls["OwnershipControls"]["Rules"]
        self.assertEqual(rules, [{"ObjectOwnership": "BucketOwnerPreferred"}])

    def test_errors(self) -> None:
        """What names no list, or two, or an account that there is not."""
        for arguments, code in (
            ({"GrantRead": "id=0"}, "InvalidArgument"),
            ({"GrantRead": "emailAddress=none@x.org"}, "UnresolvableGrantByEmailAddress"),
            ({"GrantRead": f"uri={ALL_USERS}", "ACL": "private"}, "InvalidRequest"),
            ({}, "MissingSecurityHeader"),
            ({"ACL": "log-delivery-write"}, "NotImplemented"),
        ):
            self.assertCode(code, self.ann, "put_bucket_acl", **arguments)

    def test_ownership(self) -> None:
        """Under the bucket owner's enforced ownership there are no lists."""
        self.assertCode("OwnershipControlsNotFoundError", self.ann, "get_bucket_ownership_controls")
        enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        set_ = {"OwnershipControls": enforced}
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read")
        code = "InvalidBucketAclWithObjectOwnership"
        self.assertCode(code, self.ann, "put_bucket_ownership_controls", **set_)
        # A list without grants, or with grants to the owner only, opens nothing to others.
        owner = self.ann.get_bucket_acl(Bucket=self.bucket)["Owner"]["ID"]
        for named in (
            {"AccessControlPolicy": {"Grants": [], "Owner": {"ID": owner}}},
            {"GrantRead": f"id={owner}"},
            {"ACL": "private"},
        ):
            self.ann.put_bucket_acl(Bucket=self.bucket, **named)
            self.ann.put_bucket_ownership_controls(Bucket=self.bucket, **set_)
            self.ann.delete_bucket_ownership_controls(Bucket=self.bucket)
        self.ann.put_bucket_ownership_controls(Bucket=self.bucket, **set_)
        code = "AccessControlListNotSupported"
        for acl in ("public-read", "private", "bucket-owner-read"):
            self.assertCode(code, self.ann, "put_bucket_acl", ACL=acl)
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="bucket-owner-full-control")
        full = {"Grantee": {"ID": owner, "Type": "CanonicalUser"}, "Permission": "FULL_CONTROL"}
        acl = {"Grants": [full], "Owner": {"ID": owner}}
        self.ann.put_bucket_acl(Bucket=self.bucket, AccessControlPolicy=acl)
        self.ann.delete_bucket_ownership_controls(Bucket=self.bucket)
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read")
        self.assertCode("OwnershipControlsNotFoundError", self.ann, "get_bucket_ownership_controls")

    def block(self, **switches: bool) -> None:
        """Set the block of public access."""
        self.ann.put_public_access_block(
            Bucket=self.bucket, PublicAccessBlockConfiguration=switches
        )

    @long("takes seconds")
    def test_block(self) -> None:
        """Each of the four switches does its part."""
        code = "NoSuchPublicAccessBlockConfiguration"
        self.assertCode(code, self.ann, "get_public_access_block")
        public = json.dumps({"Statement": [statement(self.bucket, "*", "s3:ListBucket")]})
        self.block(BlockPublicAcls=True, BlockPublicPolicy=True)
        found = self.ann.get_public_access_block(Bucket=self.bucket)
        self.assertEqual(
            found["PublicAccessBlockConfiguration"],
            {
                "BlockPublicAcls": True,
                "IgnorePublicAcls": False,
                "BlockPublicPolicy": True,
                "RestrictPublicBuckets": False,
            },
        )
        self.assertCode("AccessDenied", self.ann, "put_bucket_acl", ACL="public-read")
        self.assertCode("AccessDenied", self.ann, "put_bucket_policy", Policy=public)
        self.ann.delete_public_access_block(Bucket=self.bucket)
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read")
        self.assertEqual(self.statuses("list_objects_v2"), [200] * 4)
        self.block(IgnorePublicAcls=True)
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])
        self.ann.put_bucket_policy(Bucket=self.bucket, Policy=public)
        self.assertEqual(self.statuses("list_objects_v2"), [200] * 4)
        self.block(RestrictPublicBuckets=True)
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])


class AnonymousTests(AccessCase):
    """Requests without credentials."""

    @long("takes seconds")
    def test_everyOperation(self) -> None:
        """On a private bucket each operation is 403, and no byte of a body is read."""
        for operation in OPERATIONS.values():
            if operation.name in ("PostObject", "ListObjectsV2"):
                continue
            path = {"service": "/", "bucket": f"/{self.bucket}", "object": f"/{self.bucket}/k"}
            query = operation.selector.replace("&id", "&id=x")
            if operation.selector == "uploadId":
                query = (
                    "uploadId=x&partNumber=1" if operation.name[:6] == "Upload" else "uploadId=x"
                )
            headers = {"expect": "100-continue"}
            if operation.variant == "x-amz-copy-source":
                headers["x-amz-copy-source"] = f"{self.bucket}/k"
            target = path[operation.level] + (f"?{query}" if query else "")
            found = self.firstLine(operation.method.decode(), target, headers)
            self.assertIn(" 403 ", found, operation.name)

    def firstLine(self, method: str, target: str, headers: dict[str, str]) -> str:
        """Send a head that announces a body, and return the first line of what comes back."""
        fields = {"host": self.host, "content-length": "10", **headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{n}: {v}" for n, v in fields.items()), "", ""]
        with closing(socket.create_connection(self.address, 60)) as connection:
            connection.sendall("\r\n".join(lines).encode())
            return connection.makefile("rb").readline().decode()

    @long("takes seconds")
    def test_form(self) -> None:
        """A form without a policy is refused."""
        answer = exchange(
            self.address, Outgoing("POST", f"/{self.bucket}", {"content-length": "0"})
        )
        self.assertEqual(answer.status, 403)

    @long("takes seconds")
    def test_missingBucket(self) -> None:
        """A bucket that does not exist is 404 for every operation but its creation."""
        for method, target in (
            ("GET", ""),
            ("GET", "/k"),
            ("PUT", "/k"),
            ("DELETE", "/k"),
            ("DELETE", ""),
            ("GET", "?policy"),
            ("POST", "/k?uploads"),
            ("GET", "/k?acl"),
            ("GET", "?uploads"),
        ):
            answer = exchange(self.address, Outgoing(method, f"/no-such-bucket{target}"))
            self.assertAnswer(answer, 404, "NoSuchBucket")
        for method in ("HEAD", "PUT"):
            answer = exchange(self.address, Outgoing(method, "/no-such-bucket"))
            self.assertEqual(answer.status, 404 if method == "HEAD" else 403)
        form = formRequest("no-such-bucket", {"key": "k"}, b"file")
        self.assertAnswer(exchange(self.address, form), 404, "NoSuchBucket")

    @long("takes seconds")
    def test_responseHeaders(self) -> None:
        """A link without credentials changes no header of a public object."""
        self.setPolicy(statement(self.bucket, "*", "s3:GetObject"))
        path = f"/{self.bucket}/k"
        self.assertEqual(exchange(self.address, Outgoing("GET", path)).status, 200)
        for method in "GET", "HEAD":
            asked = Outgoing(method, f"{path}?response-content-type=text/html")
            self.assertEqual(exchange(self.address, asked).status, 400)


class ToolTests(AccessCase):
    """aws-cli and s3cmd."""

    def setUp(self) -> None:
        """Have a directory."""
        super().setUp()
        self.files = self.makeDirectory()

    def test_s3cmd(self) -> None:
        """setpolicy, info, delpolicy and setacl of a bucket."""
        s3cmd = self.s3cmd(self.accounts[0])
        target = f"s3://{self.bucket}"
        policy = self.files / "policy.json"
        policy.write_text(json.dumps({"Statement": [statement(self.bucket, "*", "s3:GetObject")]}))
        s3cmd("setpolicy", policy, target)
        self.assertIn("s3:GetObject", s3cmd("info", target))
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        s3cmd("delpolicy", target)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        s3cmd("setacl", "--acl-public", target)
        self.assertEqual(self.statuses("list_objects_v2"), [200] * 4)
        s3cmd("setacl", "--acl-private", target)
        self.assertEqual(self.statuses("list_objects_v2"), [200, 403, 403, 403])

    @long("takes seconds")
    def test_aws(self) -> None:
        """The commands of s3api for each setting."""
        program = needProgram("aws")
        environment = awsEnvironment(self.endpoint, self.files, self.accounts[0])

        def s3api(command: str, *arguments: str) -> str:
            return runTool(
                [program, "s3api", command, "--bucket", self.bucket, *arguments], environment
            )

        policy = json.dumps({"Statement": [statement(self.bucket, "*", "s3:GetObject")]})
        s3api("put-bucket-policy", "--policy", policy)
        self.assertIn("true", s3api("get-bucket-policy-status"))
        self.assertIn("s3:GetObject", s3api("get-bucket-policy"))
        switches = "BlockPublicPolicy=true,RestrictPublicBuckets=true"
        s3api("put-public-access-block", "--public-access-block-configuration", switches)
        self.assertIn("true", s3api("get-public-access-block"))
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        s3api("delete-public-access-block")
        s3api("put-bucket-acl", "--acl", "authenticated-read")
        self.assertEqual(self.statuses("list_objects_v2"), [200, 200, 200, 403])
        rules = "Rules=[{ObjectOwnership=BucketOwnerPreferred}]"
        s3api("put-bucket-ownership-controls", "--ownership-controls", rules)
        self.assertIn("BucketOwnerPreferred", s3api("get-bucket-ownership-controls"))
