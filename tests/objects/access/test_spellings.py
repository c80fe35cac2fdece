"""Every spelling that an operation accepts is one value to the conditions of a policy."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.context import CONDITION_KEYS, AccessContext, PlainCaller
from storagegate.objects.access.policy import compilePolicy
from storagegate.objects.accounts import Identity
from storagegate.s3.names import copiedObject

ANN = Identity("AKANN", "ann")
OWNER = "a" * 64
OTHER = "b" * 64
GROUP = "http://acs.amazonaws.com/groups/global/AllUsers"
DIGEST = "0123456789abcdef" * 4


def asked(operation: str, **parts: Any) -> AccessContext:
    """Make a request for an object."""
    source = copiedObject(parts.get("headers", {}))
    caller = PlainCaller(ANN, operation, 1_700_000_000.0, copySource=source, **parts)
    return AccessContext(ANN, caller, "box", "k", "bob", operation)


def header(operation: str, name: str, *values: str | None) -> Sequence[AccessContext]:
    """Make a request for each value of a header; L{None}: without it."""
    return [
        asked(operation, headers={} if each is None else {name.encode(): each.encode()})
        for each in values
    ]


def listed(*queries: Mapping[str, str]) -> Sequence[AccessContext]:
    """Make a list for each query."""
    return [asked("ListObjectsV2", query=each) for each in queries]


# The key; requests that do the same; what policies may call it; and what they may not.
TABLE: Sequence[tuple[str, Sequence[AccessContext], Sequence[str], Sequence[str]]] = (
    (
        "s3:x-amz-copy-source",
        header(
            "CopyObject",
            "x-amz-copy-source",
            "b/private/x",
            "/b/private/x",
            "b/%70rivate/x",
            "%62/private%2Fx",
            "%2Fb/private/x",
            "/b/private/x?versionId=v",
            "b/p%72ivate/x?versionId=v",
        ),
        ("b/private/x", "/b/private/x"),
        ("b/%70rivate/x", "private/x", "//b/private/x"),
    ),
    (
        "s3:x-amz-acl",
        header("PutObject", "x-amz-acl", "private", " private ", None),
        ("private",),
        ("public-read", ""),
    ),
    (
        "s3:x-amz-storage-class",
        [
            *header("PutObject", "x-amz-storage-class", "STANDARD", None),
            asked("CopyObject", headers={b"x-amz-metadata-directive": b"replace"}),
        ],
        ("STANDARD",),
        ("STANDARD_IA",),
    ),
    (
        "s3:x-amz-metadata-directive",
        header("CopyObject", "x-amz-metadata-directive", "COPY", "copy", "Copy", None),
        ("COPY", "copy"),
        ("REPLACE",),
    ),
    (
        "s3:x-amz-content-sha256",
        header("PutObject", "x-amz-content-sha256", "UNSIGNED-PAYLOAD", None),
        ("UNSIGNED-PAYLOAD",),
        (DIGEST,),
    ),
    (
        "s3:x-amz-content-sha256",
        header("PutObject", "x-amz-content-sha256", DIGEST, DIGEST.upper()),
        (DIGEST, DIGEST.upper()),
        ("UNSIGNED-PAYLOAD",),
    ),
    *(
        (
            f"s3:{name}",
            header(
                "PutObject",
                name,
                f"id={OWNER},uri={GROUP}",
                f'uri="{GROUP}", ID = "{OWNER}"',
                f"id={OWNER}, id={OWNER} ,uri={GROUP}",
                f"URI={GROUP},id={OWNER}",
            ),
            (f"id={OWNER},uri={GROUP}", f'uri="{GROUP}", id="{OWNER}"'),
            (f"id={OTHER},uri={GROUP}", f"id={OWNER}"),
        )
        for name in (
            "x-amz-grant-read",
            "x-amz-grant-write",
            "x-amz-grant-full-control",
            "x-amz-grant-read-acp",
            "x-amz-grant-write-acp",
        )
    ),
    (
        "s3:object-lock-retain-until-date",
        header(
            "PutObject",
            "x-amz-object-lock-retain-until-date",
            "2030-01-01T00:00:00Z",
            "2030-01-01",
            "2030-01-01T01:00:00+01:00",
            "2030-01-01T00:00:00.000Z",
            "2029-12-31T23:59:59.5Z",
        ),
        ("2030-01-01T00:00:00Z", "2030-01-01"),
        ("2030-01-02",),
    ),
    (
        "s3:if-none-match",
        header("PutObject", "if-none-match", "*", '"*"', "*, x", 'W/"*"'),
        ("*",),
        ("x",),
    ),
    (
        "s3:if-match",
        header("PutObject", "if-match", "abc", '"abc"', ' "abc" ,abc'),
        ("abc", '"abc"'),
        ("x", "*"),
    ),
    ("s3:prefix", listed({"prefix": ""}, {}), ("",), ("a",)),
    ("s3:delimiter", listed({"delimiter": ""}, {}), ("",), ("/",)),
    (
        "s3:max-keys",
        listed({"max-keys": "1000"}, {}, {"max-keys": "01000"}, {"max-keys": "5000"}),
        ("1000",),
        ("5000", "10"),
    ),
    *(
        (
            "aws:SourceIp",
            [
                asked("GetObject", address=each)
                for each in ("10.9.9.9", "::ffff:10.9.9.9", "::FFFF:a09:909", "64:ff9b::10.9.9.9")
            ],
            values,
            ("10.9.9.8",),
        )
        for values in [("10.9.9.9",)]
    ),
)


class SpellingTests(SynchronousTestCase):
    """The table."""

    def holds(self, request: AccessContext, effect: str, condition: Mapping[str, Any]) -> bool:
        """Return whether a statement with a condition applies to a request."""
        statement = {
            "Effect": effect,
            "Principal": "*",
            "Action": "s3:*",
            "Resource": ["arn:aws:s3:::box", "arn:aws:s3:::box/*"],
            "Condition": condition,
        }
        policy = compilePolicy(json.dumps({"Statement": [statement]}).encode(), "box")
        return policy.evaluate("s3:PutObject", request) is not None

    def test_alike(self) -> None:
        """Each spelling is decided on as the others are, by statements of both effects."""
        for key, requests, names, others in TABLE:
            for number, request in enumerate(requests):
                for effect in ("Allow", "Deny"):
                    for name in names:
                        for operator, expected in (
                            ("StringEquals", True),
                            ("StringNotEquals", False),
                        ):
                            found = self.holds(request, effect, {operator: {key: name}})
                            self.assertIs(found, expected, (key, number, operator, name))
                    for name in others:
                        found = self.holds(request, effect, {"StringEquals": {key: name}})
                        self.assertIs(found, False, (key, number, name))

    def test_wildcards(self) -> None:
        """Patterns match the canonical value, with the slash ahead or without."""
        sources = header("CopyObject", "x-amz-copy-source", "b/%70rivate/x", "/b/private%2Fx")
        for request in sources:
            for pattern in ("b/private/*", "/b/private/*", "b/*", "?/private/*", "*private*"):
                condition = {"StringLike": {"s3:x-amz-copy-source": pattern}}
                self.assertTrue(self.holds(request, "Deny", condition), pattern)

    def test_null(self) -> None:
        """Whether a parameter was sent can still be asked."""
        for key, requests, _, _ in TABLE:
            if key in ("aws:SourceIp", "s3:x-amz-copy-source"):
                continue
            name = key.removeprefix("s3:")
            field = f"x-amz-{name}" if name.startswith("object-lock") else name
            for request in requests:
                caller = request.request
                isSent = field.encode() in caller.headers or name in caller.query
                found = self.holds(request, "Deny", {"Null": {key: not isSent}})
                self.assertTrue(found, (key, caller))

    def test_elsewhere(self) -> None:
        """A parameter counts for the operations that obey it, and for no other."""
        for key in ("s3:prefix", "s3:delimiter", "s3:max-keys"):
            name = key.removeprefix("s3:")
            for operation in ("GetObject", "HeadBucket"):
                read = CONDITION_KEYS[key].read
                self.assertIsNone(read(asked(operation, query={name: "1"})), key)
        source = {b"x-amz-copy-source": b"b/private/x"}
        for operation in ("PostObject", "CompleteMultipartUpload", "GetObject"):
            request = asked(operation, headers=source)
            self.assertIsNone(CONDITION_KEYS["s3:x-amz-copy-source"].read(request), operation)
        for key in ("s3:x-amz-acl", "s3:x-amz-storage-class"):
            self.assertIsNone(CONDITION_KEYS[key].read(asked("UploadPart")), key)
        grant = asked("PutObject", headers={b"x-amz-grant-read": b"id=x"})
        self.assertIsNone(CONDITION_KEYS["s3:x-amz-acl"].read(grant))
        # A copy has the class of its source.
        self.assertIsNone(CONDITION_KEYS["s3:x-amz-storage-class"].read(asked("CopyObject")))

    def test_refused(self) -> None:
        """What the operation refuses has no value."""
        for key, requests in (
            ("s3:x-amz-copy-source", header("CopyObject", "x-amz-copy-source", "b/%zz")),
            ("s3:max-keys", listed({"max-keys": "ten"})),
        ):
            self.assertEqual([CONDITION_KEYS[key].read(each) for each in requests], [None], key)
