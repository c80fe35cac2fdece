"""Policies of browser forms: each condition, and each way not to meet it."""

import json
from base64 import b64encode
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storagegate.s3.errors import S3Error
from storagegate.s3.postform import CONDITION_LIMIT, POLICY_LIMIT, SizeLimits, checkPolicy
from tests.s3.examples import S3Case
from tests.support.selection import rounds

NOW = 1_700_000_000  # 2023-11-14T22:13:20Z
EXPIRATION = "2023-11-14T22:13:20.000Z"
CONDITIONS: list[Any] = [
    {"bucket": "photos"},
    ["starts-with", "$key", "user/eric/"],
    {"acl": "public-read"},
    ["eq", "$success_action_status", "201"],
    ["starts-with", "$Content-Type", "image/"],
    ["content-length-range", 10, 20],
]
FIELDS = {
    "key": "user/eric/me.png",
    "acl": "public-read",
    "success_action_status": "201",
    "content-type": "image/png",
}


def encoded(conditions: Any = CONDITIONS, expiration: Any = EXPIRATION, **more: Any) -> str:
    """Write a policy."""
    document = {"expiration": expiration, "conditions": conditions, **more}
    return b64encode(json.dumps(document).encode()).decode()


def checkFields(
    fields: dict[str, str] | None = None, policy: str | None = None, now: float = NOW
) -> SizeLimits:
    """Hold a form that was sent to C{photos} against a policy."""
    return checkPolicy(
        encoded() if policy is None else policy,
        FIELDS if fields is None else fields,
        "photos",
        now,
    )


class ConditionTests(S3Case):
    """What a policy allows."""

    def denied(self, fields: dict[str, str], policy: str | None = None) -> str:
        """Assert that a form is refused by its policy, and give the rest of the sentence."""
        message = self.refused("AccessDenied", 403, checkFields, fields, policy).message
        head, colon, rest = message.partition(": ")
        self.assertEqual((head, colon), ("Invalid according to Policy", ": "))
        return rest

    def test_allowed(self) -> None:
        """A form that meets all conditions is allowed, with the sizes that its file may have."""
        self.assertEqual(checkFields(), SizeLimits(10, 20))

    def test_eachCondition(self) -> None:
        """Each condition that is not met is refused, and shown."""
        for name, value, condition in (
            ("key", "user/other", '["starts-with", "$key", "user/eric/"]'),
            ("key", "../user/eric/", '["starts-with", "$key", "user/eric/"]'),
            ("acl", "public-read-write", '["eq", "$acl", "public-read"]'),
            ("success_action_status", "200", '["eq", "$success_action_status", "201"]'),
            ("content-type", "text/html", '["starts-with", "$content-type", "image/"]'),
        ):
            rest = self.denied({**FIELDS, name: value})
            self.assertEqual(rest, f"Policy Condition failed: {condition}")
            without = {field: text for field, text in FIELDS.items() if field != name}
            self.assertEqual(self.denied(without), f"Policy Condition failed: {condition}")

    def test_bucket(self) -> None:
        """The bucket is that of the request, whatever a field says; and it must be named."""
        other = encoded([{"bucket": "other"}, *CONDITIONS[1:]])
        self.denied({**FIELDS, "bucket": "other"}, other)
        self.assertEqual(self.denied(FIELDS, encoded(CONDITIONS[1:])), "Extra input fields: bucket")

    def test_uncovered(self) -> None:
        """A field without a condition is refused, but for those that need none."""
        for name in ("x-amz-meta-a", "x-amz-credential", "success_action_redirect", "tagging"):
            rest = self.denied({**FIELDS, name: ""})
            self.assertEqual(rest, f"Extra input fields: {name}")
        for name in (
            "file",
            "policy",
            "x-amz-signature",
            "signature",
            "awsaccesskeyid",
            "x-ignore-x",
        ):
            checkFields({**FIELDS, name: "anything"})

    def test_contentTypes(self) -> None:
        """Of a list of types each has to begin as the condition says."""
        checkFields({**FIELDS, "content-type": "image/png, image/jpeg"})
        self.denied({**FIELDS, "content-type": "image/png, text/html"})

    def test_case(self) -> None:
        """Names and operators are the same in any case, values are not."""
        policy = encoded(
            [{"bUcKeT": "photos"}, ["StArTs-WiTh", "$KeY", "a"], ["EQ", "$Acl", "private"]]
        )
        checkFields({"key": "abc", "acl": "private"}, policy)
        self.denied({"key": "Abc", "acl": "private"}, policy)

    def test_several(self) -> None:
        """All conditions on a field have to hold."""
        policy = encoded([{"bucket": "photos"}, ["starts-with", "$key", "a"], {"key": "ab"}])
        checkFields({"key": "ab"}, policy)
        self.denied({"key": "a"}, policy)

    def test_expired(self) -> None:
        """A policy is good until its moment, and not after."""
        checkFields(now=NOW)
        error = self.refused("AccessDenied", 403, checkFields, None, None, NOW + 0.001)
        self.assertEqual(error.message, "Invalid according to Policy: Policy expired.")
        checkFields(policy=encoded(expiration="2023-11-14T22:13:21Z"), now=NOW + 1)

    def test_omitted(self) -> None:
        """A form without a policy is refused."""
        self.refused("AccessDenied", 403, checkPolicy, None, FIELDS, "photos", NOW)
        self.refused("AccessDenied", 403, checkPolicy, "", FIELDS, "photos", NOW)


class SizeTests(S3Case):
    """C{content-length-range}."""

    def test_bounds(self) -> None:
        """Both bounds are allowed; one byte less or more is not."""
        limits = checkFields()
        limits.check(10)
        limits.check(20)
        error = self.refused("EntityTooSmall", 400, limits.check, 9)
        self.assertEqual(error.fields, {"ProposedSize": "9", "MinSizeAllowed": "10"})
        error = self.refused("EntityTooLarge", 400, limits.check, 21)
        self.assertEqual(error.fields, {"ProposedSize": "21", "MaxSizeAllowed": "20"})

    def test_several(self) -> None:
        """Of several ranges what they have in common is allowed; without one, all."""
        ranges = [["content-length-range", 5, 15], ["content-length-range", "10", "99"]]
        policy = encoded([*CONDITIONS[:-1], *ranges])
        self.assertEqual(checkFields(policy=policy), SizeLimits(10, 15))
        limits = checkFields(policy=encoded(CONDITIONS[:-1]))
        limits.check(0)
        limits.check(5 << 40)


class DocumentTests(S3Case):
    """What is no policy."""

    def malformed(self, policy: str) -> str:
        """Assert that a policy cannot be read, and give the sentence."""
        return self.refused("InvalidPolicyDocument", 400, checkFields, None, policy).message

    def raw(self, text: str) -> str:
        """Encode a text as a policy."""
        return b64encode(text.encode()).decode()

    def test_encoding(self) -> None:
        """Base64 of a JSON object in UTF-8; white space in it is of no account."""
        for policy in ("?", "AAA", b64encode(b'"\xff"').decode(), self.raw("[]"), self.raw("{")):
            self.malformed(policy)
        policy = encoded()
        checkFields(policy=policy[:40] + "\r\n" + policy[40:])

    def test_limits(self) -> None:
        """Too long, too deep, or with too many conditions."""
        checkFields(policy=encoded(padding="A" * 10_000))
        policy = encoded(padding="A" * POLICY_LIMIT)
        self.assertIn("too long", self.malformed(policy))
        self.malformed(self.raw("[" * 14_000))
        self.malformed(self.raw('{"a":' * 2_800))
        self.malformed(self.raw('{"a":' + "1" * 5_000 + "}"))
        self.malformed(encoded([{"acl": ""}] * (CONDITION_LIMIT + 1)))

    def test_names(self) -> None:
        """Both members are there, in small letters and once."""
        self.malformed(self.raw("{}"))
        self.malformed(self.raw('{"conditions": []}'))
        self.malformed(self.raw(f'{{"expiration": "{EXPIRATION}"}}'))
        self.malformed(self.raw(f'{{"EXPIRATION": "{EXPIRATION}", "conditions": []}}'))
        twice = f'{{"expiration": "{EXPIRATION}", "conditions": [], "conditions": []}}'
        self.malformed(self.raw(twice))

    def test_expiration(self) -> None:
        """The expiration is a moment in UTC."""
        for expiration in (
            None,
            0,
            "",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20+00:00",
            "2023-13-14T22:13:20Z",
            "20231114T221320Z",
            ["\ud800"],
        ):
            self.malformed(encoded(expiration=expiration))

    def test_conditions(self) -> None:
        """A condition has one of three forms."""
        self.malformed(encoded({}))
        for condition in (
            "acl",
            1,
            None,
            {},
            {"acl": "a", "key": "b"},
            {"acl": 1},
            [],
            [1, "$acl", "a"],
            ["eq"],
            ["eq", "$acl"],
            ["eq", "$acl", "a", "b"],
            ["eq", "acl", "a"],
            ["eq", "$acl", 1],
            ["ends-with", "$acl", "a"],
            ["\ud800", "$acl", "a"],
            ["content-length-range", 1],
            ["content-length-range", -1, 1],
            ["content-length-range", 1, "1_0"],
            ["content-length-range", True, 2],
            ["content-length-range", 1, 2.5],
            ["content-length-range", None, 2],
        ):
            message = self.malformed(encoded([*CONDITIONS, condition]))
            message.encode()

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=10,
        )
    )
    def test_anything(self, conditions: Any) -> None:
        """Whatever is in the place of the conditions, the form is refused and nothing breaks."""
        error = self.assertRaises(S3Error, checkFields, None, encoded(conditions))
        self.assertIn(error.code, ("InvalidPolicyDocument", "AccessDenied"))
