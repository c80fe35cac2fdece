"""The policy simulator with real clients; its decisions are those on real requests."""

import json
from typing import Any

from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.support.clients import awsEnvironment, botoClient, runTool
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.s3.test_iam import IAMCase, policy

KEYS = ("a/1", "a/2", "b/1")

_PREFIXES = ("", "a/", "b/")

_CONDITIONS = some.sampled_from(
    [
        {},
        {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}},
        {"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}},
        {"Bool": {"aws:SecureTransport": "true"}},
        {"BoolIfExists": {"aws:SecureTransport": "false"}},
        {"StringEquals": {"aws:username": "ann"}},
        {"StringNotEquals": {"aws:PrincipalTag/team": "blue"}},
        {"StringLike": {"s3:prefix": "a*"}},
        {"StringNotLikeIfExists": {"s3:prefix": "a*"}},
        {"Null": {"s3:prefix": "true"}},
        {"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}},
        {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/ann"}},
    ]
)

_ACTIONS = some.sampled_from(
    ["s3:*", "s3:Get*", "s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:List*", "iam:*"]
)

_RESOURCES = some.sampled_from(["*", "{b}", "{b}/*", "{b}/a/*", "{b}/?/1", "arn:aws:s3:::*", "{u}"])

_STATEMENTS = some.fixed_dictionaries(
    {
        "Effect": some.sampled_from(["Allow", "Allow", "Deny"]),
        "Action": _ACTIONS,
        "Resource": _RESOURCES,
        "Condition": _CONDITIONS,
    }
)

_BUCKET_STATEMENTS = some.fixed_dictionaries(
    {
        "Effect": some.sampled_from(["Allow", "Deny"]),
        "Principal": some.sampled_from(["*", {"AWS": "{u}"}, {"AWS": "{r}"}]),
        "Condition": _CONDITIONS,
    },
) | some.just({})


def _isAllowed(call: Any, **arguments: Any) -> bool:
    """Send a request; return whether it was authorised."""
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDenied", error
        return False
    return True


class SimulationTests(IAMCase):
    """Clients."""

    def test_custom(self) -> None:
        """The example of Amazon's reference has the answer that the reference shows."""
        document = (
            '{\n  "Version":"2012-10-17",\n\n  "Statement":{\n    "Effect":"Allow",\n'
            '    "Action":"s3:ListBucket",\n    "Resource":"arn:aws:s3:::teambucket",\n'
            '    "Condition":{\n      "Bool":{"aws:SecureTransport":"true"}\n    }\n  }\n}'
        )
        given = {
            "PolicyInputList": [document],
            "ActionNames": ["s3:ListBucket"],
            "ResourceArns": ["arn:aws:s3:::teambucket"],
        }
        entry = {
            "ContextKeyName": "aws:SecureTransport",
            "ContextKeyType": "boolean",
            "ContextKeyValues": ["true"],
        }
        answer = self.iam.simulate_custom_policy(**given, ContextEntries=[entry])
        [found] = answer["EvaluationResults"]
        match = {
            "SourcePolicyId": "PolicyInputList.1",
            "SourcePolicyType": "IAM Policy",
            "StartPosition": {"Line": 4, "Column": 16},
            "EndPosition": {"Line": 11, "Column": 4},
        }
        self.assertEqual(
            found,
            {
                "EvalActionName": "s3:ListBucket",
                "EvalResourceName": "arn:${Partition}:s3:::${BucketName}",
                "EvalDecision": "allowed",
                "MatchedStatements": [match],
                "MissingContextValues": [],
                "EvalDecisionDetails": {},
                "ResourceSpecificResults": [
                    {
                        "EvalResourceName": "arn:aws:s3:::teambucket",
                        "EvalResourceDecision": "allowed",
                        "MatchedStatements": [match],
                        "MissingContextValues": [],
                        "EvalDecisionDetails": {},
                    }
                ],
            },
        )
        self.assertFalse(answer["IsTruncated"])
        [found] = self.iam.simulate_custom_policy(**given)["EvaluationResults"]
        self.assertEqual(found["EvalDecision"], "implicitDeny")
        self.assertEqual(found["MissingContextValues"], ["aws:SecureTransport"])

    def test_pages(self) -> None:
        """The paginator of the SDK reads all results."""
        names = ["s3:GetObject", "s3:PutObject", "s3:ListBucket", "iam:GetUser", "sts:AssumeRole"]
        pages = self.iam.get_paginator("simulate_custom_policy").paginate(
            PolicyInputList=[policy("s3:*")],
            ActionNames=names,
            PaginationConfig={"PageSize": 2},
        )
        found = [
            (each["EvalActionName"], each["EvalDecision"])
            for page in pages
            for each in page["EvaluationResults"]
        ]
        decisions = ["allowed"] * 3 + ["implicitDeny"] * 2
        self.assertEqual(found, list(zip(names, decisions, strict=True)))

    def test_rights(self) -> None:
        """A simulation needs its own action, on the identity whose policies it discloses."""
        arn = f"arn:aws:iam::{self.account}:user/ann"
        own = self.client(self.makeUser("ann", policy("iam:SimulatePrincipalPolicy", resource=arn)))
        self.makeUser("bob")
        found = own.simulate_principal_policy(PolicySourceArn=arn, ActionNames=["iam:GetUser"])
        self.assertEqual(found["EvaluationResults"][0]["EvalDecision"], "implicitDeny")
        for name in ("bob", "nobody"):
            self.assertRefused(
                403,
                "AccessDenied",
                own.simulate_principal_policy,
                PolicySourceArn=arn.replace("ann", name),
                ActionNames=["iam:GetUser"],
            )
        self.assertRefused(
            403,
            "AccessDenied",
            own.simulate_custom_policy,
            PolicyInputList=[policy("s3:*")],
            ActionNames=["iam:GetUser"],
        )

    def test_refused(self) -> None:
        """Errors have Amazon's codes; parameters of other features are not implemented."""
        simulate = self.iam.simulate_custom_policy
        given: dict[str, Any] = {
            "PolicyInputList": [policy("s3:*")],
            "ActionNames": ["s3:GetObject"],
        }
        self.assertRefused(400, "InvalidInput", simulate, **{**given, "PolicyInputList": ["{"]})
        self.assertRefused(400, "InvalidInput", simulate, **{**given, "ActionNames": ["s3:No"]})
        self.assertRefused(400, "InvalidInput", simulate, **given, ResourceArns=["photos"])
        self.assertRefused(
            404,
            "NoSuchEntity",
            self.iam.simulate_principal_policy,
            PolicySourceArn=f"arn:aws:iam::{self.account}:user/nobody",
            ActionNames=["s3:GetObject"],
        )
        self.assertRefused(
            501,
            "NotImplemented",
            simulate,
            **given,
            PermissionsBoundaryPolicyInputList=[policy("s3:*")],
        )

    @long("runs aws-cli")
    def test_awscli(self) -> None:
        """The command of aws-cli prints the decision."""
        program = needProgram("aws")
        self.makeUser("ann", policy("s3:GetObject", resource="arn:aws:s3:::photos/*"))
        environment = awsEnvironment(self.endpoint, self.makeDirectory("aws"), self.admin)
        entry = "ContextKeyName=aws:SourceIp,ContextKeyValues=127.0.0.1,ContextKeyType=ip"
        command = [program, "iam", "simulate-principal-policy", "--output", "json"]
        command += ["--policy-source-arn", f"arn:aws:iam::{self.account}:user/ann"]
        command += ["--action-names", "s3:GetObject", "s3:PutObject"]
        command += ["--resource-arns", "arn:aws:s3:::photos/cat", "--context-entries", entry]
        found = json.loads(runTool(command, environment))["EvaluationResults"]
        self.assertEqual([each["EvalDecision"] for each in found], ["allowed", "implicitDeny"])


@long("compares many policies")
class RealRequestTests(IAMCase):
    """The decisions are those on real requests."""

    def setUp(self) -> None:
        """Make a user, and a bucket with objects."""
        super().setUp()
        self.user = self.makeUser("ann", Tags=[{"Key": "team", "Value": "red"}])
        self.iam.create_user(UserName="bob")
        self.owner = botoClient(self.endpoint, self.admin, patient=False)
        self.bucket = self.makeName()
        self.owner.create_bucket(Bucket=self.bucket)
        for key in KEYS:
            self.owner.put_object(Bucket=self.bucket, Key=key, Body=b"x")
        self.s3 = botoClient(self.endpoint, self.user, patient=False)
        self.own = self.client(self.user)
        self.seen: set[str] = set()

    def filled(self, value: Any) -> Any:
        """Insert the names of this test into a part of a policy."""
        if isinstance(value, dict):
            return {name: self.filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if isinstance(value, str):
            user = f"arn:aws:iam::{self.account}:user"
            arn = f"arn:aws:s3:::{self.bucket}"
            pairs = (("{b}", arn), ("{u}", f"{user}/ann"), ("{r}", user.replace("user", "root")))
            for name, text in pairs:
                value = value.replace(name, text)
        return value

    def simulate(self, action: str, arn: str, resourcePolicy: str, prefix: str | None) -> bool:
        """Simulate a request of the user."""
        values = {"aws:SourceIp": "127.0.0.1", "aws:SecureTransport": "false"}
        if prefix is not None:
            values["s3:prefix"] = prefix
        more = {"ResourcePolicy": resourcePolicy} if resourcePolicy and "s3:::" in arn else {}
        found = self.iam.simulate_principal_policy(
            PolicySourceArn=f"arn:aws:iam::{self.account}:user/ann",
            ActionNames=[action],
            ResourceArns=[arn],
            ContextEntries=[
                {"ContextKeyName": name, "ContextKeyValues": [text], "ContextKeyType": "string"}
                for name, text in values.items()
            ],
            **more,
        )
        [result] = found["EvaluationResults"]
        self.seen.add(result["EvalDecision"])
        return bool(result["EvalDecision"] == "allowed")

    @settings(max_examples=150, deadline=None)
    @given(some.lists(_STATEMENTS, min_size=1, max_size=4), _BUCKET_STATEMENTS)
    def compare(self, statements: list[Any], bucketStatement: dict[str, Any]) -> None:
        """Compare the decisions on all requests by one policy of the user and one of the bucket."""
        document = json.dumps({"Version": "2012-10-17", "Statement": self.filled(statements)})
        self.iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=document)
        resourcePolicy = ""
        if bucketStatement:
            whole = {
                **self.filled(bucketStatement),
                "Action": ["s3:GetObject", "s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{self.bucket}", f"arn:aws:s3:::{self.bucket}/a/*"],
            }
            resourcePolicy = json.dumps({"Version": "2012-10-17", "Statement": whole})
            self.owner.put_bucket_policy(Bucket=self.bucket, Policy=resourcePolicy)
        else:
            self.owner.delete_bucket_policy(Bucket=self.bucket)
        named, arn = {"Bucket": self.bucket}, f"arn:aws:s3:::{self.bucket}"
        requests: list[tuple[str, str, str | None, Any, dict[str, Any]]] = [
            ("s3:ListAllMyBuckets", "*", None, self.s3.list_buckets, {}),
            ("s3:GetBucketLocation", arn, None, self.s3.get_bucket_location, named),
            (
                "iam:GetUser",
                f"arn:aws:iam::{self.account}:user/ann",
                None,
                self.own.get_user,
                {"UserName": "ann"},
            ),
            (
                "iam:GetUser",
                f"arn:aws:iam::{self.account}:user/bob",
                None,
                self.own.get_user,
                {"UserName": "bob"},
            ),
        ]
        for prefix in _PREFIXES:
            call = self.s3.list_objects_v2
            requests.append(("s3:ListBucket", arn, prefix, call, {**named, "Prefix": prefix}))
        for key in KEYS:
            of = {**named, "Key": key}
            requests.append(("s3:GetObject", f"{arn}/{key}", None, self.s3.get_object, of))
            put = {**of, "Body": b"y"}
            requests.append(("s3:PutObject", f"{arn}/{key}", None, self.s3.put_object, put))
        for action, resource, prefix, call, arguments in requests:
            self.assertEqual(
                self.simulate(action, resource, resourcePolicy, prefix),
                _isAllowed(call, **arguments),
                (action, resource, prefix, document, resourcePolicy),
            )

    def test_same(self) -> None:
        """Random policies of a user and of a bucket."""
        self.compare()
        self.assertEqual(self.seen, {"allowed", "implicitDeny", "explicitDeny"})
