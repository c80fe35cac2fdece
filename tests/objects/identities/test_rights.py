"""Rights of users, service keys and sessions, against a second evaluator."""

import json
from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import ALL_USERS, AccessControlList, Grant
from storagegate.objects.access.actions import OPERATION_ACTIONS
from storagegate.objects.access.context import AccessContext, PlainCaller
from storagegate.objects.access.decision import (
    BUCKET_OWNER_ENFORCED,
    OBJECT_WRITER,
    BucketAccess,
    decideAlone,
)
from storagegate.objects.access.policy import compilePolicy
from storagegate.objects.accounts import AccessKeyStore, Identity, KeyPolicy, canonicalId
from storagegate.objects.errors import AccessDenied, MalformedPolicyDocument
from storagegate.objects.identities.entities import (
    Entity,
    Group,
    IAMUser,
    ManagedPolicy,
    PolicyVersion,
    Role,
    encodeEntity,
)
from storagegate.objects.identities.rights import authoriseAction, checkPolicy
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.records import AccessKey, AccountDocuments
from tests.objects.identities.plain import Box, Person, isAllowed, mayAdminister
from tests.support.selection import rounds

READ = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"


class StoredIdentities:
    """A catalog with keys and documents, and nothing else of a catalog."""

    def __init__(self) -> None:
        self.generation = 1
        self.keys: dict[str, AccessKey] = {}
        self.accounts: dict[str, AccountDocuments] = {}

    def secret(self) -> bytes:
        """As ICatalog says."""
        return b"s" * 32

    async def keysGeneration(self) -> int:
        """As ICatalog says."""
        return self.generation

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """As ICatalog says."""
        return self.generation, list(self.keys.values())

    async def identities(self, after: int) -> tuple[int, Mapping[str, AccountDocuments]]:
        """As ICatalog says."""
        found = {name: each for name, each in self.accounts.items() if each.revision > after}
        return self.generation, found

    def put(self, account: str, *entities: Entity, keys: Sequence[AccessKey] = ()) -> None:
        """Replace entities of an account, and add keys."""
        self.generation += 1
        before = self.accounts.get(account, AccountDocuments(0, {})).documents
        documents = {**before, **{(e.kind, e.key): encodeEntity(e) for e in entities}}
        self.accounts[account] = AccountDocuments(self.generation, documents)
        self.keys |= {key.accessKey: key for key in keys}

    def remove(self, account: str, entity: Entity) -> None:
        """Remove an entity."""
        self.put(account)
        documents: Any = self.accounts[account].documents
        del documents[entity.kind, entity.key]


def policy(*statements: Mapping[str, Any], version: str = "2012-10-17") -> str:
    """Return a policy."""
    return json.dumps({"Version": version, "Statement": list(statements)})


def rule(*actions: str, resource: Any = "*", effect: str = "Allow", **more: Any) -> dict[str, Any]:
    """Return a statement of an identity policy."""
    return {"Effect": effect, "Action": list(actions), "Resource": resource, **more}


class RightsCase(SynchronousTestCase):
    """Tests of keys in a store of their own."""

    def setUp(self) -> None:
        """Make the store."""
        self.start()

    def start(self) -> None:
        """Make an empty store."""
        self.stored = StoredIdentities()
        self.clock = Clock()
        self.snapshot = AccessKeySnapshot(self.stored, self.clock)
        self.snapshot.start()
        self.keys = AccessKeyStore(self.snapshot, "ROOT", "secret", self.clock.seconds)
        self.tokens: dict[str, str] = {}

    def put(self, account: str, *entities: Entity, keys: Sequence[AccessKey] = ()) -> None:
        """Change the store, and let a second pass."""
        self.stored.put(account, *entities, keys=keys)
        self.clock.pump([0.5, 0.5])

    def identity(self, accessKey: str) -> Identity:
        """Return the identity of a key."""
        token = self.tokens.get(accessKey)
        if token is not None:
            return self.keys.sessions.find(accessKey, token).identity
        found = self.keys.find(accessKey)
        assert found is not None, accessKey
        return found.identity

    def openSession(self, **fields: Any) -> str:
        """Make a session; return its access key."""
        made = self.keys.sessions.issue(seconds=900, **fields)
        self.tokens[made.session.accessKey] = made.token
        return made.session.accessKey

    def allows(
        self,
        who: str,
        action: str,
        key: str = "key",
        access: BucketAccess | None = None,
        owner: str | None = None,
        acl: AccessControlList | None = None,
    ) -> bool:
        """Return whether a key may perform an action in ann's bucket."""
        identity = self.identity(who)

        def describe() -> AccessContext:
            caller = PlainCaller(identity, "GetObject")
            return AccessContext(identity, caller, "box", key, "ann", "GetObject")

        access = BucketAccess("ann") if access is None else access
        return access.allows(identity, f"s3:{action}", describe, owner, acl)


PEOPLE = ("ann", "ada", "key", "bob", "eve", "top")
"""Access keys of people: ann and bob are keys of no user, ada and eve users, top the root pair."""

_NAMES = st.sampled_from(
    [
        "*",
        "ann",
        "arn:aws:iam::ann:root",
        "arn:aws:iam::bob:root",
        "arn:aws:iam::ann:user/staff/Ada",
        "arn:aws:iam::bob:user/Eve",
        "arn:aws:iam::ann:user/ANN",
        "arn:aws:iam::ann:user/S1",
        "arn:aws:iam::ann:user/S2",
        "arn:aws:iam::ann:role/x/Ops",
        "arn:aws:iam::bob:role/x/Ops",
        "arn:aws:sts::ann:assumed-role/Ops/Ada",
        "arn:aws:sts::bob:assumed-role/Ops/Ada",
        "arn:aws:sts::ann:assumed-role/Ops/Eve",
        "arn:aws:iam::bob:user/S1",
    ]
)
_ACTIONS = st.sampled_from(
    (
        "*",
        "s3:*",
        "s3:Get*",
        "s3:GetObject",
        "s3:PutObject",
        "s3:PutObject*",
        "s3:List*",
        "s3:DeleteObject",
        "s3:?etObject",
        "s3:*BucketPolicy",
        "ec2:*",
        "iam:*",
        "iam:Get*",
        "iam:CreateUser",
        "sts:AssumeRole",
    )
)
_RESOURCES = st.sampled_from(
    [
        "*",
        "arn:aws:s3:::*",
        "arn:aws:s3:::box",
        "arn:aws:s3:::box/*",
        "arn:aws:s3:::b?x/k*",
        "arn:aws:s3:::box/key",
        "arn:aws:s3:::other/*",
        "arn:aws:s3:::box/${aws:username}*",
        "arn:aws:s3:::box/${aws:PrincipalTag/team}",
        "arn:aws:iam::ann:user/*",
        "arn:aws:iam::*:user/staff/*",
        "arn:aws:iam::bob:role/x/Op?",
    ]
)
_CONDITIONS = st.sampled_from(
    [
        {},
        {},
        {},
        {"StringEquals": {"aws:username": ["Ada", "ANN"]}},
        {"StringNotLike": {"aws:PrincipalArn": "*:user/*"}},
        {"StringEquals": {"aws:PrincipalTag/team": "red"}},
        {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/staff/*"}},
        {"Null": {"aws:PrincipalTag/team": "true"}},
        {"StringEquals": {"aws:PrincipalAccount": "bob"}},
        {"StringLike": {"aws:userid": "AIDA*"}},
    ]
)


@st.composite
def _statements(draw: Any, isOfBucket: bool) -> dict[str, Any]:
    effect = draw(st.sampled_from(["Allow", "Allow", "Deny"]))
    made: dict[str, Any] = {"Effect": effect, "Condition": draw(_CONDITIONS)}
    if isOfBucket:
        resources = [
            "arn:aws:s3:::box",
            draw(st.sampled_from(["arn:aws:s3:::box/*", "arn:aws:s3:::box/k*"])),
        ]
        made |= {"Action": draw(st.sampled_from(["s3:*", "s3:GetObject", "s3:PutObject*"]))}
        made["Resource"] = resources
        name = draw(_NAMES)
        principal = "*" if name == "*" else {"AWS": [name]}
        isNot = effect == "Deny" and draw(st.booleans())
        made["NotPrincipal" if isNot else "Principal"] = principal
        return made
    isNotAction, isNotResource = (draw(st.integers(0, 5)) == 0 for _ in range(2))
    made["NotAction" if isNotAction else "Action"] = draw(
        st.lists(_ACTIONS, min_size=1, max_size=2)
    )
    made["NotResource" if isNotResource else "Resource"] = draw(
        st.lists(_RESOURCES, min_size=1, max_size=2)
    )
    return made


def _policies(isOfBucket: bool = False) -> Any:
    return st.builds(
        lambda statements, version: policy(*statements, version=version),
        st.lists(_statements(isOfBucket), min_size=1, max_size=3),
        st.sampled_from(["2012-10-17", "2012-10-17", "2008-10-17"]),
    )


_GRANTS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "*"]),
        st.sampled_from(["READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL"]),
    ),
    max_size=2,
)

CHECKED = (
    "ListBucket",
    "GetObject",
    "PutObject",
    "DeleteObject",
    "PutObjectAcl",
    "PutBucketPolicy",
)


class EvaluatorTests(RightsCase):
    """The program and the second evaluator agree."""

    def makePeople(self, draw: Any) -> dict[str, Person]:
        """Draw the policies of users, and service keys of service keys."""
        documents = st.lists(_policies(), max_size=2)
        people = {
            "ROOT": Person("root", "root", "ROOT", "ROOT"),
            "ANN": Person("key", "ann", "ANN", "ANN"),
            "BOB": Person("key", "bob", "BOB", "BOB"),
        }
        rows = [AccessKey("ANN", "s", "ann"), AccessKey("BOB", "s", "bob")]
        roles: dict[str, Role] = {}
        self.start()
        for account, name, path, tags in (
            ("ann", "Ada", "/staff/", {"team": "red"}),
            ("bob", "Eve", "/", {}),
        ):
            own, ofGroup, managed = draw(documents), draw(documents), draw(documents)[:1]
            group = Group(name="all", policies={str(n): each for n, each in enumerate(ofGroup)})
            kept = [
                ManagedPolicy(name="kept", versions={"v1": PolicyVersion(document=each)})
                for each in managed
            ]
            amazon = draw(st.booleans())
            user = IAMUser(
                name=name,
                path=path,
                id=f"AIDA{name}",
                tags=tags,
                policies={str(n): each for n, each in enumerate(own)},
                groups=("all",),
                attached=tuple(each.arn(account) for each in kept) + ((READ,) if amazon else ()),
            )
            key = AccessKey(name.upper(), "s", account, userName=user.key)
            trusted = draw(documents)
            roles[account] = Role(
                name="Ops",
                path="/x/",
                id=f"AROA{name}",
                policies={str(n): each for n, each in enumerate(trusted)},
                # The tag of a session with this key, in another case, wins.
                tags={"team": "red"},
            )
            self.stored.put(account, user, group, roles[account], *kept, keys=[key])
            all_ = [*own, *ofGroup, *managed]
            if amazon:
                all_.append(policy(rule("s3:Get*", "s3:List*")))
            principal = (path + name).removeprefix("/")
            people[key.accessKey] = Person(
                "user", account, principal, key.accessKey, user.id, tags, all_
            )
        for name in ("S1", "S2", "S3"):
            parent = people[draw(st.sampled_from(sorted(people)))]
            own = draw(documents)[:1]
            people[name] = Person("service", parent.account, "", name, policies=own, parent=parent)
            isOfUser = parent.kind == "user" and draw(st.booleans())
            above = (
                f"user/{parent.name.rpartition('/')[2]}" if isOfUser else f"key/{parent.accessKey}"
            )
            session = own[0] if own else ""
            rows.append(AccessKey(name, "s", parent.account, parent=above, sessionPolicy=session))
        self.stored.keys |= {row.accessKey: row for row in rows}
        self.stored.generation += 1
        self.clock.pump([0.5, 0.5])
        for _ in range(2):
            parent = people[draw(st.sampled_from(sorted(people)))]
            own = draw(documents)[:1]
            maker = self.keys.find(parent.accessKey)
            if maker is None:
                # A session, which makes no other.
                continue
            made = self.openSession(
                account=parent.account, maker=maker, policy=own[0] if own else ""
            )
            people[made] = Person("service", parent.account, "", made, policies=own, parent=parent)
        for account, role in roles.items():
            tags = {"team": draw(st.sampled_from(["red", "blue"]))}
            kind = draw(st.sampled_from(["tags", "transitiveTags"]))
            sessionTags = {kind: {"TEAM": tags["team"]}}
            base = Person(
                "role",
                account,
                "x/Ops",
                self.openSession(account=account, role=role, name="Ada", **sessionTags),
                f"{role.id}:Ada",
                tags,
                list(role.policies.values()),
                session=f"arn:aws:sts::{account}:assumed-role/Ops/Ada",
            )
            own = draw(documents)[:1]
            made = self.openSession(
                account=account, role=role, name="Ada", policy=own[0] if own else "", **sessionTags
            )
            people[base.accessKey] = base
            people[made] = Person("service", account, "", made, policies=own, parent=base)
        return people

    def checkCovered(self, identity: Identity, action: str, key: str) -> None:
        """Check that what is known to be allowed without a look at the request is allowed."""
        rights, operation = identity.rights, action
        if rights is None or OPERATION_ACTIONS.get(operation) != (f"s3:{action}",):
            return
        context = AccessContext(
            identity, PlainCaller(identity, operation), "box", key, "ann", operation
        )
        found = rights.evaluate(f"s3:{action}", context)
        if rights.covers(operation, "box", key.encode(), {}):
            self.assertIs(found, True)
        if rights.isWhole:
            self.assertIs(found, True)
            self.assertEqual(identity.ownerAccount, identity.account)
        else:
            self.assertEqual(identity.ownerAccount, "")

    @settings(max_examples=rounds(25, 300), deadline=None)
    @given(st.data())
    def test_agrees(self, data: Any) -> None:
        """Random policies of all identities and buckets, lists and accounts."""
        people = self.makePeople(data.draw)
        document = data.draw(st.none() | _policies(isOfBucket=True))
        lists = {kind: data.draw(_GRANTS) for kind in ("bucket", "object")}
        names = {"*": ALL_USERS, "ann": canonicalId("ann"), "bob": canonicalId("bob")}
        plainLists = {
            kind: [("*" if g == "*" else canonicalId(g), p) for g, p in grants]
            for kind, grants in lists.items()
        }
        acls = {
            kind: AccessControlList(tuple(Grant(names[g], p) for g, p in grants))
            if grants
            else None
            for kind, grants in lists.items()
        }
        isEnforced = data.draw(st.booleans())
        access = BucketAccess(
            "ann",
            None if document is None else compilePolicy(document.encode(), "box"),
            acls["bucket"],
            ownership=BUCKET_OWNER_ENFORCED if isEnforced else OBJECT_WRITER,
        )
        owner = data.draw(st.sampled_from([None, "ann", "bob"]))
        for action in CHECKED:
            key = "" if "Bucket" in action else data.draw(st.sampled_from(["key", "Ada/1", "red"]))
            box = Box("box", "ann", owner if key else None, document or "", plainLists, isEnforced)
            for name, person in people.items():
                self.checkCovered(self.identity(name), action, key)
                self.assertIs(
                    self.allows(name, action, key, access, box.objectOwner, acls["object"]),
                    isAllowed(person, box, action, key),
                    (name, action, key),
                )
                if person.parent is not None:
                    # No service key is above what bounds it.
                    self.assertLessEqual(
                        self.allows(name, action, key, access, box.objectOwner, acls["object"]),
                        self.allows(
                            person.parent.accessKey,
                            action,
                            key,
                            access,
                            box.objectOwner,
                            acls["object"],
                        ),
                    )

    @settings(max_examples=rounds(10, 200), deadline=None)
    @given(st.data())
    def test_administration(self, data: Any) -> None:
        """Random policies of all identities, for requests to IAM."""
        people = self.makePeople(data.draw)
        for action in ("iam:GetUser", "iam:CreateUser", "sts:AssumeRole"):
            name = data.draw(st.sampled_from(["user/Bob", "user/staff/Eve", "role/x/Ops"]))
            for key, person in people.items():
                arn = f"arn:aws:iam::{person.account}:{name}"
                caller, role = PlainCaller(self.identity(key), ""), "none"
                try:
                    authoriseAction(caller, role, action, arn)
                    found = True
                except AccessDenied:
                    found = False
                self.assertIs(found, mayAdminister(person, action, arn), (key, action, arn))
                if person.parent is not None and person.parent.kind != "key" and found:
                    self.assertTrue(mayAdminister(person.parent, action, arn))


class _CountingDocuments(dict[tuple[str, str], bytes]):
    """Documents that count how often one is read."""

    reads = 0

    def get(self, key: Any, default: Any = None) -> Any:
        """Count, and return a document."""
        self.reads += 1
        return super().get(key, default)


class CoverageTests(RightsCase):
    """Decisions without a look at the request."""

    def covered(self, *statements: dict[str, Any], bound: str = "") -> list[str]:
        """Return the operations and keys that the policy of a user is known to allow."""
        self.start()
        user = IAMUser(name="Ada", policies={"p": policy(*statements)})
        keys = [
            AccessKey("U", "s", "ann", userName="ada"),
            AccessKey("S", "s", "ann", parent="user/ada", sessionPolicy=bound),
        ]
        self.put("ann", user, keys=keys)
        rights = self.identity("S" if bound else "U").rights
        assert rights is not None
        return [
            f"{operation} {key}"
            for operation in ("GetObject", "PutObject", "ListObjects", "GetObjectAttributes")
            for key in ("a", "a/1", "b/1")
            if rights.covers(operation, "box", key.encode(), {})
        ]

    def test_covered(self) -> None:
        """Prefixes are known; conditions, other patterns and denials are not."""
        box = "arn:aws:s3:::box"
        get = rule("s3:GetObject", resource=f"{box}/a/*")
        everything = ["GetObject a", "GetObject a/1", "GetObject b/1"]
        conditional = {"Condition": {"Bool": {"aws:SecureTransport": "true"}}}
        for statements, expected in (
            ([get], ["GetObject a/1"]),
            ([rule("s3:Get*", resource=[box, f"{box}/*"])], everything),
            ([rule("s3:Get*")], everything),
            ([rule("s3:GetObject", resource="arn:aws:s3:::bo*")], everything),
            ([rule("s3:GetObject", resource="arn:aws:s3:::other/*")], []),
            ([rule("s3:GetObject", resource=f"{box}/*1")], []),
            ([rule("s3:GetObject", resource=f"{box}/a/1")], []),
            ([{**get, **conditional}], []),
            ([rule("s3:Get*"), rule("s3:*", resource=f"{box}/a*", effect="Deny")], everything[2:]),
            (
                [rule("s3:Get*"), rule("*", resource=f"{box}/b/*", effect="Deny", **conditional)],
                everything[:2],
            ),
            ([rule("s3:Get*"), rule("s3:*", resource=f"{box}/*1", effect="Deny")], []),
            ([rule("s3:Get*"), rule("s3:Put*", effect="Deny")], everything),
            # JSON can escape half of a surrogate pair, which no key has.
            ([get, rule("s3:Get*", resource=f"{box}/\ud800*")], ["GetObject a/1"]),
            ([rule("s3:Get*"), rule("*", resource=f"{box}/\ud800*", effect="Deny")], everything),
        ):
            found = [each for each in self.covered(*statements) if "Attributes" not in each]
            self.assertEqual(found, expected, statements)
        # Each of several actions must be allowed, and a service key needs its own policy.
        self.assertIn("GetObjectAttributes a", self.covered(rule("s3:Get*")))
        self.assertNotIn("GetObjectAttributes a", self.covered(rule("s3:GetObject")))
        self.assertEqual(self.covered(rule("s3:GetObject"), bound=policy(get)), ["GetObject a/1"])

    def test_many(self) -> None:
        """The memory of coverage is limited, and so is the number of prefixes."""
        many = [f"arn:aws:s3:::box/{number}/*" for number in range(65)]
        self.assertEqual(
            self.covered(rule("s3:GetObject", resource=["arn:aws:s3:::box/a*"])),
            ["GetObject a", "GetObject a/1"],
        )
        self.assertEqual(self.covered(rule("s3:GetObject", resource=many)), [])
        rights: Any = self.identity("U").rights
        for number in range(200):
            rights.covers("GetObject", f"box{number}", b"k", {})
        self.assertLessEqual(len(rights._coverage), 64)


class UserTests(RightsCase):
    """Users."""

    def test_noPolicies(self) -> None:
        """A user without policies may do nothing, in the buckets of its account, too."""
        self.put("ann", IAMUser(name="Ada"), keys=[AccessKey("A", "s", "ann", userName="ada")])
        self.assertEqual(self.identity("A").ownerAccount, "")
        self.assertFalse(any(self.allows("A", action) for action in CHECKED))
        caller = PlainCaller(self.identity("A"), "ListBuckets")
        with self.assertRaises(AccessDenied) as caught:
            decideAlone(caller, "s3:ListAllMyBuckets")
        assert caught.exception.explain is not None
        self.assertEqual(
            caught.exception.explain().rule,
            "no policy of the user Ada allows s3:ListAllMyBuckets",
        )

    def test_principals(self) -> None:
        """What the policy of a bucket says of a user, its account and its service keys."""
        allow = policy(rule("s3:*"))
        keys = [
            AccessKey("A", "s", "ann", userName="ada"),
            AccessKey("N", "s", "ann", userName="none"),
            AccessKey("S", "s", "ann", parent="user/ada"),
            AccessKey("P", "s", "ann"),
        ]
        users = IAMUser(name="Ada", path="/staff/", policies={"p": allow}), IAMUser(name="None")
        self.put("ann", *users, keys=keys)
        arn = "arn:aws:iam::ann:"
        for effect, element, principal, allowed in (
            ("Allow", "Principal", f"{arn}root", "ASP"),
            ("Allow", "Principal", f"{arn}user/None", "ANSP"),
            ("Allow", "Principal", "*", "ANSP"),
            ("Allow", "Principal", f"{arn}role/None", "ASP"),
            ("Deny", "Principal", f"{arn}root", ""),
            ("Deny", "Principal", f"{arn}user/staff/Ada", "P"),
            ("Deny", "Principal", f"{arn}user/Ada", "ASP"),
            ("Deny", "Principal", f"{arn}user/S", "AP"),
            ("Deny", "Principal", f"{arn}user/A", "ASP"),
            ("Deny", "NotPrincipal", f"{arn}root", "P"),
            ("Deny", "NotPrincipal", f"{arn}user/staff/Ada", "AS"),
            ("Deny", "NotPrincipal", f"{arn}user/S", ""),
        ):
            made = rule("s3:*", resource="arn:aws:s3:::box/*", effect=effect)
            document = policy({**made, element: {"AWS": principal}})
            access = BucketAccess("ann", compilePolicy(document.encode(), "box"))
            found = "".join(
                name for name in "ANSP" if self.allows(name, "GetObject", access=access)
            )
            self.assertEqual(found, allowed, (effect, element, principal))

    def test_sessionPrincipals(self) -> None:
        """
        A bucket's policy grants to the ARN of a session directly: only a denial counts against it.
        The ARN of its role grants what the policy of the session allows, too.
        """
        allow, put = policy(rule("s3:*")), policy(rule("s3:PutObject"))
        deny = policy(rule("s3:GetObject", effect="Deny"))
        roles = {
            "open": Role(name="Open", path="/x/", id="AROAO", policies={"p": allow}),
            "empty": Role(name="Empty", id="AROAE"),
            "denied": Role(name="Denied", id="AROAD", policies={"p": deny}),
            "broken": Role(name="Broken", id="AROAB", policies={"p": "{}"}),
        }
        self.put("ann", *roles.values())

        def opened(role: str, name: str = "job", policy: str = "") -> str:
            return self.openSession(account="ann", role=roles[role], name=name, policy=policy)

        sts, iam = "arn:aws:sts::ann:assumed-role", "arn:aws:iam::ann:role"
        for session, effect, element, principal, expected in (
            (opened("open", policy=put), "Allow", "Principal", f"{sts}/Open/job", True),
            (opened("open", policy=put), "Allow", "Principal", f"{sts}/Open/Job", False),
            (opened("open", policy=put), "Allow", "Principal", f"{sts}/Empty/job", False),
            (opened("open", policy=put), "Allow", "Principal", f"{iam}/x/Open", False),
            (opened("open", policy=put), "Allow", "Principal", "*", False),
            (opened("open", "other", put), "Allow", "Principal", f"{sts}/Open/job", False),
            (opened("open", policy=deny), "Allow", "Principal", f"{sts}/Open/job", False),
            (opened("empty"), "Allow", "Principal", f"{sts}/Empty/job", True),
            (opened("empty"), "Allow", "Principal", f"{iam}/Empty", True),
            (opened("empty"), "Allow", "Principal", "ann", False),
            (opened("empty", policy=put), "Allow", "Principal", f"{sts}/Empty/job", True),
            (opened("denied"), "Allow", "Principal", f"{sts}/Denied/job", False),
            (opened("broken"), "Allow", "Principal", f"{sts}/Broken/job", False),
            (opened("open"), "Deny", "Principal", f"{sts}/Open/job", False),
            (opened("open"), "Deny", "Principal", f"{sts}/Open/other", True),
            (opened("open"), "Deny", "NotPrincipal", f"{sts}/Open/job", True),
            (opened("open"), "Deny", "NotPrincipal", f"{sts}/Open/other", False),
        ):
            made = rule("s3:*", resource="arn:aws:s3:::box/*", effect=effect)
            document = policy({**made, element: {"AWS": principal}})
            access = BucketAccess("ann", compilePolicy(document.encode(), "box"))
            named = (session, effect, element, principal)
            self.assertIs(self.allows(session, "GetObject", access=access), expected, named)
            if effect == "Allow":
                could = access.couldAllow(self.identity(session), "s3:GetObject")
                self.assertLessEqual(expected, could, named)
            # In the bucket of another account, the policies of the session count, too.
            other = BucketAccess("bob", compilePolicy(document.encode(), "box"))
            found = self.allows(session, "GetObject", access=other)
            self.assertFalse(found, named)

    def test_sessionDenied(self) -> None:
        """A denial in the policy of a bucket wins over what names the session."""
        role = Role(name="Ops", id="AROA")
        self.put("ann", role)
        session = self.openSession(account="ann", role=role, name="job")
        made = rule("s3:*", resource="arn:aws:s3:::box/*")
        named = {"AWS": "arn:aws:sts::ann:assumed-role/Ops/job"}
        allow = {**made, "Principal": named}
        for principal, expected in (
            ("bob", True),
            ("ann", False),
            ("arn:aws:iam::ann:role/Ops", False),
            ("*", False),
        ):
            deny = {**made, "Effect": "Deny", "Principal": {"AWS": principal}}
            document = policy(allow, deny)
            access = BucketAccess("ann", compilePolicy(document.encode(), "box"))
            self.assertIs(self.allows(session, "GetObject", access=access), expected, principal)

    def test_sessionOfOtherAccount(self) -> None:
        """In the bucket of another account, the role must allow what the session is granted."""
        for document, expected in (
            (policy(rule("s3:*")), True),
            (policy(rule("s3:Put*")), False),
        ):
            role = Role(name="Ops", id="AROA", policies={"p": document})
            self.put("bob", role)
            session = self.openSession(account="bob", role=role, name="job")
            made = rule("s3:*", resource="arn:aws:s3:::box/*")
            named = {"AWS": "arn:aws:sts::bob:assumed-role/Ops/job"}
            text = policy({**made, "Principal": named})
            access = BucketAccess("ann", compilePolicy(text.encode(), "box"))
            self.assertIs(self.allows(session, "GetObject", access=access), expected)

    def test_services(self) -> None:
        """Lists of buckets and new buckets: by the actions of the service, and by name."""
        for resource in ("*", "arn:aws:s3:::*"):
            document = policy(
                rule("s3:ListAllMyBuckets", resource=resource),
                rule("s3:CreateBucket", resource="arn:aws:s3:::mine-*"),
            )
            user = IAMUser(name="Ada", policies={"p": document})
            self.put("ann", user, keys=[AccessKey("A", "s", "ann", userName="ada")])
            caller = PlainCaller(self.identity("A"), "ListBuckets")
            decideAlone(caller, "s3:ListAllMyBuckets")
            decideAlone(caller, "s3:CreateBucket", "mine-1")
            self.assertRaises(AccessDenied, decideAlone, caller, "s3:CreateBucket", "other")

    def test_changes(self) -> None:
        """Changes, disabling and deletion hold within a second; other users stay."""
        allow = policy(rule("s3:*"))
        ada, eve = (IAMUser(name=name, policies={"p": allow}) for name in ("Ada", "Eve"))
        keys = [AccessKey(name, "s", "ann", userName=name) for name in ("ada", "eve")]
        self.put("ann", ada, eve, keys=keys)
        before = self.keys.find("eve")
        self.assertTrue(self.allows("ada", "GetObject"))
        self.put("ann", IAMUser(name="Ada", policies={"p": policy(rule("s3:ListBucket"))}))
        self.assertFalse(self.allows("ada", "GetObject"))
        self.put("ann", IAMUser(name="Ada", policies={"p": allow}, disabled=True))
        self.assertIsNone(self.keys.find("ada"))
        self.put("ann", ada)
        self.assertTrue(self.allows("ada", "GetObject"))
        self.stored.remove("ann", ada)
        self.clock.pump([0.5, 0.5])
        self.assertIsNone(self.keys.find("ada"))
        self.assertIs(self.keys.find("eve"), before)

    def test_unusable(self) -> None:
        """A policy that cannot be used gives no rights, and neither does a missing one."""
        allow = policy(rule("s3:*"))
        key = AccessKey("A", "s", "ann", userName="ada")
        for user in (
            IAMUser(name="Ada", policies={"p": allow, "q": "{}"}),
            IAMUser(name="Ada", policies={"p": allow}, groups=("gone",)),
            IAMUser(name="Ada", policies={"p": allow}, attached=("arn:aws:iam::ann:policy/gone",)),
        ):
            self.put("ann", user, keys=[key])
            self.assertFalse(self.allows("A", "GetObject"))

    def test_admin(self) -> None:
        """The actions of IAM, by ARN; the administration role gives all of them to a plain key."""
        mine = "arn:aws:iam::ann:user/${aws:username}"
        document = policy(
            rule("iam:*AccessKey*", resource=mine),
            rule("iam:List*", "s3:*"),
            rule("iam:ListRoles", effect="Deny"),
        )
        self.put(
            "ann",
            IAMUser(name="Ada", policies={"p": document}),
            keys=[
                AccessKey("A", "s", "ann", role="admin", userName="ada"),
                AccessKey("K", "s", "ann"),
                AccessKey("B", "s", "ann", role="admin"),
                AccessKey("S", "s", "ann", role="admin", parent="key/A"),
                AccessKey("T", "s", "ann", role="admin", parent="key/B", sessionPolicy=document),
            ],
        )

        def may(name: str, action: str, resource: str) -> bool:
            found = self.keys.find(name)
            assert found is not None
            try:
                authoriseAction(PlainCaller(found.identity, ""), found.role, action, resource)
            except AccessDenied:
                return False
            return True

        # The key of a user and a service key could issue keys that no policy bounds.
        found = [self.keys.find(name) for name in "ASTB"]
        self.assertEqual([each and each.role for each in found], ["none"] * 3 + ["admin"])
        for name in "AS":
            self.assertTrue(may(name, "iam:CreateAccessKey", "arn:aws:iam::ann:user/Ada"))
            self.assertFalse(may(name, "iam:CreateAccessKey", "arn:aws:iam::ann:user/Eve"))
            self.assertTrue(may(name, "iam:ListUsers", "*"))
            self.assertFalse(may(name, "iam:ListRoles", "*"))
            self.assertFalse(may(name, "iam:PutUserPolicy", "arn:aws:iam::ann:user/Ada"))
        self.assertFalse(may("K", "iam:ListUsers", "*"))
        for action in ("iam:ListRoles", "iam:PutUserPolicy"):
            self.assertTrue(may("B", action, "*"))
            self.assertFalse(may("T", action, "*"))
        self.assertFalse(may("T", "iam:ListUsers", "*"))

    def test_unchanged(self) -> None:
        """A change of one account does not read the users of the others again."""
        user = IAMUser(name="Ada", policies={"p": policy(rule("s3:*"))})
        self.put("ann", user, keys=[AccessKey("A", "s", "ann", userName="ada")])
        documents = _CountingDocuments(self.stored.accounts["ann"].documents)
        self.stored.generation += 1
        self.stored.accounts["ann"] = AccountDocuments(self.stored.generation, documents)
        self.clock.pump([0.5, 0.5])
        self.assertTrue(self.allows("A", "GetObject"))
        before = documents.reads
        self.put("bob", user, keys=[AccessKey("B", "s", "bob", userName="ada")])
        self.assertTrue(self.allows("A", "GetObject"))
        self.assertEqual(documents.reads, before)
        self.assertTrue(self.keys.find("B"))
        # Another secret of the same user.
        self.put("bob", keys=[AccessKey("A", "t", "ann", userName="ada")])
        found = self.keys.find("A")
        self.assertEqual(found and found.secretKey, "t")

    def test_tagKeys(self) -> None:
        """Keys of tags in conditions match in any case, so another case does not escape a deny."""
        for tag in ("team", "Team"):
            for key in ("aws:PrincipalTag/team", "aws:principaltag/TEAM"):
                denied = rule("s3:*", effect="Deny", Condition={"StringEquals": {key: "red"}})
                user = IAMUser(
                    name="Ada", tags={tag: "red"}, policies={"p": policy(rule("s3:*"), denied)}
                )
                self.put("ann", user, keys=[AccessKey("A", "s", "ann", userName="ada")])
                self.assertFalse(self.allows("A", "GetObject"), (tag, key))

    def test_narrowed(self) -> None:
        """A key of a user with limits cannot use IAM, which could make a key without them."""
        user = IAMUser(name="Ada", policies={"p": policy(rule("*"))})
        keys = [
            AccessKey("W", "s", "ann", userName="ada"),
            AccessKey("A", "s", "ann", "readonly", userName="ada"),
            AccessKey("B", "s", "ann", bucketPattern="box", userName="ada"),
            AccessKey("S", "s", "ann", "writeonly", parent="key/W"),
            AccessKey("T", "s", "ann", parent="key/A"),
        ]
        self.put("ann", user, keys=keys)
        resource = "arn:aws:iam::ann:user/Ada"
        for key in keys:
            caller = PlainCaller(self.identity(key.accessKey), "")
            asked: Any = (caller, "none", "iam:CreateAccessKey", resource)
            if key.accessKey == "W":
                authoriseAction(*asked)
            else:
                refused = self.assertRaises(AccessDenied, authoriseAction, *asked)
                assert refused.explain is not None
                self.assertIn("limit", refused.explain().rule)


class ServiceKeyTests(RightsCase):
    """Service keys."""

    def test_limits(self) -> None:
        """A service key has the bounds of its parent and its own."""
        parent = AccessKey("P", "s", "ann", "readonly", "box", "logs/*")
        child = AccessKey("C", "s", "ann", "readwrite", "", "logs/2*", parent="key/P")
        self.put("ann", keys=[parent, child])
        for access, bucket, key, isAllowed_ in (
            ("read", "box", "logs/2", True),
            ("read", "box", "logs/1", False),
            ("write", "box", "logs/2", False),
            ("read", "other", "logs/2", False),
        ):
            found = self.identity("C").policy.allows(access, bucket, key)
            self.assertIs(found, isAllowed_, (access, bucket, key))
        self.assertFalse(self.identity("C").policy.coversPrefix("logs/"))
        self.assertFalse(KeyPolicy(parent=KeyPolicy("readonly")).isUnlimited)

    def test_parents(self) -> None:
        """A service key ends with its parent: disabled, expired, revoked, or of another account."""
        parent = AccessKey("P", "s", "ann")
        keys = [
            AccessKey("C", "s", "ann", parent="key/P"),
            AccessKey("D", "s", "ann", parent="key/C"),
            AccessKey("X", "s", "bob", parent="key/P"),
            AccessKey("R", "s", "root", parent="key/ROOT"),
            AccessKey("Q", "s", "ann", parent="key/ROOT"),
            AccessKey("O", "s", "ann", parent="key/O"),
        ]
        self.put("ann", keys=[parent, *keys])
        self.assertEqual([name for name in "CDXRQO" if self.keys.find(name)], ["C", "D", "R"])
        self.assertTrue(self.allows("R", "GetObject"))
        for changed in (evolve(parent, disabled=True), evolve(parent, expiresMs=1)):
            self.put("ann", keys=[changed])
            self.assertEqual([name for name in "CD" if self.keys.find(name)], [])
        self.put("ann", keys=[parent])
        self.assertTrue(self.keys.find("D"))
        self.keys.setRoot("NEW", "secret")
        self.assertIsNone(self.keys.find("R"))

    def test_deep(self) -> None:
        """A long chain ends, in any order of names, and a ring has no rights."""
        for names in (range(12), range(11, -1, -1)):
            self.start()
            parents = ["key/P", *(f"key/L{n:02}" for n in names)]
            keys = [
                AccessKey(f"L{n:02}", "s", "ann", parent=above)
                for n, above in zip(names, parents, strict=False)
            ]
            self.put(
                "ann", keys=[AccessKey("P", "s", "ann"), *sorted(keys, key=lambda k: k.accessKey)]
            )
            found = [self.keys.find(f"L{n:02}") is not None for n in names]
            self.assertEqual(found, [True] * 8 + [False] * 4)
        chain = [AccessKey(f"K{n}", "s", "ann", parent=f"key/K{n + 1}") for n in range(40)]
        ring = [AccessKey(f"R{n}", "s", "ann", parent=f"key/R{(n + 1) % 3}") for n in range(3)]
        self.put("ann", keys=[*chain, *ring])
        self.assertFalse(any(self.keys.find(key.accessKey) for key in (*chain, *ring)))


class PolicyTests(RightsCase):
    """Validation and speed."""

    def test_refused(self) -> None:
        """The problem of an invalid policy is named."""
        for document, named in (
            ("", "invalid Json"),
            ("[]", "first byte"),
            ("{}", "Statement"),
            (policy(), "Statement"),
            (policy(rule("s3:*"), version="2011-01-01"), "version"),
            (policy({**rule("s3:*"), "Principal": "*"}), "principal"),
            (policy({**rule("s3:*"), "Odd": "*"}), "Odd"),
            (policy(rule("GetObject")), "vendor"),
            (policy(rule("s3:*", resource="box")), "ARN"),
            (policy(rule("s3:*", resource="arn:aws:s3:::${aws:odd}")), "aws:odd"),
            (policy(rule("s3:*", effect="Perhaps")), "effect"),
            (policy(rule("s3:*", Condition={"StringEquals": {"aws:odd": "x"}})), "aws:odd"),
            (policy(rule("s3:*", Condition={"Odd": {"aws:username": "x"}})), "Odd"),
            (policy(rule("s3:*", Sid="a"), rule("s3:*", Sid="a")), "unique"),
            (policy(rule("s3:*", resource="arn:aws:s3:::" + "x" * 20480)), "bytes"),
            ('{"Statement": {"Effect": "Allow", "Effect": "Deny"}}', "twice"),
            ("[" * 10_000, "Json"),
        ):
            error = self.assertRaises(MalformedPolicyDocument, checkPolicy, document)
            self.assertIn(named, error.message)

    def test_others(self) -> None:
        """Actions of other services are valid, and give nothing."""
        document = policy(rule("ec2:*", "kms:Decrypt", resource="arn:aws:kms:*:1:key/*"))
        checkPolicy(document)
        self.put(
            "ann",
            IAMUser(name="Ada", policies={"p": document}),
            keys=[AccessKey("A", "s", "ann", userName="ada")],
        )
        self.assertFalse(self.allows("A", "GetObject"))

    def test_stars(self) -> None:
        """A policy of 20 KiB of stars is compiled and evaluated in milliseconds."""
        for unit in ("*a", "*?", "?*a?", "a*" * 3 + "b", "*"):
            name = unit * (20_000 // len(unit))
            for document in (
                policy(rule("s3:*", resource=f"arn:aws:s3:::{name}")),
                policy(rule("s3:" + name[:10_000])),
                policy(rule("s3:*", Condition={"StringLike": {"aws:username": name}})),
            ):
                began = process_time()
                checkPolicy(document)
                self.put(
                    "ann",
                    IAMUser(name="Ada", policies={"p": document}),
                    keys=[AccessKey("A", "s", "ann", userName="ada")],
                )
                for _ in range(10):
                    self.allows("A", "GetObject", "a" * 1024)
                # Matching by a regular expression takes half a minute. The bound leaves time for
                # the garbage of other tests.
                self.assertLess(process_time() - began, 2)
