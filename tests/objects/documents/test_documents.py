"""Documents of settings: each value is written and read again, and has one form in JSON and XML."""

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.settings import _documents, _shape
from storagegate.objects.access.acl import ALL_USERS, AccessControlList, Grant
from storagegate.objects.access.decision import PublicAccessBlock
from storagegate.objects.accounts import canonicalId
from storagegate.objects.cors import CORSRule
from storagegate.objects.documents import acl, buckets, cors, encryption, lifecycle, locks
from storagegate.objects.documents.tree import Document
from storagegate.objects.encryption.requests import BucketEncryption
from storagegate.objects.errors import InvalidArgument, MalformedDocument, UnsupportedFeature
from storagegate.objects.lifecycle import LifecycleRule
from storagegate.s3.xml.reader import readDocument
from storagegate.s3.xml.writer import writeDocument
from storagegate.storage.records import DefaultRetention, ObjectLock

ANN, BOB = canonicalId("ann"), canonicalId("bob")


class Directory:
    """Two accounts."""

    def isAccountId(self, accountId: str) -> bool:
        """Return whether it is one of the two."""
        return accountId in (ANN, BOB)

    def accountsOf(self, email: str) -> list[str]:
        """Return none: no account has an address."""
        return []


RULES = (
    LifecycleRule("all", True, "prefix", "logs/", days=30),
    LifecycleRule(
        "both",
        False,
        "and",
        "a",
        {"team": "x", "kind": "y"},
        1,
        9,
        dateMs=86_400_000,
        noncurrentDays=3,
        newer=2,
    ),
    LifecycleRule("one", True, "filter", tags={"team": "x"}, noncurrentDays=1),
    LifecycleRule("none", True, markers=True, abortDays=7),
)
LIST = AccessControlList((Grant(ANN, "FULL_CONTROL"), Grant(BOB, "READ"), Grant(ALL_USERS, "READ")))
CORS = (
    CORSRule(("https://a.example", "*"), ("GET", "PUT"), ("*",), ("ETag",), 30, "first"),
    CORSRule(("https://b.example",), ("HEAD",)),
)

ENCRYPTIONS: list[tuple[BucketEncryption, dict[str, Any]]] = [
    (
        BucketEncryption("AES256"),
        {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}},
    ),
    (
        BucketEncryption("aws:kms", "arn:aws:kms:us-east-1:1:key/main", True, ("SSE-C",)),
        {
            "ApplyServerSideEncryptionByDefault": {
                "SSEAlgorithm": "aws:kms",
                "KMSMasterKeyID": "arn:aws:kms:us-east-1:1:key/main",
            },
            "BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]},
            "BucketKeyEnabled": "true",
        },
    ),
    (
        BucketEncryption(bucketKeyEnabled=False, blocked=("NONE",)),
        {"BlockedEncryptionTypes": {"EncryptionType": ["NONE"]}, "BucketKeyEnabled": "false"},
    ),
]

Case = tuple[Any, Document, Callable[[Document], Any], Any]

CASES: list[Case] = [
    (
        RULES,
        lifecycle.writeLifecycle(RULES),
        lifecycle.readLifecycle,
        {
            "Rule": [
                {"ID": "all", "Prefix": "logs/", "Status": "Enabled", "Expiration": {"Days": "30"}},
                {
                    "ID": "both",
                    "Filter": {
                        "And": {
                            "Prefix": "a",
                            "Tag": [
                                {"Key": "team", "Value": "x"},
                                {"Key": "kind", "Value": "y"},
                            ],
                            "ObjectSizeGreaterThan": "1",
                            "ObjectSizeLessThan": "9",
                        }
                    },
                    "Status": "Disabled",
                    "Expiration": {"Date": "1970-01-02T00:00:00.000Z"},
                    "NoncurrentVersionExpiration": {
                        "NoncurrentDays": "3",
                        "NewerNoncurrentVersions": "2",
                    },
                },
                {
                    "ID": "one",
                    "Filter": {"Tag": {"Key": "team", "Value": "x"}},
                    "Status": "Enabled",
                    "NoncurrentVersionExpiration": {"NoncurrentDays": "1"},
                },
                {
                    "ID": "none",
                    "Filter": "",
                    "Status": "Enabled",
                    "Expiration": {"ExpiredObjectDeleteMarker": "true"},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": "7"},
                },
            ]
        },
    ),
    (
        CORS,
        cors.writeCORS(CORS),
        cors.readCORS,
        {
            "CORSRule": [
                {
                    "ID": "first",
                    "AllowedMethod": ["GET", "PUT"],
                    "AllowedOrigin": ["https://a.example", "*"],
                    "AllowedHeader": ["*"],
                    "ExposeHeader": ["ETag"],
                    "MaxAgeSeconds": "30",
                },
                {"AllowedMethod": ["HEAD"], "AllowedOrigin": ["https://b.example"]},
            ]
        },
    ),
    (
        LIST,
        acl.writeList("ann", LIST, {BOB: "bob"}.get),
        lambda document: acl.readList(document, "ann", Directory()),
        {
            "Owner": {"ID": ANN, "DisplayName": "ann"},
            "AccessControlList": {
                "Grant": [
                    {
                        "Grantee": {"type": "CanonicalUser", "ID": ANN, "DisplayName": "ann"},
                        "Permission": "FULL_CONTROL",
                    },
                    {
                        "Grantee": {"type": "CanonicalUser", "ID": BOB, "DisplayName": "bob"},
                        "Permission": "READ",
                    },
                    {"Grantee": {"type": "Group", "URI": ALL_USERS}, "Permission": "READ"},
                ]
            },
        },
    ),
    (
        [("team", "a b"), ("empty", "")],
        buckets.writeTagging({"team": "a b", "empty": ""}),
        buckets.readTagging,
        {"TagSet": {"Tag": [{"Key": "team", "Value": "a b"}, {"Key": "empty", "Value": ""}]}},
    ),
    ([], buckets.writeTagging({}), buckets.readTagging, {"TagSet": ""}),
    (
        "Suspended",
        buckets.writeVersioning("Suspended"),
        buckets.readVersioning,
        {"Status": "Suspended"},
    ),
    (
        "ObjectWriter",
        buckets.writeOwnership("ObjectWriter"),
        buckets.readOwnership,
        {"Rule": [{"ObjectOwnership": "ObjectWriter"}]},
    ),
    (
        PublicAccessBlock(True, False, True, False),
        buckets.writePublicAccessBlock(PublicAccessBlock(True, False, True, False)),
        buckets.readPublicAccessBlock,
        {
            "BlockPublicAcls": "true",
            "IgnorePublicAcls": "false",
            "BlockPublicPolicy": "true",
            "RestrictPublicBuckets": "false",
        },
    ),
    (
        DefaultRetention("GOVERNANCE", years=2),
        locks.writeLockConfiguration(DefaultRetention("GOVERNANCE", years=2)),
        locks.readLockConfiguration,
        {
            "ObjectLockEnabled": "Enabled",
            "Rule": [{"DefaultRetention": {"Mode": "GOVERNANCE", "Years": "2"}}],
        },
    ),
    (
        None,
        locks.writeLockConfiguration(None),
        locks.readLockConfiguration,
        {"ObjectLockEnabled": "Enabled"},
    ),
    (
        ObjectLock("COMPLIANCE", 4_102_444_800_000),
        locks.writeRetention(ObjectLock("COMPLIANCE", 4_102_444_800_000)),
        locks.readRetention,
        {"Mode": "COMPLIANCE", "RetainUntilDate": "2100-01-01T00:00:00.000Z"},
    ),
    (True, locks.writeLegalHold(True), locks.readLegalHold, {"Status": "ON"}),
    *(
        (value, encryption.writeEncryption(value), encryption.readEncryption, {"Rule": [rule]})
        for value, rule in ENCRYPTIONS
    ),
]


class DocumentTests(SynchronousTestCase):
    """Each setting on both wires."""

    def test_json(self) -> None:
        """A value has the documented form in JSON, from which the same value is read."""
        for value, document, read, shape in CASES:
            self.assertEqual(_shape(document), shape)
            (again,) = _documents(document.name, shape, 0)
            self.assertEqual(read(again), value)

    def test_xml(self) -> None:
        """The same value is read from its XML."""
        for value, document, read, _ in CASES:
            again = readDocument(writeDocument(document), document.name)
            self.assertEqual(read(again), value)
            self.assertEqual(_shape(again), _shape(again))

    def test_numbers(self) -> None:
        """JSON may have numbers and booleans where a document has texts."""
        expiration = {"Days": 3}
        rule = {"ID": "a", "Prefix": "", "Status": "Enabled", "Expiration": expiration}
        (document,) = _documents("LifecycleConfiguration", {"Rule": rule}, 0)
        (found,) = lifecycle.readLifecycle(document)
        self.assertEqual(found.days, 3)
        (document,) = _documents("Block", {"BlockPublicAcls": True}, 0)
        self.assertEqual(buckets.readPublicAccessBlock(document), PublicAccessBlock(True))

    def test_malformed(self) -> None:
        """JSON that no document can have is refused."""
        deep: Any = "x"
        for _ in range(20):
            deep = {"A": deep}
        for wrong in ({"a b": "x"}, {"A": None}, {"A": 1.5}, {"A": "\x01"}, {"": "x"}, deep):
            self.assertRaises(MalformedDocument, list, _documents("Tagging", wrong, 0))


class EncryptionTests(SynchronousTestCase):
    """The configuration of encryption, which has one rule."""

    def read(self, *rules: Any) -> BucketEncryption:
        """Read a configuration with these rules."""
        (document,) = _documents("ServerSideEncryptionConfiguration", {"Rule": list(rules)}, 0)
        return encryption.readEncryption(document)

    def default(self, kind: str, **more: str) -> dict[str, Any]:
        """Write a rule with a default."""
        return {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": kind, **more}}

    def test_malformed(self) -> None:
        """Another number of rules, an empty rule or an unknown member is no configuration."""
        kind = self.default("AES256")
        for rules in (
            (),
            (kind, kind),
            ("",),
            (self.default(""),),
            (self.default("aes256"),),
            (self.default("SSE-C"),),
            (self.default("aws:kms", KMSMasterKeyID="k" * 2049),),
            (self.default("aws:kms", Other="k"),),
            ({**kind, "BucketKeyEnabled": "perhaps"},),
            ({**kind, "Other": "x"},),
            ({"BlockedEncryptionTypes": {"EncryptionType": ["SSE-KMS"]}},),
            ({"BlockedEncryptionTypes": {"EncryptionType": ["NONE", "SSE-C"]}},),
            ({"BlockedEncryptionTypes": ""},),
            ({"ApplyServerSideEncryptionByDefault": {"KMSMasterKeyID": "k"}},),
        ):
            self.assertRaises(MalformedDocument, self.read, *rules)

    def test_keyOfStore(self) -> None:
        """Only SSE-KMS names a master key."""
        self.assertRaises(InvalidArgument, self.read, self.default("AES256", KMSMasterKeyID="k"))

    def test_unsupported(self) -> None:
        """A kind that Amazon has and the store has not is no malformed one."""
        for kind in ("aws:kms:dsse", "aws:fsx"):
            self.assertRaises(UnsupportedFeature, self.read, self.default(kind))

    def test_default(self) -> None:
        """A rule without a default leaves objects plain, also if it blocks the clients' keys."""
        for value, _ in ENCRYPTIONS:
            self.assertEqual(value.default is None, not value.kind)
            self.assertEqual(value.blocksCustomerKeys, value.blocked == ("SSE-C",))
