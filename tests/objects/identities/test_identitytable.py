"""The operations on identities, as functions of the state of an account."""

from typing import Any

from attrs import evolve
from msgspec.structs import fields
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects import errors
from storagegate.objects.accounts import Identity
from storagegate.objects.identities import operations
from storagegate.objects.identities.entities import (
    AccountState,
    Entity,
    Group,
    IAMUser,
    ManagedPolicy,
    PolicyVersion,
    Role,
)
from storagegate.objects.identities.keys import SERVICE_KEYS_LIMIT, addIssuedKey, editOf
from storagegate.objects.identities.lookup import IdentityRequest
from storagegate.objects.identities.operations import IdentityOperation
from storagegate.objects.identities.table import CHANGES, OPERATIONS, READS, resourcesOf
from storagegate.objects.identities.validation import checkOperation
from storagegate.storage.records import AccessKey

NOW = IdentityRequest(1_700_000_000_000)


def _simulation(resource: str) -> operations.SimulatePrincipalPolicy:
    """Return a simulation for an identity."""
    arn = f"arn:aws:iam::acme:{resource}"
    return operations.SimulatePrincipalPolicy(policySourceArn=arn, actionNames=("s3:GetObject",))


class TableTests(SynchronousTestCase):
    """The table."""

    def test_complete(self) -> None:
        """Each operation has one row; those that read have names that say so."""
        found = {
            each
            for each in vars(operations).values()
            if isinstance(each, type)
            and issubclass(each, IdentityOperation)
            and not each.__name__.endswith("Operation")
        }
        self.assertEqual(found, {*READS, *CHANGES})
        self.assertEqual(set(READS) & set(CHANGES), set())
        for kind in READS:
            isRead = kind.__name__.startswith(("Get", "List", "Simulate"))
            self.assertTrue(isRead or kind is operations.DeleteLoginProfile, kind)
        for kind in CHANGES:
            self.assertFalse(kind.__name__.startswith(("Get", "List")), kind)

    def test_checked(self) -> None:
        """Each text of an operation has a rule: control characters are refused everywhere."""
        free = {"serviceName"}
        for kind in OPERATIONS.values():
            for field in fields(kind):
                if "str" not in str(field.type) or field.name in free:
                    continue
                wrong: Any = ("\x00",) if "tuple" in str(field.type) else "\x00"
                given = {each.name: "v1" for each in fields(kind) if each.required}
                lists = {e.name for e in fields(kind) if "tuple" in str(e.type)}
                given = {name: () if name in lists else text for name, text in given.items()}
                if "Tag]" in str(field.type) or field.name == "tags":
                    continue
                operation = kind(**{**given, field.name: wrong})
                self.assertRaises(errors.ValidationError, checkOperation, operation)


class StateTests(SynchronousTestCase):
    """Changes of an account."""

    def setUp(self) -> None:
        """Have an account with a key of an operator, and a user."""
        key = AccessKey("OPERATOR", "secret", "acme", role="admin")
        self.state = AccountState(account="acme", keys={"OPERATOR": key})
        self.change(operations.CreateUser(userName="Ann"))

    def change(self, operation: Any, accessKey: str = "") -> Any:
        """Perform a change; return its answer."""
        request = NOW
        if accessKey:
            request = IdentityRequest(NOW.nowMs, Identity(accessKey, "acme"), "none")
        self.state, answer = CHANGES[type(operation)](self.state, operation, request)
        return answer

    def read(self, operation: Any) -> Any:
        """Perform a read."""
        return READS[type(operation)](self.state, operation, NOW)

    def test_renamed(self) -> None:
        """Keys, service keys and groups follow a user and a group to a new name."""
        made = self.change(operations.CreateAccessKey(userName="ann")).accessKey
        service = AccessKey("SERVICE", "secret", "acme", parent="user/ANN")
        self.state, _ = addIssuedKey(self.state, service)
        self.change(operations.CreateGroup(groupName="Old"))
        self.change(operations.AddUserToGroup(groupName="old", userName="ann"))
        self.change(operations.UpdateUser(userName="ann", newUserName="Zoe"))
        self.change(operations.UpdateGroup(groupName="old", newGroupName="New"))
        keys = self.read(operations.ListAccessKeys(userName="zoe")).accessKeyMetadata
        self.assertEqual({key.accessKeyId for key in keys}, {made.accessKeyId, "SERVICE"})
        found = self.read(operations.ListGroupsForUser(userName="zoe")).groups
        self.assertEqual([group.groupName for group in found], ["New"])
        # A change of case alone is a new name, too.
        self.change(operations.UpdateUser(userName="zoe", newUserName="ZOE"))
        self.assertEqual(self.read(operations.GetUser(userName="zoe")).user.userName, "ZOE")

    def test_boundKeys(self) -> None:
        """A service key makes only service keys of itself, and of its own user."""
        self.change(operations.CreateUser(userName="bob"))
        service = AccessKey("SERVICE", "secret", "acme", parent="user/ann")
        self.state, _ = addIssuedKey(self.state, service)
        made = self.change(operations.CreateAccessKey(), "SERVICE").accessKey
        self.assertEqual(made.userName, "Ann")
        self.assertEqual(self.state.keys[made.accessKeyId].parent, "key/SERVICE")
        for name in ("bob", "OPERATOR"):
            operation = operations.CreateAccessKey(userName=name)
            self.assertRaises(errors.AccessDenied, self.change, operation, "SERVICE")

    def test_operatorKeys(self) -> None:
        """A key that an operator's key makes is its service key, without its role."""
        made = self.change(operations.CreateAccessKey(), "OPERATOR").accessKey
        key = self.state.keys[made.accessKeyId]
        self.assertEqual((key.parent, key.role), ("key/OPERATOR", "none"))

    def test_circle(self) -> None:
        """Service keys that bound each other, because one was issued again, have a name."""
        for name, parent in (("A", "key/B"), ("B", "key/A")):
            key = AccessKey(name, "secret", "acme", parent=parent)
            self.state = self.state.withKey(key)
        found = self.read(operations.ListAccessKeys(userName="ann")).accessKeyMetadata
        self.assertEqual(found, ())

    def test_issued(self) -> None:
        """An operator's keys of users and service keys are checked as those of IAM."""
        for more, kind in (
            ({"userName": "bob"}, errors.NoSuchEntity),
            ({"userName": "OPERATOR"}, errors.UnmodifiableEntity),
            ({"parent": "bob"}, errors.NoSuchEntity),
            ({"parent": "user/bob"}, errors.NoSuchEntity),
            ({"userName": "ann", "parent": "OPERATOR"}, errors.ValidationError),
            ({"userName": "ann", "sessionPolicy": "{}"}, errors.ValidationError),
            ({"userName": "ann", "role": "admin"}, errors.ValidationError),
            ({"parent": "OPERATOR", "role": "auditor"}, errors.ValidationError),
            ({"parent": "OPERATOR", "sessionPolicy": "{"}, errors.MalformedPolicyDocument),
        ):
            fields: Any = more
            key = AccessKey("NEW", "secret", "acme", **fields)
            self.assertRaises(kind, addIssuedKey, self.state, key)
        for fields in ({"userName": "ann"}, {"parent": "user/ann"}):
            key = AccessKey("OPERATOR", "secret", "acme", **fields)
            self.assertRaises(errors.EntityAlreadyExists, addIssuedKey, self.state, key)

    def test_edit(self) -> None:
        """An operator's edit starts from the key that IAM has changed meanwhile."""
        key = AccessKey("K", "secret", "acme", userName="ann")
        self.state = self.state.withKey(evolve(key, disabled=True))
        state, edited = editOf("K", lambda now: evolve(now, note="n"))(self.state)
        self.assertEqual((edited.disabled, edited.note), (True, "n"))
        self.assertEqual(state.keys["K"], edited)
        state, revoked = editOf("K", lambda now: None)(state)
        self.assertEqual(revoked, edited)
        self.assertRaises(errors.NoSuchEntity, editOf("K", lambda now: now), state)

    def test_manyServiceKeys(self) -> None:
        """A parent has a limited number of service keys: a person can make them without a right."""
        for n in range(SERVICE_KEYS_LIMIT):
            key = AccessKey(f"S{n}", "secret", "acme", parent="user/ann")
            self.state = self.state.withKey(key)
        more = AccessKey("MORE", "secret", "acme", parent="user/Ann")
        self.assertRaises(errors.LimitExceeded, addIssuedKey, self.state, more)
        for n in range(SERVICE_KEYS_LIMIT):
            key = AccessKey(f"C{n}", "secret", "acme", parent="key/S0")
            self.state = self.state.withKey(key)
        operation = operations.CreateAccessKey()
        self.assertRaises(errors.LimitExceeded, self.change, operation, "S0")
        self.change(operation, "S1")

    def test_whiteSpace(self) -> None:
        """White space does not count, but all inline policies together cannot consist of it."""
        rule = '{"Effect":"Deny","Action":"s3:*","Resource":"*"}'
        document = '{"Statement":' + " " * 19_000 + rule + "}"
        put = operations.PutUserPolicy(userName="ann", policyName="a", policyDocument=document)
        self.change(put)
        self.change(put)
        more = operations.PutUserPolicy(userName="ann", policyName="b", policyDocument=document)
        self.assertRaises(errors.LimitExceeded, self.change, more)

    def test_resources(self) -> None:
        """The right to an operation is needed on ARNs with the stored name and path."""
        self.change(operations.UpdateUser(userName="ann", newPath="/a/"))
        for operation, names in (
            (operations.GetUser(userName="ANN"), ["user/a/Ann"]),
            (operations.GetUser(userName="bob"), ["user/bob"]),
            (operations.CreateUser(userName="bob", path="/b/"), ["user/b/bob"]),
            (
                operations.UpdateUser(userName="ann", newPath="/", newUserName="bob"),
                ["user/a/Ann", "user/bob"],
            ),
            (operations.ListUsers(pathPrefix="/a"), ["user/a"]),
            (operations.CreatePolicy(policyName="p", policyDocument=""), ["policy/p"]),
            (operations.DeleteGroup(groupName="g"), ["group/g"]),
            (operations.GetRole(roleName="r"), ["role/r"]),
            (_simulation("user/a/ANN"), ["user/a/Ann"]),
            # Not those of the user: its path is another one.
            (_simulation("user/b/Ann"), ["user/b/Ann"]),
            (_simulation("user/bob"), ["user/bob"]),
            (_simulation("root"), ["root"]),
        ):
            expected = [f"arn:aws:iam::acme:{name}" for name in names]
            kind: Any = operation
            self.assertEqual(list(resourcesOf(self.state, kind, NOW)), expected)

    def test_pages(self) -> None:
        """A page goes on after a marker, also if the row of the marker is gone."""
        for name in ("d", "b", "c"):
            self.change(operations.CreateUser(userName=name))
        page = self.read(operations.ListUsers(maxItems=2))
        self.assertEqual([user.userName for user in page.users], ["Ann", "b"])
        self.change(operations.DeleteUser(userName="b"))
        page = self.read(operations.ListUsers(maxItems=2, marker=page.marker))
        self.assertEqual([user.userName for user in page.users], ["c", "d"])
        self.assertTrue(page.isTruncated)
        page = self.read(operations.ListUsers(maxItems=2, marker=page.marker))
        self.assertEqual([user.userName for user in page.users], ["OPERATOR"])
        self.assertEqual((page.isTruncated, page.marker), (False, None))

    def test_largeAccount(self) -> None:
        """A list of policies visits the entities a few times, and not for each policy."""
        count = 100
        document = '{"Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}'
        versions = {"v1": PolicyVersion(document=document)}
        entities: list[Entity] = [
            ManagedPolicy(name=f"p{n}", id=f"P{n}", versions=versions) for n in range(count)
        ]
        for kind in (Role, Group, IAMUser):
            entities.append(kind(name="x", id="X", attached=("arn:aws:iam::acme:policy/p1",)))
        counted = _CountingDict({(each.kind, each.key): each for each in entities})
        self.state = AccountState(account="acme", entities=counted)
        found = self.read(operations.ListPolicies(maxItems=1000, scope="Local")).policies
        self.assertEqual(len(found), count)
        attached = {p.policyName: p.attachmentCount for p in found if p.attachmentCount}
        self.assertEqual(attached, {"p1": 3})
        found = self.read(operations.ListPolicies(onlyAttached=True)).policies
        self.assertEqual([policy.policyName for policy in found], ["p1"])
        self.assertLess(counted.walks, 20)


class _CountingDict(dict[tuple[str, str], Entity]):
    """Entities that count how often all of them are visited."""

    walks = 0

    def items(self) -> Any:
        """Count, and return the items."""
        self.walks += 1
        return super().items()


class StatusTests(SynchronousTestCase):
    """Users and roles that are disabled, and the ends of their sessions."""

    def setUp(self) -> None:
        """Have a user and a role."""
        self.state = AccountState(account="ann").withEntities(
            [IAMUser(name="Ada", id="AIDA"), Role(name="Ops")]
        )

    def perform(self, operation: IdentityOperation[Any], nowMs: int) -> int:
        """Change the state; return the time before which sessions are refused."""
        request = IdentityRequest(nowMs)
        self.state, _ = CHANGES[type(operation)](self.state, operation, request)
        user, role = self.state.user("ada"), self.state.role("ops")
        assert user is not None and role is not None
        found = user if hasattr(operation, "userName") else role
        return found.revokedBeforeMs

    def operations(self, status: str) -> list[IdentityOperation[Any]]:
        """Return the operations that set a status."""
        return [
            operations.UpdateUserStatus(userName="Ada", status=status),
            operations.UpdateRoleStatus(roleName="Ops", status=status),
        ]

    def test_enabled(self) -> None:
        """A session that a node made before it learnt of the change stays ended."""
        for disable, enable in zip(
            self.operations("Inactive"), self.operations("Active"), strict=True
        ):
            self.assertEqual(self.perform(enable, 500), 0)
            self.assertEqual(self.perform(disable, 1000), 1001)
            # A session of the time 1500 is refused while the user is disabled, and after it.
            self.assertEqual(self.perform(enable, 9000), 9001)
            # Another call changes nothing.
            self.assertEqual(self.perform(enable, 9500), 9001)

    def test_clocks(self) -> None:
        """A node whose clock is behind revives no session that another node has ended."""
        for disable, revoke in zip(
            self.operations("Inactive"),
            [
                operations.RevokeUserSessions(userName="Ada"),
                operations.RevokeRoleSessions(roleName="Ops"),
            ],
            strict=True,
        ):
            self.assertEqual(self.perform(revoke, 9000), 9001)
            self.assertEqual(self.perform(revoke, 8000), 9001)
            self.assertEqual(self.perform(disable, 8000), 9001)
