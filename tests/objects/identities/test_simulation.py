"""The policy simulator."""

import json
from functools import partial
from time import process_time
from typing import Any

from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import InvalidInput, NoSuchEntity, ValidationError
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import EvaluationResult, Tag
from storagegate.objects.identities.entities import AccountState
from storagegate.objects.identities.lookup import IdentityRequest
from storagegate.objects.identities.operations import ContextEntry
from storagegate.objects.identities.simulation import _statementPositions
from storagegate.objects.identities.table import CHANGES, READS
from storagegate.objects.identities.validation import checkOperation
from storagegate.storage.records import AccessKey
from tests.support.selection import long

NOW = IdentityRequest(1_700_000_000_000)

ALLOW_ALL = '{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}'

BUCKET = "arn:aws:s3:::photos"
CAT = f"{BUCKET}/cat"


def policy(*statements: dict[str, Any]) -> str:
    """Return a policy, whose statements allow everything unless they say otherwise."""
    whole = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [{**whole, **s} for s in statements]})


def when(operator: str, key: str, value: Any) -> dict[str, Any]:
    """Return a condition as an element of a statement."""
    return {"Condition": {operator: {key: value}}}


class SimulationCase(SynchronousTestCase):
    """Tests with an account that has a user in a group, and a role."""

    def setUp(self) -> None:
        """Make the identities."""
        key = AccessKey("OPERATOR", "secret", "acme", role="admin")
        self.state = AccountState(account="acme", keys={"OPERATOR": key})
        for operation in (
            operations.CreateUser(userName="Ann", path="/staff/"),
            operations.CreateGroup(groupName="readers"),
            operations.AddUserToGroup(groupName="readers", userName="ann"),
            operations.CreateRole(
                roleName="ops",
                assumeRolePolicyDocument=json.dumps(
                    {
                        "Version": "2012-10-17",
                        "Statement": {
                            "Effect": "Allow",
                            "Action": "sts:AssumeRole",
                            "Principal": {"AWS": "*"},
                        },
                    }
                ),
            ),
        ):
            self.change(operation)

    def change(self, operation: Any) -> None:
        """Change the account."""
        self.state, _ = CHANGES[type(operation)](self.state, operation, NOW)

    def perform(self, operation: Any) -> Any:
        """Check and perform a simulation."""
        checkOperation(operation)
        return READS[type(operation)](self.state, operation, NOW)

    def custom(self, document: str, *actions: str, **more: Any) -> EvaluationResult:
        """Simulate a policy; return the result of the last action."""
        operation = operations.SimulateCustomPolicy(
            policyInputList=(document,), actionNames=actions, **more
        )
        found: EvaluationResult = self.perform(operation).evaluationResults[-1]
        return found

    def principal(self, resource: str, *actions: str, **more: Any) -> EvaluationResult:
        """Simulate the policies of an identity; return the result of the last action."""
        arn = f"arn:aws:iam::acme:{resource}"
        operation = operations.SimulatePrincipalPolicy(
            policySourceArn=arn, actionNames=actions, **more
        )
        found: EvaluationResult = self.perform(operation).evaluationResults[-1]
        return found

    def assertInvalid(self, text: str, document: str, *actions: str, **more: Any) -> None:
        """Check that a simulation is refused, with a text in its message."""
        with self.assertRaises(InvalidInput) as caught:
            self.custom(document, *(actions or ("s3:GetObject",)), **more)
        self.assertIn(text, caught.exception.message)


class DecisionTests(SimulationCase):
    """Decisions, and the statements that determine them."""

    def test_decisions(self) -> None:
        """A deny wins and is the only match; a request that no statement allows is denied."""
        document = policy(
            {"Action": "s3:Get*", "Resource": f"{BUCKET}/*"},
            {"Effect": "Deny", "Action": "s3:*", "Resource": f"{BUCKET}/secret/*"},
        )
        found = self.custom(document, "s3:GetObject", resourceArns=(CAT,))
        self.assertEqual((found.evalDecision, len(found.matchedStatements)), ("allowed", 1))
        (match,) = found.matchedStatements
        self.assertEqual(match.sourcePolicyId, "PolicyInputList.1")
        self.assertEqual(match.sourcePolicyType, "IAM Policy")
        shown = document[match.startPosition.column - 2 : match.endPosition.column - 1]
        self.assertEqual(json.loads(shown)["Action"], "s3:Get*")
        denied = self.custom(document, "s3:GetObject", resourceArns=(f"{BUCKET}/secret/a",))
        self.assertEqual(denied.evalDecision, "explicitDeny")
        (match,) = denied.matchedStatements
        shown = document[match.startPosition.column - 2 : match.endPosition.column - 1]
        self.assertEqual(json.loads(shown)["Effect"], "Deny")
        missing = self.custom(document, "s3:PutObject", resourceArns=(CAT,))
        self.assertEqual((missing.evalDecision, missing.matchedStatements), ("implicitDeny", ()))

    def test_aggregate(self) -> None:
        """An action has one result, the most restrictive one of its resources, with each below."""
        document = policy(
            {"Resource": [CAT, f"{BUCKET}/dog"]},
            {"Effect": "Deny", "Resource": f"{BUCKET}/dog"},
        )
        arns = (CAT, f"{BUCKET}/owl", f"{BUCKET}/dog")
        found = self.custom(document, "s3:GetObject", resourceArns=arns)
        assert found.resourceSpecificResults is not None
        self.assertEqual(
            [(e.evalResourceName, e.evalResourceDecision) for e in found.resourceSpecificResults],
            list(zip(arns, ("allowed", "implicitDeny", "explicitDeny"), strict=True)),
        )
        self.assertEqual(found.evalDecision, "explicitDeny")
        self.assertEqual(len(found.matchedStatements), 1)
        self.assertEqual(found.evalResourceName, "arn:${Partition}:s3:::${BucketName}/${KeyName}")
        two = self.custom(document, "s3:GetObject", resourceArns=arns[:2])
        self.assertEqual((two.evalDecision, two.matchedStatements), ("implicitDeny", ()))

    def test_everything(self) -> None:
        """Without resources a statement must be about all resources."""
        for document, decision in ((ALLOW_ALL, "allowed"), (policy({"Resource": CAT}), None)):
            for more in ({}, {"resourceArns": ("*",)}):
                found = self.custom(document, "s3:GetObject", **more)
                self.assertEqual(found.evalDecision, decision or "implicitDeny")
                self.assertEqual(found.evalResourceName, "*")
                self.assertIsNone(found.resourceSpecificResults)
                self.assertIsNone(found.evalDecisionDetails)

    def test_kinds(self) -> None:
        """An action is denied on a resource that no request with this action has."""
        for action, arn, decision in (
            ("s3:ListBucket", BUCKET, "allowed"),
            ("s3:ListBucket", CAT, "implicitDeny"),
            ("s3:GetObject", BUCKET, "implicitDeny"),
            ("s3:ListAllMyBuckets", "*", "allowed"),
            ("s3:CreateBucket", BUCKET, "allowed"),
            ("iam:GetUser", "arn:aws:iam::acme:user/ann", "allowed"),
            ("iam:GetUser", "arn:aws:iam::other:user/ann", "implicitDeny"),
            ("iam:GetUser", CAT, "implicitDeny"),
            ("s3:GetObject", "arn:aws:iam::acme:user/ann", "implicitDeny"),
            ("sts:AssumeRole", "arn:aws:iam::other:role/ops", "allowed"),
            ("S3:getOBJECT", CAT, "allowed"),
        ):
            found = self.custom(ALLOW_ALL, action, resourceArns=(arn,))
            self.assertEqual((found.evalActionName, found.evalDecision), (action, decision), arn)

    def test_positions(self) -> None:
        """Positions are counted as in the examples of Amazon's reference."""
        one = '{\n  "Version":"2012-10-17",\n  "Statement":{\n    "Effect":"Allow"\n\n\n  }\n}'
        [(start, end)] = _statementPositions(one)
        self.assertEqual((start.line, start.column, end.line, end.column), (3, 16, 7, 4))
        long = (
            '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"dynamodb:*",'
            '"Resource":"*","Condition":{"DateGreaterThan":{"aws:CurrentTime":'
            '"2015-08-16T12:00:00Z"}}}}'
        )
        [(start, end)] = _statementPositions(long)
        self.assertEqual((start.line, start.column, end.line, end.column), (1, 38, 1, 167))

    @given(
        some.lists(
            some.dictionaries(some.text(max_size=4), some.text(max_size=4)), min_size=1, max_size=4
        ),
        some.sampled_from([None, 1, "\t"]),
        some.booleans(),
    )
    def test_positionsOfAny(self, statements: list[Any], indent: Any, isLast: bool) -> None:
        """The text between two positions is the statement, whatever the layout of the policy is."""
        whole = {"Version": "{[", "Statement": statements}
        if isLast:
            whole = {**whole, "Id": '"Statement": {'}
        text = f" \n{json.dumps(whole, indent=indent, ensure_ascii=False)}\n"
        lines = text.split("\n")
        starts = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))]
        found = [
            text[starts[a.line - 1] + a.column - 2 : starts[b.line - 1] + b.column - 1]
            for a, b in _statementPositions(text)
        ]
        self.assertEqual([json.loads(each) for each in found], statements)


class ContextTests(SimulationCase):
    """Condition keys."""

    def test_missing(self) -> None:
        """A key without a value is reported, one after an untrue condition too."""
        conditions = {
            "IpAddress": {"aws:SourceIp": "10.0.0.0/8"},
            "StringEquals": {"s3:x-amz-acl": "private", "aws:username": "ann"},
        }
        document = policy({"Condition": conditions})
        found = self.custom(document, "s3:PutObject", resourceArns=(CAT,))
        self.assertEqual(found.evalDecision, "implicitDeny")
        expected = ("aws:SourceIp", "aws:username", "s3:x-amz-acl")
        self.assertEqual(found.missingContextValues, expected)
        entries = (
            ContextEntry("AWS:sourceip", ("10.1.2.3",), "ip"),
            ContextEntry("s3:X-Amz-Acl", ("private",)),
        )
        caller = "arn:aws:iam::acme:user/x/ann"
        found = self.custom(
            document,
            "s3:PutObject",
            resourceArns=(CAT,),
            contextEntries=entries,
            callerArn=caller,
        )
        self.assertEqual((found.evalDecision, found.missingContextValues), ("allowed", ()))
        # Keys of statements about other resources are not needed.
        document = policy(
            {"Resource": f"{BUCKET}/dog", **when("Bool", "aws:SecureTransport", "true")}
        )
        found = self.custom(document, "s3:PutObject", resourceArns=(CAT,))
        self.assertEqual(found.missingContextValues, ())

    def test_operators(self) -> None:
        """Given values reach each operator, variables and C{Null}; no request gives defaults."""
        tags, tag = ("a", "b"), "aws:requesttag/team"
        forAll, forAny = "ForAllValues:StringEquals", "ForAnyValue:StringEquals"
        for condition, entry, decision in (
            (when("Null", "s3:x-amz-acl", "true"), None, "allowed"),
            (when("Null", "s3:x-amz-acl", "true"), ("s3:x-amz-acl", "private"), "implicitDeny"),
            (when("StringNotEquals", "s3:prefix", "x"), None, "allowed"),
            (when("StringEquals", "s3:prefix", ""), None, "implicitDeny"),
            (when("NumericLessThan", "s3:max-keys", "9"), ("s3:max-keys", "8"), "allowed"),
            (when("StringLike", "aws:RequestTag/Team", "r*"), (tag, "red"), "allowed"),
            (
                when("StringEquals", "s3:ExistingObjectTag/Team", "x"),
                ("s3:existingobjecttag/team", "x"),
                "implicitDeny",
            ),
            (when(forAll, "aws:TagKeys", "a"), ("aws:TagKeys", *tags), "implicitDeny"),
            (when(forAny, "aws:TagKeys", "a"), ("aws:TagKeys", *tags), "allowed"),
            (when("StringEquals", "jwt:groups", "b"), ("jwt:groups", *tags), "allowed"),
            (when("DateGreaterThan", "aws:CurrentTime", "2023-01-01T00:00:00Z"), None, "allowed"),
            (
                when("DateGreaterThan", "aws:CurrentTime", "2023-01-01T00:00:00Z"),
                ("aws:CurrentTime", "2022-01-01T00:00:00Z"),
                "implicitDeny",
            ),
            ({"Resource": f"{BUCKET}/${{s3:prefix}}"}, ("s3:prefix", "cat"), "allowed"),
            ({"Resource": f"{BUCKET}/${{s3:prefix}}"}, None, "implicitDeny"),
        ):  # fmt: skip
            entries = () if entry is None else (ContextEntry(entry[0], entry[1:]),)
            found = self.custom(
                policy(condition), "s3:GetObject", resourceArns=(CAT,), contextEntries=entries
            )
            self.assertEqual(found.evalDecision, decision, (condition, entry))

    def test_entries(self) -> None:
        """A value of another type, and several values of a key that has one, are refused."""
        for name, values, kind, text in (
            ("aws:SourceIp", ("a", "b"), "ipList", "has one value"),
            ("s3:max-keys", ("x",), "numeric", "is no number"),
            ("aws:SecureTransport", ("maybe",), "boolean", "neither true nor false"),
            ("aws:CurrentTime", ("x",), "date", "invalid value"),
            ("aws:userid", ("?",), "binary", "Base64"),
        ):
            entries = (ContextEntry(name, values, kind),)
            self.assertInvalid(text, ALLOW_ALL, contextEntries=entries)


class PrincipalTests(SimulationCase):
    """The policies of identities."""

    def test_user(self) -> None:
        """A user has its own policies and those of its groups; its tags and name are known."""
        ann = "user/staff/Ann"
        self.assertEqual(self.principal(ann, "s3:GetObject").evalDecision, "implicitDeny")
        document = policy({"Resource": f"{BUCKET}/${{aws:username}}"})
        self.change(
            operations.PutGroupPolicy(
                groupName="readers", policyName="own", policyDocument=document
            )
        )
        found = self.principal(ann, "s3:GetObject", resourceArns=(f"{BUCKET}/Ann",))
        self.assertEqual(found.evalDecision, "allowed")
        self.assertEqual([each.sourcePolicyId for each in found.matchedStatements], ["own"])
        arn = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
        self.change(operations.AttachUserPolicy(userName="ann", policyArn=arn))
        found = self.principal(ann, "s3:GetObject")
        names = [each.sourcePolicyId for each in found.matchedStatements]
        self.assertEqual((found.evalDecision, names), ("allowed", ["AmazonS3ReadOnlyAccess"]))
        more = policy({"Effect": "Deny", **when("Null", "aws:PrincipalTag/team", "false")})
        self.assertEqual(
            self.principal(ann, "s3:GetObject", policyInputList=(more,)).evalDecision, "allowed"
        )
        self.change(operations.TagUser(userName="ann", tags=(Tag("Team", "red"),)))
        found = self.principal(ann, "s3:GetObject", policyInputList=(more,))
        self.assertEqual(found.evalDecision, "explicitDeny")
        self.assertEqual(found.matchedStatements[0].sourcePolicyId, "PolicyInputList.1")

    def test_others(self) -> None:
        """A group and a role have their policies; a role has no user name."""
        document = policy(when("StringEquals", "aws:username", "ann"))
        for kind, name in (("group", "readers"), ("role", "ops")):
            put = getattr(operations, f"Put{kind.capitalize()}Policy")
            given = {f"{kind}Name": name, "policyName": "p", "policyDocument": document}
            self.change(put(**given))
            found = self.principal(f"{kind}/{name}", "s3:GetObject")
            self.assertEqual(found.evalDecision, "implicitDeny")
            self.assertEqual(found.missingContextValues, ("aws:username",))
            named = self.principal(
                f"{kind}/{name}", "s3:GetObject", callerArn="arn:aws:iam::acme:user/ann"
            )
            self.assertEqual(named.evalDecision, "allowed")

    def test_unknown(self) -> None:
        """Identities that do not exist, of other accounts and of other kinds are refused."""
        for resource in ("user/bob", "user/Ann", "user/board/Ann", "user/Staff/Ann", "role/x/ops"):
            # A path that is not the identity's own must not stand for it in the caller's rights.
            with self.assertRaises(NoSuchEntity):
                self.principal(resource, "s3:GetObject")
        for arn in (
            "arn:aws:iam::other:user/ann",
            "arn:aws:iam::acme:policy/x",
            "arn:aws:iam::acme:root",
            "arn:aws:iam::acme:user/OPERATOR",
            "arn:aws:sts::acme:assumed-role/ops/work",
        ):
            operation = operations.SimulatePrincipalPolicy(
                policySourceArn=arn, actionNames=("s3:GetObject",)
            )
            self.assertRaises(InvalidInput, self.perform, operation)


class ResourcePolicyTests(SimulationCase):
    """Policies of buckets."""

    def resource(self, principal: str, effect: str = "Allow") -> str:
        """Return the policy of the bucket."""
        return policy(
            {"Effect": effect, "Principal": {"AWS": principal}, "Resource": f"{BUCKET}/*"}
        )

    def judge(self, document: str, principal: str, **more: Any) -> tuple[str, Any]:
        """Return the decision on a read by Ann, and its details."""
        found = self.custom(
            document,
            "s3:GetObject",
            resourceArns=(CAT,),
            resourcePolicy=self.resource(principal, more.pop("effect", "Allow")),
            callerArn="arn:aws:iam::acme:user/ann",
            **more,
        )
        assert found.resourceSpecificResults is not None
        return found.evalDecision, found.resourceSpecificResults[0].evalDecisionDetails

    def test_own(self) -> None:
        """In its account, a user that the policy names needs no other; an account is not enough."""
        none = policy({"Resource": f"{BUCKET}/dog"})
        user, account = "arn:aws:iam::acme:user/ann", "arn:aws:iam::acme:root"
        self.assertEqual(self.judge(none, user), ("allowed", {}))
        self.assertEqual(self.judge(none, account), ("implicitDeny", {}))
        self.assertEqual(self.judge(ALLOW_ALL, account), ("allowed", {}))
        self.assertEqual(self.judge(ALLOW_ALL, user, effect="Deny"), ("explicitDeny", {}))
        denied = policy({"Effect": "Deny"})
        self.assertEqual(self.judge(denied, user), ("explicitDeny", {}))

    def test_role(self) -> None:
        """A role that is only named has the rights that a policy gives to its ARN."""
        role = "arn:aws:iam::acme:role/x/ops"
        for principal, decision in ((role, "allowed"), (f"{role}2", "implicitDeny")):
            found = self.custom(
                policy({"Resource": f"{BUCKET}/dog"}),
                "s3:GetObject",
                resourceArns=(CAT,),
                resourcePolicy=self.resource(principal),
                callerArn=role,
            )
            self.assertEqual(found.evalDecision, decision)
        document = policy(when("StringEquals", "aws:PrincipalType", "AssumedRole"))
        found = self.custom(document, "s3:GetObject", callerArn=role)
        self.assertEqual(found.evalDecision, "allowed")
        document = policy(when("StringLike", "aws:userid", "*"))
        found = self.custom(document, "s3:GetObject", callerArn=role)
        self.assertEqual(found.missingContextValues, ("aws:userid",))

    def test_foreign(self) -> None:
        """For the bucket of another account both policies must allow, and the details say which."""
        owner = {"resourceOwner": "arn:aws:iam::other:root"}
        user, stranger = "arn:aws:iam::acme:user/ann", "arn:aws:iam::acme:user/bob"
        none = policy({"Resource": f"{BUCKET}/dog"})
        kinds = ("IAM Policy", "Resource Policy")
        for document, principal, decision, details in (
            (ALLOW_ALL, user, "allowed", ("allowed", "allowed")),
            (ALLOW_ALL, stranger, "implicitDeny", ("allowed", "implicitDeny")),
            (none, user, "implicitDeny", ("implicitDeny", "allowed")),
            (policy({"Effect": "Deny"}), user, "explicitDeny", ("explicitDeny", "allowed")),
        ):
            expected = (decision, dict(zip(kinds, details, strict=True)))
            self.assertEqual(self.judge(document, principal, **owner), expected)
        found = self.custom(ALLOW_ALL, "s3:GetObject", resourceArns=(CAT,), **owner)
        self.assertEqual(found.evalDecision, "implicitDeny")

    def test_refused(self) -> None:
        """A resource policy needs a caller, and resources that it can be about."""
        user = "arn:aws:iam::acme:user/ann"
        document = self.resource(user)
        more = {"resourcePolicy": document, "callerArn": user}
        self.assertInvalid(
            "CallerArn is required", ALLOW_ALL, resourceArns=(CAT,), resourcePolicy=document
        )
        for arns in ((), ("*",), (CAT, "arn:aws:s3:::other"), ("arn:aws:iam::acme:user/ann",)):
            self.assertInvalid("one bucket", ALLOW_ALL, resourceArns=arns, **more)
        self.assertInvalid(
            "Invalid ResourcePolicy", ALLOW_ALL, resourceArns=("arn:aws:s3:::x/y",), **more
        )


class PageTests(SimulationCase):
    """Pages and refusals."""

    def test_pages(self) -> None:
        """Actions come in pages in the order of the call."""
        names = tuple(f"s3:{each}" for each in ("PutObject", "GetObject", "ListBucket"))
        marker, found = "", []
        while True:
            operation = operations.SimulateCustomPolicy(
                policyInputList=(ALLOW_ALL,), actionNames=names, maxItems=2, marker=marker
            )
            page = self.perform(operation)
            found.append([each.evalActionName for each in page.evaluationResults])
            if not page.isTruncated:
                break
            marker = page.marker
        self.assertEqual(found, [["s3:PutObject", "s3:GetObject"], ["s3:ListBucket"]])

    def test_work(self) -> None:
        """A page has fewer rows, or a call is refused, before it blocks the reactor for long."""
        statements = [{"Resource": f"{BUCKET}/{n}/*"} for n in range(200)]
        document = policy(*statements)
        arns = tuple(f"{BUCKET}/{n}/x" for n in range(50))
        operation = operations.SimulateCustomPolicy(
            policyInputList=(document,), actionNames=("s3:GetObject",) * 100, resourceArns=arns
        )
        self.perform(operation)
        began = process_time()
        page = self.perform(operation)
        self.assertLess(process_time() - began, 1)
        self.assertEqual((len(page.evaluationResults), page.isTruncated), (2, True))
        self.assertInvalid("too large", document, resourceArns=arns * 3)

    @long("takes seconds")
    def test_longStatements(self) -> None:
        """Long lists of values, wildcards, and several values of a key count as work, too."""
        numbers = [str(n) for n in range(1500)]
        prefix = (ContextEntry("s3:prefix", ("x" * 500,)),)
        tags = (ContextEntry("aws:TagKeys", tuple(map(str, range(100))), "stringList"),)
        for document, entries, most in (
            (policy(when("StringEqualsIgnoreCase", "s3:prefix", numbers)), prefix, 10),
            (policy(when("StringLike", "s3:prefix", [f"*{n}" for n in numbers])), prefix, 3),
            (policy(*[{"Resource": f"{BUCKET}/{'*a' * 150}"}] * 20), (), 1),
            (policy(*[when("ForAnyValue:StringLike", "aws:TagKeys", "a*")] * 7), tags, 1),
        ):
            operation = operations.SimulateCustomPolicy(
                policyInputList=(document,) * 20,
                actionNames=("s3:GetObject",) * 100,
                contextEntries=entries,
            )
            found = len(self.perform(operation).evaluationResults)
            self.assertTrue(0 < found <= most, (found, document[:100]))

    def test_longValue(self) -> None:
        """The value of a context key is limited, as that of a request is."""
        for length in (2048, 2049):
            entries = (ContextEntry("s3:prefix", ("x" * length,)),)
            simulate = partial(self.custom, ALLOW_ALL, "s3:GetObject", contextEntries=entries)
            if length > 2048:
                self.assertRaises(ValidationError, simulate)
            else:
                self.assertEqual(simulate().evalDecision, "allowed")

    def test_refused(self) -> None:
        """Invalid policies, actions and ARNs are refused with the reason."""
        self.assertInvalid("PolicyInputList.1", "{")
        self.assertInvalid("Invalid Action", ALLOW_ALL, "s3:Get*")
        self.assertInvalid("Invalid Action", ALLOW_ALL, "ec2:RunInstances")
        self.assertInvalid("Invalid Resource", ALLOW_ALL, resourceArns=("arn:aws:s3:::",))
        self.assertInvalid("Invalid Resource", ALLOW_ALL, resourceArns=("photos",))
        self.assertInvalid("ResourceOwner", ALLOW_ALL, resourceOwner="other")
        for arn in ("arn:aws:iam::acme:root", "arn:aws:sts::acme:assumed-role/ops/work"):
            self.assertInvalid("CallerArn", ALLOW_ALL, callerArn=arn)
