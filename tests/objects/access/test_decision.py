"""The decision: the order of its steps, owners, lists, and what limits the public."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import AccessControlList, cannedList
from storagegate.objects.access.context import AccessContext, PlainCaller
from storagegate.objects.access.decision import (
    BUCKET_OWNER_ENFORCED,
    BUCKET_OWNER_PREFERRED,
    OBJECT_WRITER,
    BucketAccess,
    PublicAccessBlock,
)
from storagegate.objects.access.patterns import patternText
from storagegate.objects.access.policy import BucketPolicy, compilePolicy
from storagegate.objects.accounts import ANONYMOUS, Identity, KeyPolicy
from storagegate.objects.errors import AccessDenied, DomainError, Refusal
from storagegate.storage.records import Bucket

ANN, BOB, EVE = (Identity(f"AK{name}", name) for name in ("ann", "bob", "eve"))
LIMITED = Identity("AKLIMITED", "ann", KeyPolicy("readonly"))
ROOT = Identity("AKROOT", "root", isRoot=True)
ALL = (ROOT, ANN, BOB, EVE, ANONYMOUS)


def policy(*statements: dict[str, Any]) -> BucketPolicy:
    """Compile a policy of ann's bucket."""
    document = {"Version": "2012-10-17", "Statement": statements}
    return compilePolicy(json.dumps(document).encode(), "box")


def rule(effect: str, principal: Any = "*", action: Any = "s3:*") -> dict[str, Any]:
    """Return a statement about the bucket and all that is in it."""
    resources = ["arn:aws:s3:::box", "arn:aws:s3:::box/*"]
    return {"Effect": effect, "Principal": principal, "Action": action, "Resource": resources}


class DecisionTests(SynchronousTestCase):
    """Who may."""

    def allowed(
        self,
        access: BucketAccess,
        action: str,
        owner: str | None = None,
        acl: AccessControlList | None = None,
    ) -> list[str]:
        """Return the accounts that may; C{-} is the anonymous one."""
        return [
            each.account or "-"
            for each in ALL
            if access.allows(each, action, lambda each=each: self.context(each), owner, acl)
        ]

    def context(self, identity: Identity) -> AccessContext:
        """Describe a request."""
        caller = PlainCaller(identity, "GetObject")
        return AccessContext(identity, caller, "box", "key", "ann", "GetObject")

    def test_private(self) -> None:
        """A bucket without settings is its account's, and the root key's."""
        access = BucketAccess("ann")
        for action in ("s3:ListBucket", "s3:PutObject", "s3:GetObject", "s3:PutBucketPolicy"):
            self.assertEqual(self.allowed(access, action), ["root", "ann"])

    def test_deny(self) -> None:
        """A denial binds the owner, but for the policy itself, and never the root key."""
        access = BucketAccess("ann", policy(rule("Deny"), rule("Allow")))
        self.assertEqual(self.allowed(access, "s3:GetObject", "ann"), ["root"])
        for action in ("s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"):
            self.assertEqual(self.allowed(access, action), ["root", "ann"])
            denied = access.allows(LIMITED, action, lambda: self.context(LIMITED))
            self.assertFalse(denied)
        self.assertEqual(self.allowed(access, "s3:GetBucketPolicyStatus"), ["root"])

    def test_policyOfAnother(self) -> None:
        """No statement opens the policy itself to another account, which could then do all."""
        access = BucketAccess("ann", policy(rule("Allow")))
        for action in ("s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"):
            self.assertEqual(self.allowed(access, action), ["root", "ann"])
            self.assertFalse(access.couldAllow(BOB, action))
            self.assertIsNone(access.reaches(BOB, action))
        self.assertEqual(
            self.allowed(access, "s3:GetBucketPolicyStatus"), ["root", "ann", "bob", "eve", "-"]
        )

    def test_denyOverLists(self) -> None:
        """A denial wins over every grant."""
        public = cannedList("public-read-write", "ann")
        access = BucketAccess("ann", policy(rule("Deny", {"AWS": "bob"})), public)
        self.assertEqual(
            self.allowed(access, "s3:GetObject", "ann", public), ["root", "ann", "eve", "-"]
        )
        self.assertEqual(self.allowed(access, "s3:PutObject"), ["root", "ann", "eve", "-"])

    def test_allow(self) -> None:
        """A statement that allows opens the bucket to those that it names."""
        access = BucketAccess("ann", policy(rule("Allow", {"AWS": "bob"})))
        self.assertEqual(self.allowed(access, "s3:GetObject", "ann"), ["root", "ann", "bob"])
        self.assertEqual(self.allowed(access, "s3:ListBucket"), ["root", "ann", "bob"])
        self.assertEqual(
            self.allowed(BucketAccess("ann", policy(rule("Allow"))), "s3:GetObject", "ann"),
            ["root", "ann", "bob", "eve", "-"],
        )

    def test_objectOfAnother(self) -> None:
        """An object is its account's: the bucket's may only delete it, and no policy opens it."""
        access = BucketAccess("ann", policy(rule("Allow", {"AWS": "eve"})))
        for action in ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObjectAcl"):
            self.assertEqual(self.allowed(access, action, "bob"), ["root", "bob"])
        for action in ("s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject"):
            self.assertEqual(self.allowed(access, action, "bob"), ["root", "ann", "eve"])
        shared = cannedList("bucket-owner-read", "bob", "ann")
        self.assertEqual(
            self.allowed(access, "s3:GetObject", "bob", shared), ["root", "ann", "bob"]
        )

    def refusal(self, access: BucketAccess, caller: PlainCaller, key: bytes = b"key") -> Refusal:
        """Return the rule by which a request is refused."""
        bucket = Bucket("box", "ann", 0, "here", "", "", False, 1)
        refused = self.assertRaises(
            AccessDenied, access.decide, caller, bucket, key, None, None, isHypothetical=True
        )
        self.assertEqual(refused.message, "Access Denied")
        assert refused.explain is not None
        return refused.explain()

    def test_explain(self) -> None:
        """A refusal names the statement that denies, or says that none allows."""
        keep = {**rule("Deny", action="s3:DeleteObject"), "Sid": "KeepAll"}
        access = BucketAccess("ann", policy(rule("Allow", {"AWS": "bob"}, "s3:GetObject"), keep))
        for caller in (ANN, BOB):
            self.assertEqual(
                self.refusal(access, PlainCaller(caller, "DeleteObject")),
                Refusal("statement KeepAll of the policy of box denies s3:DeleteObject", 2),
            )
        self.assertEqual(
            self.refusal(access, PlainCaller(EVE, "GetObject")),
            Refusal("no statement of the policy of box and no grant allows s3:GetObject"),
        )
        unnamed = BucketAccess("ann", policy(rule("Deny")))
        self.assertEqual(
            self.refusal(unnamed, PlainCaller(BOB, "PutObject")),
            Refusal("statement 1 of the policy of box denies s3:PutObject", 1),
        )
        closed = PublicAccessBlock(restrictPublicBuckets=True)
        self.assertEqual(
            self.refusal(
                BucketAccess("ann", policy(rule("Allow")), None, closed),
                PlainCaller(BOB, "GetObject"),
            ),
            Refusal("box has a public policy, and admits only its own account"),
        )

    def test_explainMissing(self) -> None:
        """A missing object is refused for its own action, or because the caller may not list."""
        bucket = Bucket("box", "ann", 0, "here", "", "", False, 1)
        for statements, text, number in (
            (
                [rule("Deny", action="s3:GetObject")],
                "statement 1 of the policy of box denies s3:GetObject",
                1,
            ),
            (
                [rule("Allow", action="s3:GetObject")],
                "the object does not exist, and no statement of the policy of box and no grant"
                " allows s3:ListBucket",
                0,
            ),
        ):
            access = BucketAccess("ann", policy(*statements))
            caller = PlainCaller(BOB, "GetObject")
            refused = self.assertRaises(AccessDenied, access.decide, caller, bucket, b"key")
            assert refused.explain is not None
            self.assertEqual(refused.explain(), Refusal(text, number))

    def test_explainKey(self) -> None:
        """The limits of a key are named, too."""
        for limits, access, text in (
            (
                KeyPolicy("readonly"),
                "write",
                "the policy readonly of the key does not include write",
            ),
            (
                KeyPolicy("readwrite", "logs-*"),
                "read",
                "the key is limited to buckets that match logs-*",
            ),
            (
                KeyPolicy("readwrite", "", "2026/*"),
                "read",
                "the key is limited to object keys that match 2026/*",
            ),
            (
                KeyPolicy("readwrite", "", "2026/*"),
                "admin",
                "a key that is limited to some objects cannot administer",
            ),
        ):
            identity = Identity("AK", "ann", limits)
            refused = self.assertRaises(AccessDenied, identity.authorise, access, "box", b"key")
            assert refused.explain is not None
            self.assertEqual(refused.explain(), Refusal(text))

    def test_objectOfRoot(self) -> None:
        """What the root key writes for an account is that account's to use."""
        access = BucketAccess("ann", policy(rule("Allow", {"AWS": "eve"})))
        self.assertEqual(self.allowed(access, "s3:GetObject", "root"), ["root", "ann", "eve"])

    def test_anonymousObject(self) -> None:
        """What an anonymous request has written is not that of the next one."""
        self.assertEqual(self.allowed(BucketAccess("ann"), "s3:GetObject", ""), ["root"])

    def test_enforced(self) -> None:
        """Where the bucket's account owns all, no list counts and the policy opens everything."""
        public = cannedList("public-read-write", "bob")
        access = BucketAccess(
            "ann", policy(rule("Allow", {"AWS": "eve"})), public, ownership=BUCKET_OWNER_ENFORCED
        )
        for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:PutObjectAcl"):
            self.assertEqual(self.allowed(access, action, "bob", public), ["root", "ann", "eve"])

    def test_lists(self) -> None:
        """The lists of a bucket and of an object grant each its own actions."""
        public = cannedList("public-read-write", "ann")
        everyone = ["root", "ann", "bob", "eve", "-"]
        access = BucketAccess("ann", acl=public)
        for action in ("s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:PutObject"):
            self.assertEqual(self.allowed(access, action), everyone)
        for action in ("s3:GetObject", "s3:GetBucketAcl", "s3:PutBucketAcl", "s3:GetBucketPolicy"):
            self.assertEqual(self.allowed(access, action), ["root", "ann"])
        self.assertEqual(self.allowed(access, "s3:DeleteObject", "bob"), ["root", "ann", "bob"])
        self.assertEqual(self.allowed(access, "s3:DeleteObject"), everyone)
        read = cannedList("authenticated-read", "ann")
        access = BucketAccess("ann")
        for action in ("s3:GetObject", "s3:GetObjectVersion"):
            self.assertEqual(self.allowed(access, action, "ann", read), everyone[:-1])
        self.assertEqual(self.allowed(access, "s3:GetObjectAcl", "ann", read), ["root", "ann"])

    def test_ignorePublicAcls(self) -> None:
        """Grants to groups do not count; those to accounts do."""
        block = PublicAccessBlock(ignorePublicAcls=True)
        access = BucketAccess("ann", acl=cannedList("public-read-write", "ann"), block=block)
        self.assertEqual(self.allowed(access, "s3:ListBucket"), ["root", "ann"])
        shared = cannedList("bucket-owner-full-control", "ann", "bob")
        self.assertEqual(
            self.allowed(access, "s3:GetObject", "ann", shared), ["root", "ann", "bob"]
        )

    def test_restrictPublicBuckets(self) -> None:
        """With a public policy a bucket is its own account's only; with another one it is not."""
        block = PublicAccessBlock(restrictPublicBuckets=True)
        public = policy(rule("Allow"), rule("Allow", {"AWS": "bob"}))
        access = BucketAccess("ann", public, block=block)
        self.assertEqual(self.allowed(access, "s3:GetObject", "ann"), ["root", "ann"])
        named = policy(rule("Allow", {"AWS": "bob"}))
        access = BucketAccess("ann", named, block=block)
        self.assertEqual(self.allowed(access, "s3:GetObject", "ann"), ["root", "ann", "bob"])

    def test_initiator(self) -> None:
        """An upload is its initiator's, also under enforced ownership; a denial wins."""
        for action in ("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"):
            for ownership in (OBJECT_WRITER, BUCKET_OWNER_ENFORCED):
                access = BucketAccess("ann", ownership=ownership)
                self.assertEqual(self.allowed(access, action, "bob"), ["root", "ann", "bob"])
                self.assertEqual(self.allowed(access, action, ""), ["root", "ann"])
            denied = BucketAccess("ann", policy(rule("Deny", "*", action)))
            self.assertEqual(self.allowed(denied, action, "bob"), ["root"])
        self.assertEqual(self.allowed(BucketAccess("ann"), "s3:PutObject", "bob"), ["root", "ann"])

    def test_newLists(self) -> None:
        """What the settings forbid a new list to be."""
        public, private = cannedList("public-read", "ann"), cannedList("private", "ann")
        blocked = BucketAccess("ann", block=PublicAccessBlock(blockPublicAcls=True))
        enforced = BucketAccess("ann", ownership=BUCKET_OWNER_ENFORCED)
        for access, code in (
            (blocked, "AccessDenied"),
            (enforced, "AccessControlListNotSupported"),
        ):
            error = self.assertRaises(DomainError, access.checkList, public)
            self.assertEqual(error.code, code)
            access.checkList(private)
        enforced.checkList(private, "bucket-owner-full-control")
        for canned in ("private", "bucket-owner-read"):
            error = self.assertRaises(DomainError, enforced.checkList, private, canned)
            self.assertEqual(error.code, "AccessControlListNotSupported")
        BucketAccess("ann").checkList(public)
        BucketAccess("ann").checkList(private, "private")

    def test_owners(self) -> None:
        """A new object is its writer's, or the bucket's account's where the ownership says so."""
        full = cannedList("bucket-owner-full-control", "bob", "ann")
        for ownership, acl, expected in (
            ("ObjectWriter", None, "bob"),
            ("ObjectWriter", full, "bob"),
            (BUCKET_OWNER_PREFERRED, None, "bob"),
            (BUCKET_OWNER_PREFERRED, full, "ann"),
            (BUCKET_OWNER_ENFORCED, None, "ann"),
            (BUCKET_OWNER_ENFORCED, full, "ann"),
        ):
            access = BucketAccess("ann", ownership=ownership)
            self.assertEqual(access.ownerOf("bob", acl), expected)


def folder(effect: str, action: Any, keys: str, principal: Any = "*") -> dict[str, Any]:
    """Return a statement about some objects only."""
    resource = f"arn:aws:s3:::box/{keys}"
    return {"Effect": effect, "Principal": principal, "Action": action, "Resource": resource}


class ExposureTests(SynchronousTestCase):
    """The access of others than the owner, without a request."""

    def test_exposure(self) -> None:
        """Only statements and grants that take effect count, the most serious one of them."""
        bob = {"AWS": "bob"}
        near = {"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}
        secure = {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}
        public = policy(folder("Allow", "s3:GetObject", "a/*"))
        restricted = PublicAccessBlock(restrictPublicBuckets=True)
        ignored = PublicAccessBlock(ignorePublicAcls=True)
        readable, other = cannedList("public-read", "ann"), cannedList("authenticated-read", "ann")
        for access, expected in (
            (BucketAccess("ann"), "private"),
            (BucketAccess("ann", policy(rule("Deny", "*", "s3:GetObject"))), "private"),
            (BucketAccess("ann", policy(rule("Allow", bob))), "shared"),
            (BucketAccess("ann", policy({**rule("Allow"), **near})), "shared"),
            (BucketAccess("ann", policy(rule("Allow", "*", "s3:ListBucket"))), "publicList"),
            (BucketAccess("ann", public), "publicRead"),
            (BucketAccess("ann", policy(rule("Allow"))), "publicWrite"),
            (BucketAccess("ann", policy(folder("Allow", "s3:*", "in/*"))), "publicWrite"),
            (
                BucketAccess(
                    "ann", policy(rule("Allow"), {**rule("Deny", "*", "s3:Put*"), **secure})
                ),
                "publicWrite",
            ),
            (
                BucketAccess(
                    "ann",
                    policy(
                        folder("Allow", "s3:*Object", "*"),
                        folder("Deny", ["s3:PutObject", "s3:DeleteObject"], "*"),
                    ),
                ),
                "publicRead",
            ),
            (BucketAccess("ann", public, block=restricted), "private"),
            (BucketAccess("ann", acl=readable), "publicList"),
            (BucketAccess("ann", acl=cannedList("public-read-write", "ann")), "publicWrite"),
            (BucketAccess("ann", acl=readable, ownership=BUCKET_OWNER_ENFORCED), "private"),
            (BucketAccess("ann", acl=other), "shared"),
            (BucketAccess("ann", acl=readable, block=ignored), "private"),
        ):
            self.assertEqual(access.exposure, expected, access)

    def test_reaches(self) -> None:
        """An identity reaches the keys of the statements that name it, unless all are denied."""
        bob = {"AWS": "bob"}
        access = BucketAccess(
            "ann",
            policy(
                folder("Allow", "s3:GetObject", "a/*", bob),
                folder("Allow", "s3:GetObject", "b/${aws:username}/?", bob),
                folder("Deny", "s3:PutObject", "*"),
                rule("Allow", bob, "s3:ListBucket"),
            ),
        )
        for identity, action, expected in (
            (BOB, "s3:GetObject", ["a/*", "b/${aws:username}/?"]),
            (BOB, "s3:ListBucket", []),
            (BOB, "s3:PutObject", None),
            (EVE, "s3:GetObject", None),
            (ANN, "s3:GetObject", ["*"]),
            (ANN, "s3:PutObject", None),
            (ANONYMOUS, "s3:GetObject", None),
        ):
            found = access.reaches(identity, action)
            texts = None if found is None else [patternText(each) for each in found]
            self.assertEqual(texts, expected, (identity.account, action))
        whole = BucketAccess("ann", policy(rule("Deny")))
        self.assertIsNotNone(whole.reaches(ANN, "s3:PutBucketPolicy"))
        self.assertIsNone(whole.reaches(LIMITED, "s3:PutBucketPolicy"))
