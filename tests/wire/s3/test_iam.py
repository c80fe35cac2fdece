"""The IAM API, with the clients of its SDK."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from tests.support.clients import Account, botoClient
from tests.support.s3signer import Outgoing, Signer
from tests.wire.s3.fixture import S3Case

FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

READ_ALL = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
FULL = "arn:aws:iam::aws:policy/AmazonS3FullAccess"


def policy(*actions: str, resource: str = "*", effect: str = "Allow", **more: Any) -> str:
    """Return a policy of one statement."""
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}],
    }
)


class IAMCase(S3Case):
    """Tests of IAM in an account of their own, which a key with the role C{admin} administers."""

    def setUp(self) -> None:
        """Issue the key of the account."""
        super().setUp()
        self.account = self.makeName("iam").replace("-", "")
        self.admin = self.issueKey(self.account, "--role", "admin")
        self.iam = self.client(self.admin)

    def client(self, account: Account, service: str = "iam") -> Any:
        """Return a client that takes the first answer."""
        return botoClient(self.endpoint, account, patient=False, service=service)

    def makeUser(self, name: str, *documents: str, **more: Any) -> Account:
        """Create a user with a key and inline policies."""
        self.iam.create_user(UserName=name, **more)
        for number, document in enumerate(documents):
            self.iam.put_user_policy(
                UserName=name, PolicyName=f"p{number}", PolicyDocument=document
            )
        return self.makeKey(name)

    def makeKey(self, name: str, iam: Any = None) -> Account:
        """Create a key of a user."""
        key = (iam or self.iam).create_access_key(UserName=name)["AccessKey"]
        return Account(key["AccessKeyId"], key["SecretAccessKey"])


class UserTests(IAMCase):
    """Users and groups."""

    def test_user(self) -> None:
        """A user has a path, an id, an ARN, a date and tags, and keeps its id under a new name."""
        tags = [{"Key": "team", "Value": "blue"}]
        made = self.iam.create_user(UserName="Ann", Path="/staff/", Tags=tags)["User"]
        self.assertEqual(made["Arn"], f"arn:aws:iam::{self.account}:user/staff/Ann")
        self.assertRegex(made["UserId"], r"\AAIDA[A-Z2-7]{17}\Z")
        self.assertEqual(self.iam.get_user(UserName="aNN")["User"], made)
        self.assertRefused(
            409, "EntityAlreadyExists", self.iam.create_user, UserName="ANN", Path="/x/"
        )
        self.iam.update_user(UserName="ann", NewUserName="Zoe", NewPath="/z/")
        self.assertRefused(404, "NoSuchEntity", self.iam.get_user, UserName="Ann")
        found = self.iam.get_user(UserName="zoe")["User"]
        self.assertEqual((found["UserId"], found["Path"]), (made["UserId"], "/z/"))
        self.iam.tag_user(UserName="zoe", Tags=[{"Key": "Team", "Value": "red"}])
        self.iam.tag_user(UserName="zoe", Tags=[{"Key": "b", "Value": ""}])
        expected = [{"Key": "Team", "Value": "red"}, {"Key": "b", "Value": ""}]
        self.assertEqual(self.iam.list_user_tags(UserName="zoe")["Tags"], expected)
        self.iam.untag_user(UserName="zoe", TagKeys=["TEAM", "absent"])
        self.assertEqual(self.iam.list_user_tags(UserName="zoe")["Tags"], expected[1:])
        self.iam.delete_user(UserName="Zoe")
        self.assertRefused(404, "NoSuchEntity", self.iam.delete_user, UserName="Zoe")

    def test_pages(self) -> None:
        """Lists are in pages by name in any case, and the rows of one path prefix."""
        for number, name in enumerate(("Ad", "ac", "Ab", "aa")):
            self.iam.create_user(UserName=name, Path=f"/p/{number}/")
        pages = self.iam.get_paginator("list_users").paginate(
            PathPrefix="/p/", PaginationConfig={"PageSize": 1}
        )
        sizes = [[user["UserName"] for user in page["Users"]] for page in pages]
        self.assertEqual(sizes, [["aa"], ["Ab"], ["ac"], ["Ad"]])
        found = self.iam.list_users(PathPrefix="/p/3")["Users"]
        self.assertEqual([user["UserName"] for user in found], ["aa"])
        names = [user["UserName"] for user in self.iam.list_users()["Users"]]
        self.assertIn(self.admin.accessKey, names)
        self.assertRefused(400, "ValidationError", self.iam.list_users, Marker="nonsense")

    def test_groups(self) -> None:
        """A group keeps its users under a new name, and is deleted without them."""
        made = self.iam.create_group(GroupName="Devs", Path="/g/")["Group"]
        self.assertEqual(made["Arn"], f"arn:aws:iam::{self.account}:group/g/Devs")
        self.assertRefused(409, "EntityAlreadyExists", self.iam.create_group, GroupName="DEVS")
        self.iam.create_user(UserName="ann")
        for _ in range(2):
            self.iam.add_user_to_group(GroupName="devs", UserName="ANN")
        self.iam.update_group(GroupName="devs", NewGroupName="Ops")
        members = self.iam.get_group(GroupName="ops")
        self.assertEqual([user["UserName"] for user in members["Users"]], ["ann"])
        self.assertEqual(members["Group"]["GroupId"], made["GroupId"])
        groups = self.iam.list_groups_for_user(UserName="ann")["Groups"]
        self.assertEqual([group["GroupName"] for group in groups], ["Ops"])
        for call, name in (
            (self.iam.delete_group, "GroupName"),
            (self.iam.delete_user, "UserName"),
        ):
            value = {"GroupName": "ops", "UserName": "ann"}[name]
            self.assertRefused(409, "DeleteConflict", call, **{name: value})
        self.iam.remove_user_from_group(GroupName="ops", UserName="ann")
        self.iam.delete_group(GroupName="ops")
        self.assertEqual(self.iam.list_groups()["Groups"], [])

    def test_keys(self) -> None:
        """A user has at most two keys, which are listed, disabled and deleted."""
        first = self.makeUser("ann")
        second = self.makeKey("ann")
        self.assertRefused(409, "LimitExceeded", self.iam.create_access_key, UserName="ann")
        found = self.iam.list_access_keys(UserName="ann")["AccessKeyMetadata"]
        names = {key["AccessKeyId"] for key in found}
        self.assertEqual(names, {first.accessKey, second.accessKey})
        self.iam.update_access_key(UserName="ann", AccessKeyId=first.accessKey, Status="Inactive")
        denied = self.client(first)
        self.assertRefused(403, "InvalidClientTokenId", denied.list_users)
        self.assertRefused(
            404,
            "NoSuchEntity",
            self.iam.delete_access_key,
            UserName=self.admin.accessKey,
            AccessKeyId=first.accessKey,
        )
        used = self.iam.get_access_key_last_used(AccessKeyId=second.accessKey)
        self.assertEqual(used["UserName"], "ann")
        self.assertEqual(used["AccessKeyLastUsed"]["ServiceName"], "N/A")
        for key in (first, second):
            self.iam.delete_access_key(UserName="ann", AccessKeyId=key.accessKey)
        self.iam.delete_user(UserName="ann")

    def test_operatorKey(self) -> None:
        """A key of an operator is a user named as itself, which IAM shows and does not change."""
        name = self.admin.accessKey
        user = self.iam.get_user()["User"]
        self.assertEqual(user["UserName"], name)
        self.assertEqual(user["Arn"], f"arn:aws:iam::{self.account}:user/{name}")
        self.assertRefused(409, "EntityAlreadyExists", self.iam.create_user, UserName=name)
        for call in (
            lambda **user: self.iam.put_user_policy(
                PolicyName="p", PolicyDocument=policy("s3:*"), **user
            ),
            lambda **user: self.iam.attach_user_policy(PolicyArn=FULL, **user),
            self.iam.delete_user,
        ):
            self.assertRefused(400, "UnmodifiableEntity", call, UserName=name)
        made = self.iam.create_access_key()["AccessKey"]
        self.assertEqual(made["UserName"], name)
        found = self.iam.list_access_keys()["AccessKeyMetadata"]
        self.assertEqual({key["AccessKeyId"] for key in found}, {name, made["AccessKeyId"]})
        self.iam.delete_access_key(AccessKeyId=made["AccessKeyId"])
        self.assertRefused(
            404, "NoSuchEntity", self.iam.delete_access_key, AccessKeyId=made["AccessKeyId"]
        )

    def test_together(self) -> None:
        """Changes of an account at the same time are all made."""

        def create(number: int) -> None:
            self.iam.create_user(UserName=f"user{number}")
            self.iam.add_user_to_group(UserName=f"user{number}", GroupName="all")

        self.iam.create_group(GroupName="all")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(16)))
        self.assertEqual(len(self.iam.get_group(GroupName="all")["Users"]), 16)


class PolicyTests(IAMCase):
    """Policies of users, groups and roles."""

    def test_inline(self) -> None:
        """The three kinds of identities have inline policies, as long as Amazon's."""
        self.iam.create_role(RoleName="name", AssumeRolePolicyDocument=TRUST)
        self.iam.create_group(GroupName="name")
        self.iam.create_user(UserName="name")
        document = policy("s3:GetObject")
        for kind, limit in (("user", 2048), ("group", 5120), ("role", 10_240)):
            who = {f"{kind.capitalize()}Name": "name"}
            named = {**who, "PolicyName": "List"}

            def call(verb: str, kind: str = kind) -> Any:
                return getattr(self.iam, f"{verb}_{kind}_policy")

            for verb in ("get", "delete"):
                self.assertRefused(404, "NoSuchEntity", call(verb), **named)
            call("put")(PolicyDocument=document, **named)
            found = call("get")(**named)
            self.assertEqual(json.dumps(found["PolicyDocument"]), document)
            call("put")(**{**named, "PolicyName": "Another"}, PolicyDocument=document)
            names = getattr(self.iam, f"list_{kind}_policies")(**who)["PolicyNames"]
            self.assertEqual(names, ["Another", "List"])
            delete = getattr(self.iam, f"delete_{kind}")
            self.assertRefused(409, "DeleteConflict", delete, **who)
            # White space does not count; the other inline policies do.
            call("put")(PolicyDocument=document.replace(" ", " " * 500), **named)
            long = policy("s3:GetObject", resource="arn:aws:s3:::" + "b" * (limit - 200))
            self.assertRefused(409, "LimitExceeded", call("put"), PolicyDocument=long, **named)
            for name in names:
                call("delete")(**{**named, "PolicyName": name})
            delete(**who)

    def test_attached(self) -> None:
        """The three kinds of identities have managed policies, at most ten."""
        self.iam.create_role(RoleName="name", AssumeRolePolicyDocument=TRUST)
        self.iam.create_group(GroupName="name")
        self.iam.create_user(UserName="name")
        arns = [
            self.iam.create_policy(PolicyName=f"p{number}", PolicyDocument=policy("s3:*"))[
                "Policy"
            ]["Arn"]
            for number in range(9)
        ]
        for kind in ("user", "group", "role"):
            who = {f"{kind.capitalize()}Name": "name"}

            def call(verb: str, kind: str = kind) -> Any:
                return getattr(self.iam, f"{verb}_{kind}_policy")

            self.assertRefused(404, "NoSuchEntity", call("detach"), PolicyArn=FULL, **who)
            for _ in range(2):
                call("attach")(PolicyArn=FULL, **who)
            for arn in arns:
                call("attach")(PolicyArn=arn, **who)
            self.assertRefused(409, "LimitExceeded", call("attach"), PolicyArn=READ_ALL, **who)
            pages = self.iam.get_paginator(f"list_attached_{kind}_policies").paginate(
                **who, PaginationConfig={"PageSize": 3}
            )
            found = [each["PolicyArn"] for page in pages for each in page["AttachedPolicies"]]
            self.assertEqual(sorted(found), sorted([FULL, *arns]))
            delete = getattr(self.iam, f"delete_{kind}")
            self.assertRefused(409, "DeleteConflict", delete, **who)
        self.assertRefused(409, "DeleteConflict", self.iam.delete_policy, PolicyArn=arns[0])
        entities = self.iam.list_entities_for_policy(PolicyArn=arns[0])
        for kind in ("User", "Group", "Role"):
            self.assertEqual([e[f"{kind}Name"] for e in entities[f"Policy{kind}s"]], ["name"])
        only = self.iam.list_entities_for_policy(PolicyArn=arns[0], EntityFilter="Role")
        self.assertEqual((len(only["PolicyRoles"]), only["PolicyUsers"]), (1, []))

    def test_managed(self) -> None:
        """A managed policy has up to five versions, one of which is in effect."""
        tags = [{"Key": "a", "Value": "b"}]
        first, second = policy("s3:GetObject"), policy("s3:PutObject")
        made = self.iam.create_policy(
            PolicyName="Mine", Path="/p/", PolicyDocument=first, Description="What", Tags=tags
        )["Policy"]
        arn = made["Arn"]
        self.assertEqual(arn, f"arn:aws:iam::{self.account}:policy/p/Mine")
        self.assertEqual((made["DefaultVersionId"], made["Tags"]), ("v1", tags))
        self.assertRefused(
            409,
            "EntityAlreadyExists",
            self.iam.create_policy,
            PolicyName="mine",
            PolicyDocument=first,
        )
        for number in range(2, 6):
            version = self.iam.create_policy_version(
                PolicyArn=arn, PolicyDocument=second, SetAsDefault=number == 2
            )["PolicyVersion"]
            self.assertEqual(
                (version["VersionId"], version["IsDefaultVersion"]), (f"v{number}", number == 2)
            )
        self.assertRefused(
            409,
            "LimitExceeded",
            self.iam.create_policy_version,
            PolicyArn=arn,
            PolicyDocument=second,
        )
        self.assertRefused(409, "DeleteConflict", self.iam.delete_policy, PolicyArn=arn)
        named = {"PolicyArn": arn, "VersionId": "v1"}
        self.assertRefused(
            409, "DeleteConflict", self.iam.delete_policy_version, PolicyArn=arn, VersionId="v2"
        )
        self.iam.set_default_policy_version(**named)
        shown = self.iam.get_policy_version(**named)["PolicyVersion"]
        self.assertEqual(json.dumps(shown["Document"]), first)
        self.assertEqual(self.iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"], "v1")
        for number in range(2, 6):
            self.iam.delete_policy_version(PolicyArn=arn, VersionId=f"v{number}")
        # A number is not given again.
        version = self.iam.create_policy_version(PolicyArn=arn, PolicyDocument=second)
        self.assertEqual(version["PolicyVersion"]["VersionId"], "v6")
        found = self.iam.list_policy_versions(PolicyArn=arn)["Versions"]
        self.assertEqual([each["VersionId"] for each in found], ["v6", "v1"])
        self.iam.delete_policy_version(PolicyArn=arn, VersionId="v6")
        self.iam.delete_policy(PolicyArn=arn)
        self.assertRefused(404, "NoSuchEntity", self.iam.get_policy, PolicyArn=arn)

    def test_ofAmazon(self) -> None:
        """Amazon's policies are listed and read, and cannot be changed."""
        found = self.iam.list_policies(Scope="AWS")["Policies"]
        self.assertEqual(
            [each["PolicyName"] for each in found],
            ["AmazonS3FullAccess", "AmazonS3ReadOnlyAccess", "IAMReadOnlyAccess"],
        )
        self.assertEqual(self.iam.list_policies(Scope="Local")["Policies"], [])
        for each in found:
            version = self.iam.get_policy_version(PolicyArn=each["Arn"], VersionId="v1")
            self.assertEqual(version["PolicyVersion"]["Document"]["Version"], "2012-10-17")
            self.assertRefused(403, "AccessDenied", self.iam.delete_policy, PolicyArn=each["Arn"])
        self.iam.create_user(UserName="ann")
        self.iam.attach_user_policy(UserName="ann", PolicyArn=FULL)
        attached = self.iam.list_policies(OnlyAttached=True)["Policies"]
        self.assertEqual([(p["Arn"], p["AttachmentCount"]) for p in attached], [(FULL, 1)])

    def test_roles(self) -> None:
        """A role has a trust policy, a description and a longest session."""
        made = self.iam.create_role(
            RoleName="R", Path="/r/", AssumeRolePolicyDocument=TRUST, MaxSessionDuration=43_200
        )["Role"]
        self.assertEqual(json.dumps(made["AssumeRolePolicyDocument"]), TRUST)
        self.assertEqual(made["Arn"], f"arn:aws:iam::{self.account}:role/r/R")
        self.iam.update_role(RoleName="r", Description="Reads")
        found = self.iam.get_role(RoleName="r")["Role"]
        self.assertEqual((found["Description"], found["MaxSessionDuration"]), ("Reads", 43_200))
        self.iam.update_assume_role_policy(RoleName="r", PolicyDocument=TRUST)
        self.iam.tag_role(RoleName="r", Tags=[{"Key": "a", "Value": "b"}])
        self.assertEqual(len(self.iam.list_role_tags(RoleName="r")["Tags"]), 1)
        self.assertEqual(
            self.iam.list_instance_profiles_for_role(RoleName="r")["InstanceProfiles"], []
        )
        self.assertEqual([r["RoleName"] for r in self.iam.list_roles()["Roles"]], ["R"])
        self.iam.delete_role(RoleName="r")
        self.assertRefused(404, "NoSuchEntity", self.iam.get_role, RoleName="R")

    def test_providers(self) -> None:
        """An OpenID Connect provider has audiences, thumbprints and tags."""
        thumbprint = "3768084dfb3d2b68b7897bf5f565da8efEXAMPLE"
        arn = self.iam.create_open_id_connect_provider(
            Url="https://id.example.com/a", ClientIDList=["one"], ThumbprintList=[thumbprint]
        )["OpenIDConnectProviderArn"]
        self.assertEqual(arn, f"arn:aws:iam::{self.account}:oidc-provider/id.example.com/a")
        named = {"OpenIDConnectProviderArn": arn}
        for _ in range(2):
            self.iam.add_client_id_to_open_id_connect_provider(**named, ClientID="two")
        self.iam.remove_client_id_from_open_id_connect_provider(**named, ClientID="one")
        other = thumbprint[::-1]
        self.iam.update_open_id_connect_provider_thumbprint(**named, ThumbprintList=[other])
        self.iam.tag_open_id_connect_provider(**named, Tags=[{"Key": "a", "Value": "b"}])
        found = self.iam.get_open_id_connect_provider(**named)
        self.assertEqual(
            (found["Url"], found["ClientIDList"], found["ThumbprintList"], len(found["Tags"])),
            ("https://id.example.com/a", ["two"], [other], 1),
        )
        listed = self.iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        self.assertEqual(listed, [{"Arn": arn}])
        self.iam.delete_open_id_connect_provider(**named)
        self.assertRefused(404, "NoSuchEntity", self.iam.get_open_id_connect_provider, **named)

    def test_summary(self) -> None:
        """The summary counts the identities, and names the limits."""
        before = self.iam.get_account_summary()["SummaryMap"]
        self.iam.create_user(UserName="ann")
        after = self.iam.get_account_summary()["SummaryMap"]
        self.assertEqual(after["Users"], before["Users"] + 1)
        self.assertEqual(after["AccessKeysPerUserQuota"], 2)


class ProtocolTests(IAMCase):
    """The query protocol: parameters, errors and signatures."""

    def call(self, account: Account | None = None, **parameters: str) -> Any:
        """Send a signed call as a form; return the answer."""
        body = urlencode({"Version": "2010-05-08", **parameters}).encode()
        return self.send(self.sign(Outgoing("POST", "/", FORM, body), account or self.admin))

    def sign(self, outgoing: Outgoing, account: Account) -> Outgoing:
        """Sign a call for IAM."""
        return Signer(self.host, account, service="iam").sign(outgoing)

    def test_unknown(self) -> None:
        """An action or a parameter that is not implemented is 501; another version is 400."""
        for parameters in (
            {"Action": "CreateVirtualMFADevice"},
            {"Action": "<script>"},
            {"Action": "CreateUser", "UserName": "a", "PermissionsBoundary": FULL},
        ):
            answer = self.call(**parameters)
            self.assertEqual(answer.status, 501)
            self.assertIn(b"<Code>NotImplemented</Code>", answer.body)
            self.assertNotIn(b"<script>", answer.body)
        for parameters in ({"Action": "ListUsers", "Version": "2011-06-15"}, {"UserName": "a"}):
            answer = self.call(**parameters)
            self.assertEqual(answer.status, 400)
            self.assertIn(b"<Code>InvalidAction</Code>", answer.body)
        self.assertEqual(self.iam.list_users(PathPrefix="/none/")["Users"], [])

    def test_malformed(self) -> None:
        """A malformed parameter is 400 ValidationError, and its text is escaped."""
        for parameters in (
            {"Action": "CreateUser"},
            {"Action": "CreateUser", "UserName": ""},
            {"Action": "CreateUser", "UserName": "a<b>&"},
            {"Action": "CreateUser", "UserName": "a\x00\x01b"},
            {"Action": "CreateUser", "UserName": "a" * 65},
            {"Action": "CreateUser", "UserName": "a", "Path": "no"},
            {"Action": "CreateUser", "UserName": "a", "Tags": "x"},
            {"Action": "CreateUser", "UserName": "a", "Tags.member.1.Key": "x"},
            {"Action": "CreateUser", "UserName": "a", "Tags.member.x.Key": "x"},
            {"Action": "CreateUser", "UserName.member.1": "a"},
            {"Action": "UntagUser", "UserName": "a", "TagKeys.member.1.Key": "x"},
            {"Action": "ListUsers", "MaxItems": "0"},
            {"Action": "ListUsers", "MaxItems": "1001"},
            {"Action": "ListUsers", "MaxItems": "+1"},
            {"Action": "ListUsers", "MaxItems": "1_0"},
            {"Action": "ListUsers", "Marker": "zz"},
            {"Action": "ListPolicies", "OnlyAttached": "maybe"},
            {"Action": "ListPolicies", "Scope": "Every"},
            {"Action": "GetPolicy", "PolicyArn": "short"},
            {"Action": "CreateRole", "RoleName": "r"},
        ):
            answer = self.call(**parameters)
            self.assertEqual(answer.status, 400, parameters)
            self.assertIn(b"<Code>ValidationError</Code>", answer.body, parameters)
            self.assertNotIn(b"a<b", answer.body)
        answer = self.call(Action="ListUsers", MaxItems="1000")
        self.assertEqual(answer.status, 200)

    def test_signature(self) -> None:
        """The signature covers the body; an unknown key and a wrong secret are told apart."""
        body = b"Action=ListUsers&Version=2010-05-08"
        signed = self.sign(Outgoing("POST", "/", FORM, body), self.admin)
        self.assertEqual(self.send(signed).status, 200)
        for account, code in (
            (Account("AKIAUNKNOWN", self.admin.secretKey), b"InvalidClientTokenId"),
            (Account(self.admin.accessKey, "wrong-secret"), b"SignatureDoesNotMatch"),
        ):
            answer = self.send(self.sign(Outgoing("POST", "/", FORM, body), account))
            self.assertEqual(answer.status, 403)
            self.assertIn(b"<Code>%b</Code>" % code, answer.body)
        other = Outgoing("POST", "/", signed.headers, body.replace(b"List", b"Last"))
        answer = self.send(other)
        self.assertIn(b"<Code>SignatureDoesNotMatch</Code>", answer.body)
        named = Outgoing("GET", f"/?{body.decode()}")
        self.assertEqual(self.send(self.sign(named, self.admin)).status, 200)
        url = self.iam.generate_presigned_url("list_users", HttpMethod="GET")
        presigned = Outgoing("GET", url.removeprefix(self.endpoint))
        self.assertEqual(self.send(presigned).status, 200)
        changed = presigned.replacing("ListUsers", "ListRoles")
        self.assertIn(b"<Code>SignatureDoesNotMatch</Code>", self.send(changed).body)
        # A signature for S3 is none for IAM.
        answer = self.send(Signer(self.host, self.admin).sign(Outgoing("POST", "/", FORM, body)))
        self.assertEqual(answer.status, 400)
        self.assertIn(b"<Code>IncompleteSignature</Code>", answer.body)

    def test_tooLong(self) -> None:
        """A call that is longer than any could be is refused."""
        answer = self.call(Action="CreatePolicy", PolicyDocument="x" * 1_100_000)
        self.assertIn(b"<Code>MaxMessageLengthExceeded</Code>", answer.body)
