"""Bucket policies: what is refused, what they say of requests, and what makes them public."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.actions import ACTIONS
from storagegate.objects.access.conditions import OPERATORS
from storagegate.objects.access.context import CONDITION_KEYS, AccessContext, PlainCaller, findKey
from storagegate.objects.access.policy import POLICY_LIMIT, compilePolicy
from storagegate.objects.accounts import ANONYMOUS, Identity, Signing, canonicalId
from storagegate.objects.errors import DomainError, MalformedPolicy
from tests.objects.access import plain
from tests.support.selection import long, rounds

ANN = Identity("AKANN", "ann")
BOB = Identity("AKBOB", "bob")
ROOT = Identity("AKROOT", "root", isRoot=True)


def statement(**changed: Any) -> dict[str, Any]:
    """Return a statement that lets all read all; L{None} removes an element."""
    whole = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::box/*",
        **changed,
    }
    return {name: value for name, value in whole.items() if value is not None}


def document(*statements: Any, **changed: Any) -> bytes:
    """Return a policy of version 2012-10-17."""
    whole = {"Version": "2012-10-17", "Statement": list(statements), **changed}
    return json.dumps(whole).encode()


def context(identity: Identity = ANN, key: str = "a", **changed: Any) -> AccessContext:
    """Describe a request for an object of ann's bucket."""
    mine = {name: changed.pop(name) for name in ("versionId", "existingTags") if name in changed}
    operation = changed.pop("operation", "GetObject")
    caller = PlainCaller(identity, operation, 1_700_000_000.0, **changed)
    return AccessContext(identity, caller, "box", key, "ann", operation, **mine)


class RefusalTests(SynchronousTestCase):
    """Every problem is C{MalformedPolicy} with a text that names it."""

    def assertRefused(self, body: bytes, named: str) -> None:
        """Check that a policy is refused with a text that contains C{named}."""
        error = self.assertRaises(DomainError, compilePolicy, body, "box")
        self.assertEqual(error.code, "MalformedPolicy")
        self.assertIn(named, error.message)

    def test_surrogates(self) -> None:
        """A message can be sent, though JSON can escape half of a surrogate pair."""
        strange = {"StringEquals": {"a\ud800b": "x"}}
        for body in (document(**{"a\ud800b": 1}), document(statement(Condition=strange))):
            self.assertRefused(body, "a?b")

    def test_documents(self) -> None:
        """What is no JSON object, too long or of another version."""
        for body, named in (
            (b"", "invalid Json"),
            (b"{", "invalid Json"),
            (b"\xff{}", "UTF-8"),
            (b"[]", "first byte must be '{'"),
            (b'"{}"', "first byte must be '{'"),
            (b"{}", "Missing required field Statement"),
            (b'{"Statement": []}', "Missing required field Statement"),
            (b'{"Statement": ["x"]}', "Statement must be"),
            (b"[" * 9000, "invalid Json"),
            (b'{"Id": "a", "Id": "b"}', "'Id' comes twice"),
            (b'{"Id": NaN}', "NaN"),
            (document(statement(), Version="2013-01-01"), "2013-01-01"),
            (document(statement(), Id=3), "Id must be"),
            (document(statement(), Comment="x"), "Unknown field Comment"),
            (document(statement()) + b" " * POLICY_LIMIT, str(POLICY_LIMIT)),
        ):
            self.assertRefused(body, named)

    def test_statements(self) -> None:
        """Elements that are missing, unknown, or of which only one may be there."""
        for changed, named in (
            ({"Effect": None}, "Missing required field Effect"),
            ({"Effect": "allow"}, "Invalid effect: 'allow'"),
            ({"Principal": None}, "Missing required field Principal"),
            ({"Action": None}, "Missing required field Action"),
            ({"Resource": None}, "Missing required field Resource"),
            ({"NotAction": "s3:GetObject"}, "Action and NotAction"),
            ({"NotPrincipal": "*"}, "Principal and NotPrincipal"),
            ({"NotResource": "arn:aws:s3:::box/x"}, "Resource and NotResource"),
            ({"Efect": "Allow"}, "Unknown field Efect"),
            ({"Sid": 1}, "Sid must be"),
        ):
            self.assertRefused(document(statement(**changed)), named)
        twice = [statement(Sid="one"), statement(Sid="one")]
        self.assertRefused(document(*twice), "'one'")

    def test_place(self) -> None:
        """The error of a statement has its number, and the element with the problem."""
        for changed, element in (
            ({"Sid": 1}, "Sid"),
            ({"Efect": "Allow"}, "Sid"),
            ({"Effect": "allow"}, "Effect"),
            ({"Principal": None}, "Principal"),
            ({"Principal": {"AWS": ""}}, "Principal"),
            ({"Action": "s3:x"}, "Action"),
            ({"Resource": "x"}, "Resource"),
            ({"Action": "s3:ListBucket"}, "Resource"),
            ({"Condition": {"Odd": {"aws:SourceIp": "x"}}}, "Condition"),
        ):
            body = document(statement(Sid="a"), statement(**changed), statement(Sid="c"))
            error = self.assertRaises(MalformedPolicy, compilePolicy, body, "box")
            self.assertEqual(error.place, {"statement": 2, "element": element})
        error = self.assertRaises(MalformedPolicy, compilePolicy, b"{}", "box")
        self.assertEqual(error.place, {})

    def test_principals(self) -> None:
        """Forms of principals that name no identity of ours."""
        for principal in (
            "ann",
            {},
            [],
            {"AWS": []},
            {"AWS": 3},
            {"AWS": "arn:aws:iam::ann:role/"},
            {"AWS": "arn:aws:iam::ann:group/x"},
            {"AWS": "arn:aws:iam::ann:user/"},
            {"AWS": "arn:aws:iam::ann:user/A*"},
            {"AWS": "arn:aws:iam:::root"},
            {"AWS": "arn:aws:sts::ann:root"},
            {"AWS": "arn:aws:sts:::assumed-role/Ops/job"},
            {"AWS": "arn:aws:sts::ann:assumed-role/Ops"},
            {"AWS": "arn:aws:sts::ann:assumed-role/Ops/"},
            {"AWS": "arn:aws:sts::ann:assumed-role/Ops/*"},
            {"AWS": "arn:aws:sts::ann:assumed-role/x/Ops/job"},
            {"AWS": "arn:aws:sts::ann:role/Ops/job"},
            {"AWS": "ann*"},
            {"AWS": ""},
            {"CanonicalUser": "ann"},
            {"CanonicalUser": "*"},
            {"Service": "cloudfront.amazonaws.com"},
            {"Federated": "x"},
        ):
            body = document(statement(Principal=principal))
            named = (
                "Principal must be"
                if principal in ({"AWS": []}, {"AWS": 3})
                else "Invalid principal"
            )
            self.assertRefused(body, named)

    def test_actionsAndResources(self) -> None:
        """Unknown actions, resources of others, and actions without a resource that fits."""
        for changed, named in (
            ({"Action": "s3:GetObjects"}, "s3:GetObjects"),
            ({"Action": "ec2:*"}, "ec2:*"),
            ({"Action": []}, "Action must be"),
            ({"Action": "s3:ListAllMyBuckets"}, "ListAllMyBuckets"),
            ({"NotAction": "*", "Action": None}, "does not apply"),
            ({"Resource": "*"}, "invalid resource: '*'"),
            ({"Resource": "arn:aws:s3:::other/*"}, "other"),
            ({"Resource": "arn:aws:s3:::boxes/*"}, "boxes"),
            ({"Resource": ["arn:aws:s3:::box/*", "arn:aws:s3:::b"]}, "'arn:aws:s3:::b'"),
            ({"Resource": "arn:aws:s3:::${aws:username}/*"}, "username"),
            ({"Resource": "arn:aws:s3:::box/${aws:nonsense}"}, "aws:nonsense"),
            ({"Resource": "arn:aws:s3:::box/${aws:username"}, "no closing brace"),
            ({"Resource": "arn:aws:s3:::box"}, "does not apply"),
            ({"Resource": "arn:aws:s3:::box/"}, "does not apply"),
            ({"Action": ["s3:GetObject", "s3:ListBucket"]}, "does not apply"),
        ):
            self.assertRefused(document(statement(**changed)), named)

    def test_conditions(self) -> None:
        """Operators, keys and values that cannot be judged."""
        for condition, named in (
            ([], "Condition must be"),
            ({"StringEquals": []}, "StringEquals"),
            ({"StringEquals": {}}, "StringEquals"),
            ({"StringEquals": {"s3:prefix": []}}, "s3:prefix"),
            ({"StringEquals": {"s3:prefix": {}}}, "s3:prefix"),
            ({"StringEqual": {"s3:prefix": "a"}}, "StringEqual"),
            ({"stringequals": {"s3:prefix": "a"}}, "stringequals"),
            ({"NullIfExists": {"s3:prefix": "true"}}, "NullIfExists"),
            ({"ForAnyValue:Null": {"s3:prefix": "true"}}, "ForAnyValue:Null"),
            ({"ForSomeValue:StringEquals": {"s3:prefix": "a"}}, "ForSomeValue"),
            ({"Null": {"s3:prefix": "maybe"}}, "maybe"),
            ({"StringEquals": {"s3:nonsense": "a"}}, "s3:nonsense"),
            ({"StringEquals": {"aws:PrincipalOrgID": "a"}}, "aws:PrincipalOrgID"),
            ({"StringEquals": {"s3:ExistingObjectTag/": "a"}}, "s3:ExistingObjectTag/"),
            ({"StringEquals": {"s3:prefix": "${s3:RequestObjectTagKeys}"}}, "RequestObjectTagKeys"),
            ({"NumericLessThan": {"s3:max-keys": "ten"}}, "ten"),
            ({"NumericLessThan": {"s3:max-keys": "${s3:max-keys}"}}, "no number"),
            ({"DateLessThan": {"aws:CurrentTime": "2020-13-01"}}, "2020-13-01"),
            ({"Bool": {"aws:SecureTransport": "yes"}}, "yes"),
            ({"BinaryEquals": {"s3:prefix": "?"}}, "Base64"),
            ({"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}, "10.0.0.0/33"),
            ({"ArnLike": {"aws:PrincipalArn": "ann"}}, "no ARN"),
        ):
            self.assertRefused(document(statement(Condition=condition)), named)


class EvaluationTests(SynchronousTestCase):
    """What a policy says of a request, by example."""

    def says(
        self, asked: AccessContext, *statements: Any, action: str = "s3:GetObject", **changed: Any
    ) -> bool | None:
        """Return what a policy says."""
        return compilePolicy(document(*statements, **changed), "box").evaluate(action, asked)

    def test_order(self) -> None:
        """A denial wins over what is allowed, in any order; without either nothing is said."""
        allow, deny = statement(), statement(Effect="Deny", Resource="arn:aws:s3:::box/secret*")
        self.assertTrue(self.says(context(), deny, allow))
        self.assertIs(self.says(context(key="secret"), allow, deny), False)
        self.assertIsNone(self.says(context(), deny))
        self.assertIsNone(self.says(context(), allow, action="s3:PutObject"))

    def test_singleStatement(self) -> None:
        """A statement need not be in a list, and the version may be missing."""
        body = json.dumps({"Statement": statement()}).encode()
        self.assertTrue(compilePolicy(body, "box").evaluate("s3:GetObject", context()))

    def test_principals(self) -> None:
        """Accounts by name, ARN and canonical id; a key by its ARN; the rest by the negation."""
        for principal, identity, expected in (
            ("*", ANONYMOUS, True),
            ({"AWS": "*"}, ANONYMOUS, True),
            ({"AWS": "ann"}, ANN, True),
            ({"AWS": "ann"}, BOB, None),
            ({"AWS": ["bob", "arn:aws:iam::ann:root"]}, ANN, True),
            ({"AWS": "arn:aws:iam::ann:user/AKANN"}, ANN, True),
            ({"AWS": "arn:aws:iam::ann:user/AKBOB"}, ANN, None),
            ({"AWS": "arn:aws:iam::bob:user/AKANN"}, ANN, None),
            ({"CanonicalUser": canonicalId("bob")}, BOB, True),
            ({"CanonicalUser": canonicalId("bob")}, ANN, None),
            ({"AWS": "ann"}, ANONYMOUS, None),
        ):
            found = self.says(context(identity), statement(Principal=principal))
            self.assertIs(found, expected, (principal, identity))
            negated = statement(Principal=None, NotPrincipal=principal)
            found = self.says(context(identity), negated)
            self.assertIs(found, None if expected else True, (principal, identity))

    def test_variables(self) -> None:
        """Each key reads below its own name; in the older version the text is as it stands."""
        home = statement(Resource="arn:aws:s3:::box/${aws:username}/*")
        self.assertTrue(self.says(context(key="AKANN/x"), home))
        self.assertIsNone(self.says(context(BOB, key="AKANN/x"), home))
        self.assertIsNone(self.says(context(ANONYMOUS, key="/x"), home))
        self.assertIsNone(self.says(context(key="AKANN/x"), home, Version="2008-10-17"))
        old = context(key="${aws:username}/x")
        self.assertTrue(self.says(old, home, Version="2008-10-17"))

    def test_wildcardsOverBucket(self) -> None:
        """A pattern that reaches over the bucket's name concerns the bucket and its objects."""
        wide = statement(Action="s3:*", Resource="arn:aws:s3:::b*")
        self.assertTrue(self.says(context(), wide))
        self.assertTrue(self.says(context(key=""), wide, action="s3:ListBucket"))

    def test_notResource(self) -> None:
        """All other resources, of the bucket and of its objects."""
        other = statement(Action="s3:*", Resource=None, NotResource="arn:aws:s3:::box/a*")
        self.assertIsNone(self.says(context(key="ab"), other))
        self.assertTrue(self.says(context(key="b"), other))
        self.assertTrue(self.says(context(key=""), other, action="s3:ListBucket"))

    def test_conditions(self) -> None:
        """Each operator by examples of what it holds for."""
        network = {"address": "10.1.2.3", "headers": {b"x-amz-acl": b"Private"}}
        query = {"prefix": "a/b", "max-keys": "10"}
        asked = context(operation="ListObjectsV2", query=query, **network)
        for condition, expected in (
            ({"StringEquals": {"s3:prefix": "a/b"}}, True),
            ({"StringEquals": {"S3:PREFIX": ["x", "a/b"]}}, True),
            ({"StringNotEquals": {"s3:prefix": ["x", "a/b"]}}, False),
            ({"StringNotEquals": {"s3:delimiter": "x"}}, True),
            ({"StringEquals": {"s3:delimiter": "x"}}, False),
            ({"StringEquals": {"s3:delimiter": ""}}, True),
            ({"StringEqualsIfExists": {"s3:delimiter": "x"}}, False),
            ({"StringEqualsIfExists": {"s3:VersionId": "x"}}, True),
            ({"StringEqualsIfExists": {"s3:prefix": "x"}}, False),
            ({"StringEqualsIgnoreCase": {"s3:x-amz-acl": "pRIVATE"}}, True),
            ({"StringNotEqualsIgnoreCase": {"s3:x-amz-acl": "pRIVATE"}}, False),
            ({"StringEquals": {"s3:x-amz-acl": "private"}}, False),
            ({"StringLike": {"s3:prefix": "a/?"}}, True),
            ({"StringNotLike": {"s3:prefix": "a*"}}, False),
            ({"StringLike": {"s3:prefix": "${aws:username}*"}}, False),
            ({"NumericLessThanEquals": {"s3:max-keys": 10}}, True),
            ({"NumericLessThan": {"s3:max-keys": "10"}}, False),
            ({"NumericGreaterThan": {"s3:max-keys": 9.5}}, True),
            ({"NumericNotEquals": {"s3:prefix": "1"}}, True),
            ({"NumericEquals": {"s3:prefix": "1"}}, False),
            ({"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, True),
            ({"DateLessThan": {"aws:CurrentTime": "2020-01-01"}}, False),
            ({"DateEquals": {"aws:EpochTime": "1700000000"}}, True),
            ({"NumericEquals": {"aws:EpochTime": 1_700_000_000}}, True),
            ({"Bool": {"aws:SecureTransport": False}}, True),
            ({"Bool": {"aws:SecureTransport": "true"}}, False),
            ({"IpAddress": {"aws:SourceIp": ["192.168.0.0/16", "10.0.0.0/8"]}}, True),
            ({"NotIpAddress": {"aws:SourceIp": "10.1.2.3"}}, False),
            ({"IpAddress": {"aws:SourceIp": "::/0"}}, False),
            ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::ann:user/*"}}, True),
            ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam*:AKANN"}}, None),
            ({"ArnNotEquals": {"aws:PrincipalArn": "arn:*:iam::*:*"}}, False),
            ({"Null": {"s3:delimiter": "true", "s3:prefix": "false"}}, True),
            ({"Null": {"s3:prefix": True}}, False),
            ({"StringEquals": {"s3:prefix": "a/b"}, "Null": {"s3:prefix": True}}, False),
        ):
            if expected is None:
                with self.assertRaises(DomainError):
                    compilePolicy(document(statement(Condition=condition)), "box")
                continue
            found = self.says(asked, statement(Condition=condition))
            self.assertIs(bool(found), expected, condition)

    def test_sets(self) -> None:
        """Each of several values for itself, and none at all."""
        two = context(requestTags={"a": "1", "b": "2"})
        none = context()
        key = "s3:RequestObjectTagKeys"
        for operator, values, forTwo, forNone in (
            ("ForAllValues:StringEquals", ["a", "b", "c"], True, True),
            ("ForAllValues:StringEquals", ["a"], False, True),
            ("ForAnyValue:StringEquals", ["b"], True, False),
            ("ForAnyValue:StringEquals", ["c"], False, False),
            ("ForAnyValue:StringNotEquals", ["a"], True, False),
            ("ForAnyValue:StringNotEquals", ["a", "b"], False, False),
            ("ForAllValues:StringNotEquals", ["c"], True, True),
            ("ForAnyValue:StringEqualsIfExists", ["c"], False, True),
            ("StringEquals", ["b"], True, False),
            ("StringNotEquals", ["b"], False, True),
            ("Null", ["true"], False, True),
        ):
            rule = statement(Condition={operator: {key: values}})
            self.assertIs(bool(self.says(two, rule)), forTwo, (operator, values))
            self.assertIs(bool(self.says(none, rule)), forNone, (operator, values))

    def test_keys(self) -> None:
        """Every condition key reads what it names."""
        signing = Signing("AWS4-HMAC-SHA256", "REST-HEADER", 1_699_999_990)
        asked = context(
            operation="CopyObject",
            headers={
                name.removeprefix("s3:").encode(): name.encode()
                for name in CONDITION_KEYS
                if name.startswith(("s3:x-amz-", "s3:if-"))
            }
            | {
                b"user-agent": b"agent",
                b"referer": b"http://x",
                b"x-amz-object-lock-mode": b"GOVERNANCE",
                b"x-amz-object-lock-legal-hold": b"ON",
                b"x-amz-object-lock-retain-until-date": b"2023-11-16T22:13:20Z",
            },
            address="10.0.0.1",
            secure=True,
            copySource="/from/key",
            versionId="v",
            signing=signing,
            tlsVersion="1.3",
            existingTags={"k": "old"},
            requestTags={"k": "new"},
        )
        expected = {
            "aws:currenttime": "2023-11-14T22:13:20Z",
            "aws:epochtime": "1700000000",
            "aws:principalaccount": "ann",
            "aws:principalarn": "arn:aws:iam::ann:user/AKANN",
            "aws:principaltype": "User",
            "aws:referer": "http://x",
            "aws:resourceaccount": "ann",
            "aws:securetransport": "true",
            "aws:sourceip": "10.0.0.1",
            "aws:useragent": "agent",
            "aws:userid": "AKANN",
            "aws:username": "AKANN",
            "s3:authtype": "REST-HEADER",
            "s3:delimiter": None,
            "s3:locationconstraint": None,
            "s3:max-keys": None,
            "s3:object-lock-legal-hold": "ON",
            "s3:object-lock-mode": "GOVERNANCE",
            "s3:object-lock-remaining-retention-days": "2",
            "s3:object-lock-retain-until-date": "2023-11-16T22:13:20.000Z",
            "s3:objectcreationoperation": "true",
            "s3:prefix": None,
            "s3:requestobjecttagkeys": ("k",),
            "s3:resourceaccount": "ann",
            "s3:signatureage": "10000",
            "s3:signatureversion": "AWS4-HMAC-SHA256",
            "s3:tlsversion": "1.3",
            "s3:versionid": "v",
            "sts:externalid": None,
            "sts:rolesessionname": None,
            "sts:transitivetagkeys": None,
            "aws:tagkeys": ("k",),
            "s3:x-amz-copy-source": "/from/key",
            "s3:x-amz-metadata-directive": "S3:X-AMZ-METADATA-DIRECTIVE",
        }
        for name, key in CONDITION_KEYS.items():
            self.assertEqual(key.read(asked), expected.get(name, name), name)
        for name, value in (("s3:ExistingObjectTag/k", "old"), ("S3:requestobjecttag/k", "new")):
            tag = findKey(name)
            assert tag is not None
            self.assertEqual(tag.read(asked), value)
        asked = context(
            operation="ListObjects", query={"prefix": "p", "delimiter": "/", "max-keys": "7"}
        )
        for name, value in (("prefix", "p"), ("delimiter", "/"), ("max-keys", "7")):
            self.assertEqual(CONDITION_KEYS[f"s3:{name}"].read(asked), value)
        self.assertIsNone(findKey("s3:Nonsense/k"))

    def test_identities(self) -> None:
        """Keys that tell who asks: the root key and anonymous requests have no name."""
        for identity, expected in (
            (ROOT, ("Account", "arn:aws:iam::root:root", "root", None, "root")),
            (ANONYMOUS, ("Anonymous", None, "anonymous", None, None)),
        ):
            names = ("principaltype", "principalarn", "userid", "username", "principalaccount")
            found = [CONDITION_KEYS[f"aws:{name}"].read(context(identity)) for name in names]
            self.assertEqual(tuple(found), expected)


class PublicTests(SynchronousTestCase):
    """Which policies are public."""

    def test_public(self) -> None:
        """A statement for all is public unless a fixed value tells who asks or from where."""
        for changed, expected in (
            ({}, True),
            ({"Effect": "Deny"}, False),
            ({"Principal": {"AWS": "ann"}}, False),
            ({"Principal": {"AWS": ["ann", "*"]}}, True),
            ({"Principal": None, "NotPrincipal": {"AWS": "ann"}}, True),
            ({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}, False),
            ({"Condition": {"IpAddress": {"aws:SourceIp": "2001:db8::/32"}}}, False),
            ({"Condition": {"IpAddress": {"aws:SourceIp": ["10.1.2.3", "0.0.0.0/1"]}}}, True),
            ({"Condition": {"IpAddressIfExists": {"aws:SourceIp": "10.1.2.3"}}}, True),
            ({"Condition": {"NotIpAddress": {"aws:SourceIp": "10.1.2.3"}}}, True),
            ({"Condition": {"StringEquals": {"aws:PrincipalAccount": "ann"}}}, False),
            ({"Condition": {"StringLike": {"aws:PrincipalAccount": "a*"}}}, True),
            ({"Condition": {"StringEquals": {"aws:userid": "${aws:userid}"}}}, True),
            ({"Condition": {"StringLike": {"aws:userid": "AKANN"}}}, False),
            ({"Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::ann:user/X"}}}, False),
            ({"Condition": {"ForAllValues:StringEquals": {"aws:userid": "AKANN"}}}, True),
            ({"Condition": {"ForAnyValue:StringEquals": {"aws:userid": "AKANN"}}}, False),
            ({"Condition": {"StringEquals": {"aws:UserAgent": "x"}}}, True),
        ):
            policy = compilePolicy(document(statement(**changed)), "box")
            self.assertIs(policy.isPublic, expected, changed)
        mixed = document(statement(Principal={"AWS": "ann"}), statement())
        self.assertTrue(compilePolicy(mixed, "box").isPublic)


def _oneOrList(items: Any) -> Any:
    return st.one_of(items, st.lists(items, min_size=1, max_size=3))


_TEXT = st.text("aB*?/:", max_size=4)
_VALUES = {
    "String": st.one_of(
        _TEXT,
        st.sampled_from(["a", "B", "b", "1", "A*"]),
        st.sampled_from(["AKANN", "a", "${aws:username}", "${s3:prefix,'a'}*", "${*}", "x${$}"]),
    ),
    "Numeric": st.one_of(st.integers(-2, 12).map(str), st.sampled_from(["1.5", "10.0"])),
    "Date": st.sampled_from(
        ["2020-01-01", "2023-11-14T22:13:20Z", "1700000000", "2030-01-01T00:00:00+02:00"]
    ),
    "Bool": st.sampled_from(["true", "false", "True", True, False]),
    "Binary": st.sampled_from(["YQ==", "", "YWI="]),
    "IpAddress": st.sampled_from(["10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "::1", "2001:db8::/32"]),
    "NotIpAddress": st.sampled_from(["10.0.0.0/8", "10.1.2.3", "2001:db8::/32"]),
    "Arn": st.sampled_from(
        [
            "arn:aws:iam::ann:user/AKANN",
            "arn:*:iam::*:*",
            "arn:aws:iam::a*:us?r/${aws:username}",
            "arn:aws:iam::bob:root",
        ]
    ),
}
_TEXT_KEYS = (
    "s3:prefix",
    "s3:delimiter",
    "aws:username",
    "aws:UserAgent",
    "S3:Max-Keys",
    "s3:RequestObjectTagKeys",
    "s3:ExistingObjectTag/a",
    "s3:RequestObjectTag/B",
)
_KEYS = {
    "Numeric": ("S3:Max-Keys", "aws:EpochTime", "s3:ExistingObjectTag/a"),
    "Date": ("aws:CurrentTime", "aws:EpochTime"),
    "Bool": ("aws:SecureTransport",),
    "Binary": ("s3:delimiter",),
    "IpAddress": ("aws:SourceIp", "s3:prefix"),
    "NotIpAddress": ("aws:SourceIp", "s3:prefix"),
    "Arn": ("aws:PrincipalArn",),
}


@st.composite
def conditions(draw: Any, least: int = 0) -> dict[str, Any]:
    """Draw the conditions of a statement."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(draw(st.integers(least, 2))):
        operator = draw(st.sampled_from([*OPERATORS, "Null"]))
        if operator == "Null":
            found.setdefault(operator, {})[draw(st.sampled_from(_TEXT_KEYS))] = draw(
                _oneOrList(_VALUES["Bool"])
            )
            continue
        kind = next(each for each in _VALUES if operator.startswith(each))
        operator = draw(st.sampled_from(["", "", "ForAllValues:", "ForAnyValue:"])) + operator
        operator += draw(st.sampled_from(["", "", "IfExists"]))
        key = draw(st.sampled_from(_KEYS.get(kind, _TEXT_KEYS)))
        found.setdefault(operator, {})[key] = draw(_oneOrList(_VALUES[kind]))
    return found


@st.composite
def statements(draw: Any) -> dict[str, Any]:
    """Draw a statement that is valid."""

    def element(name: str, value: Any) -> dict[str, Any]:
        return {("Not" if draw(st.integers(0, 3)) == 0 else "") + name: value}

    principals = st.sampled_from(
        [
            "*",
            {"AWS": "*"},
            {"AWS": "ann"},
            {"AWS": ["arn:aws:iam::bob:root", "arn:aws:iam::ann:user/AKANN"]},
            {"CanonicalUser": canonicalId("ann")},
            {"AWS": "arn:aws:iam::ann:user/AKBOB", "CanonicalUser": [canonicalId("bob")]},
        ]
    )
    actions = st.sampled_from(
        ["s3:GetObject", "s3:getobject*", "s3:*Object", "s3:ListBucket", "s3:Put?bject", "*"]
    )
    patterns = st.text("aB*?", max_size=3).map("arn:aws:s3:::box/a".__add__)
    resources = st.one_of(
        patterns,
        st.sampled_from(
            ["arn:aws:s3:::box/*", "arn:aws:s3:::b*", "arn:aws:s3:::box/${aws:username}*"]
        ),
    )
    return {
        "Effect": draw(st.sampled_from(["Allow", "Deny"])),
        **element("Principal", draw(principals)),
        **element(
            "Action",
            ["s3:PutBucketPolicy", *draw(st.lists(actions.filter("*".__ne__), max_size=2))],
        ),
        # Both kinds, so that each action has a resource that fits.
        **element("Resource", ["arn:aws:s3:::box", "arn:aws:s3:::box/a", draw(resources)]),
        "Condition": draw(conditions()),
    }


@st.composite
def requests(draw: Any) -> AccessContext:
    """Draw a request."""
    tags = st.dictionaries(st.sampled_from("aB"), st.sampled_from(["a", "B", "1"]), max_size=2)
    # Only lists have these; what they leave out is judged by its default, elsewhere.
    query = {
        "prefix": draw(_TEXT | st.sampled_from(["a", "AKANN", "a*"])),
        "delimiter": draw(st.sampled_from(["", "/", "a", "x", "YQ=="])),
        "max-keys": draw(st.sampled_from(["1", "10"])),
    }
    isList = draw(st.booleans())
    return context(
        draw(st.sampled_from([ANN, BOB, ANONYMOUS])),
        draw(st.text("aB/", min_size=1, max_size=4) | st.sampled_from(["a*", "AKANN", "AKBOB1"])),
        address=draw(st.sampled_from(["10.1.2.3", "11.0.0.1", "2001:db8::5", "::1"])),
        secure=draw(st.booleans()),
        operation="ListObjectsV2" if isList else "GetObject",
        query=query if isList else {},
        existingTags=draw(tags),
        requestTags=draw(tags),
    )


def described(asked: AccessContext, action: str) -> plain.Asked:
    """Describe a request for the plain evaluator, which reads no context."""
    identity = asked.identity
    values: dict[str, Any] = {
        "aws:sourceip": asked.request.address,
        "aws:securetransport": "true" if asked.request.secure else "false",
        "aws:currenttime": "2023-11-14T22:13:20Z",
        "aws:epochtime": "1700000000",
        "s3:requestobjecttagkeys": [*asked.request.requestTags],
        **{f"s3:{name}": value for name, value in asked.request.query.items()},
    }
    for name, tags in (("existing", asked.existingTags), ("request", asked.request.requestTags)):
        values |= {f"s3:{name}objecttag/{tag}".lower(): value for tag, value in tags.items()}
    if not identity.isAnonymous:
        values["aws:username"] = identity.accessKey
        values["aws:principalarn"] = f"arn:aws:iam::{identity.account}:user/{identity.accessKey}"
    isObject = ACTIONS[action] == "object"
    return plain.Asked(
        None if identity.isAnonymous else identity.account,
        identity.accessKey,
        action,
        f"box/{asked.key}" if isObject else "box",
        values,
    )


_ACTIONS = st.sampled_from(["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:GetObjectAcl"])


class AgreementTests(SynchronousTestCase):
    """The compiled policy and the plain evaluator say the same of every request."""

    def check(self, body: bytes, asked: Sequence[tuple[AccessContext, str]]) -> None:
        """Compare what both say of requests."""
        policy = compilePolicy(body, "box")
        for request, action in asked:
            self.assertIs(
                policy.evaluate(action, request),
                plain.evaluate(body, described(request, action)),
                (body, request, action),
            )

    @settings(max_examples=rounds(40, 200), deadline=None)
    @given(
        st.lists(statements(), min_size=1, max_size=3),
        st.sampled_from(["2012-10-17", "2008-10-17"]),
        st.lists(st.tuples(requests(), _ACTIONS), min_size=1, max_size=4),
    )
    @long("takes seconds")
    def test_policies(self, drawn: list[Any], version: str, asked: list[Any]) -> None:
        """Policies of several statements."""
        self.check(document(*drawn, Version=version), asked)

    @settings(max_examples=rounds(100, 500), deadline=None)
    @given(
        conditions(1),
        st.sampled_from(["2012-10-17", "2008-10-17"]),
        st.lists(st.tuples(requests(), st.just("s3:GetObject")), min_size=1, max_size=3),
    )
    @long("takes seconds")
    def test_conditions(self, drawn: dict[str, Any], version: str, asked: list[Any]) -> None:
        """A statement whose conditions alone decide."""
        self.check(document(statement(Condition=drawn), Version=version), asked)
