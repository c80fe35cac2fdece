"""Users of people who sign in at an issuer: their names, groups and tags."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import AccountKey
from storagegate.objects.errors import LimitExceeded
from storagegate.objects.identities.entities import AccountState, Group, IAMUser, encodeEntity
from storagegate.objects.identities.groups import GROUPS_OF_USER_LIMIT
from storagegate.objects.identities.people import (
    Person,
    claimedNames,
    claimedTags,
    claimOf,
    putPerson,
)
from storagegate.objects.identities.rights import bindPerson
from storagegate.objects.identities.users import USERS_LIMIT
from storagegate.objects.identities.validation import TAGS_LIMIT
from storagegate.storage.records import AccessKey, AccountDocuments


class PeopleTests(SynchronousTestCase):
    """L{putPerson}."""

    def setUp(self) -> None:
        """Have an account with groups."""
        self.state = AccountState(account="staff")
        for number in range(GROUPS_OF_USER_LIMIT + 2):
            self.state = self.state.withEntity(Group(name=f"Group{number}"))

    def put(
        self,
        subject: str = "ann",
        groups: tuple[str, ...] | None = (),
        tags: Mapping[str, str] = {},
        source: str = "corporate",
    ) -> IAMUser:
        """Sign a person in, and return its user."""
        person = Person(source, "https://login.example.com/", subject, tags, groups)
        self.state, user = putPerson(self.state, person, 1000)
        return user

    def test_create(self) -> None:
        """A new person becomes the user ISSUER/SUB."""
        user = self.put()
        self.assertEqual(user.resource, "user/corporate/ann")
        self.assertTrue(user.id.startswith("AIDA"))
        self.assertEqual(self.state.user("ann"), user)

    def test_unchanged(self) -> None:
        """The same person again changes nothing, so nothing is written."""
        self.put("ann", ("group1",), {"email": "a@example.com"})
        before = self.state.entities
        self.put("ann", ("group1",), {"email": "a@example.com"})
        self.assertEqual(self.state.entities, before)

    def test_groups(self) -> None:
        """Groups are renewed: those that exist, in the limit; without a claim they stay."""
        self.assertEqual(self.put(groups=("GROUP1", "none", "group1")).groups, ("group1",))
        self.assertEqual(self.put(groups=None).groups, ("group1",))
        self.assertEqual(self.put(groups=("group2",)).groups, ("group2",))
        self.assertEqual(self.put(groups=()).groups, ())
        many = tuple(f"group{number}" for number in range(GROUPS_OF_USER_LIMIT + 2))
        self.assertEqual(self.put(groups=many).groups, many[:GROUPS_OF_USER_LIMIT])

    def test_names(self) -> None:
        """No two subjects have one name, whatever they consist of."""
        subjects = ["ann", "Ann", "ANN", "a/n", "a n", "a\\n", "x" * 64, "x" * 65, "../root", "*"]
        names = [self.put(each).name for each in subjects]
        self.assertEqual(len({name.lower() for name in names}), len(subjects))
        for name in names:
            self.assertRegex(name, r"\A[\w+=,.@-]{1,64}\Z")
        self.assertEqual([self.put(each).name for each in subjects], names)
        # The name of another person as subject.
        self.assertNotIn(self.put(names[1]).name, names)

    def test_taken(self) -> None:
        """Users, keys and people of other issuers keep their names, and are never taken over."""
        own = IAMUser(name="bob", id="AIDA1")
        self.state = self.state.withEntity(own).withKey(AccessKey("carl", "secret", "staff"))
        self.put("ann", source="other")
        for subject in ("bob", "carl", "ann"):
            user = self.put(subject)
            self.assertNotEqual(user.name, subject)
            self.assertEqual(user.path, "/corporate/")
            self.assertEqual(self.put(subject).id, user.id)
        self.assertEqual(self.state.user("bob"), own)
        # The person keeps its name when the other one becomes free.
        self.state = self.state.withoutEntity(own)
        self.assertNotEqual(self.put("bob").name, "bob")

    def test_premade(self) -> None:
        """A user that IAM made, with each name that a person could get, is not the person's."""
        names = [self.put().name]
        digest = self.put("Ann").name.partition("=")[2]
        self.setUp()
        # The hash is no secret: everyone can compute it.
        hashed = sha256(b"https://login.example.com/\0ann").hexdigest()[: len(digest)]
        names += [f"ann={hashed}", f"ann={hashed}=2"]
        for name in names:
            made = IAMUser(name=name, id=f"AIDA{name}", path="/corporate/")
            self.state = self.state.withEntity(made)
        user = self.put(groups=("group1",))
        self.assertNotIn(user.name, names)
        self.assertEqual(user.groups, ("group1",))
        for name in names:
            found = self.state.user(name)
            assert found is not None
            self.assertEqual(found.groups, ())
        self.assertEqual(self.put().id, user.id)

    def test_moved(self) -> None:
        """A person keeps its user under another name and path."""
        user = self.put()
        moved = replace(user, name="anna", path="/staff/")
        self.state = self.state.withoutEntity(user).withEntity(moved)
        self.assertEqual(self.put(groups=("group1",)), replace(moved, groups=("group1",)))
        self.assertIsNone(self.state.user("ann"))

    def test_kept(self) -> None:
        """A sign-in leaves the policies of administrators, and never enables a user."""
        user = self.put()
        changed = IAMUser(
            name="ann",
            id=user.id,
            path=user.path,
            person=user.person,
            policies={"p": "{}"},
            disabled=True,
        )
        self.state = self.state.withEntity(changed)
        again = self.put()
        self.assertEqual((again.policies, again.disabled), ({"p": "{}"}, True))

    def test_tags(self) -> None:
        """Claims replace their tags, leave all others, and keep the limit."""
        self.put(tags={"email": "a@example.com", "name": "Ann"})
        user = self.put(tags={"email": "b@example.com"})
        self.assertEqual(user.tags, {"email": "b@example.com"})
        full = {f"t{number}": "" for number in range(TAGS_LIMIT)}
        self.state = self.state.withEntity(replace(user, tags=full))
        self.assertEqual(self.put(tags={"email": "b@example.com"}).tags, full)

    def test_limit(self) -> None:
        """An account that is full has no new people; present ones sign in."""
        self.put()
        entities: dict[tuple[str, str], Any] = {
            ("user", f"u{number}"): IAMUser(name=f"u{number}") for number in range(USERS_LIMIT - 1)
        }
        self.state = AccountState(account="staff", entities={**self.state.entities, **entities})
        self.assertRaises(LimitExceeded, self.put, "bob")
        self.put()


class ClaimTests(SynchronousTestCase):
    """Values of claims."""

    def test_claimOf(self) -> None:
        """A name with dots is a claim of this name, or a nested one."""
        claims = {"realm": {"groups": ["a"]}, "https://x.example/groups": ["b"]}
        self.assertEqual(claimOf(claims, "realm.groups"), ["a"])
        self.assertEqual(claimOf(claims, "https://x.example/groups"), ["b"])
        for name in ("realm.groups.a", "none", "realm.none.x", ""):
            self.assertIsNone(claimOf(claims, name))

    def test_claimedNames(self) -> None:
        """A text is a list of one; anything else than texts is ignored."""
        for given, names in (
            ("a", ("a",)),
            (["a", 1, None, "", ["b"], "b", "\ud800", "c\n"], ("a", "b")),
            (7, ()),
            (None, ()),
            ({"a": 1}, ()),
        ):
            self.assertEqual(claimedNames({"groups": given}, "groups"), names, given)
        self.assertEqual(len(claimedNames({"groups": ["a"] * 5000}, "groups")), 1000)

    def test_claimedTags(self) -> None:
        """Only certain claims become tags, and only values that tags can have."""
        given = {
            "email": "a@example.com",
            "name": "<b>",
            "preferred_username": "a" * 257,
            "sub": "x",
        }
        self.assertEqual(claimedTags(given), {"email": "a@example.com"})
        self.assertEqual(claimedTags({"email": 7, "name": "\ud800"}), {})


class BoundTests(SynchronousTestCase):
    """L{bindPerson}: the rights of a session."""

    def bind(self, *entities: Any, before: AccountKey | None = None) -> AccountKey | None:
        """Bind the person ann in an account with these entities."""
        documents = {(each.kind, each.key): encodeEntity(each) for each in entities}
        identities = {"staff": AccountDocuments(1, documents)}
        return bindPerson("staff", "ann", "none", identities, before)

    def test_bind(self) -> None:
        """A session ends with its user, or while the user is disabled, and has the user's role."""
        user = IAMUser(name="ann", id="AIDA1", path="/corporate/", groups=("g",))
        group = Group(name="g")
        found = self.bind(user, group)
        assert found is not None
        identity = found.identity
        self.assertEqual((identity.principal, identity.ownerAccount), ("corporate/ann", ""))
        self.assertEqual((found.role, found.secretKey), ("none", "AIDA1"))
        self.assertIs(self.bind(user, group, before=found), found)
        changed = Group(name="g", policies={"p": "{}"})
        self.assertIsNot(self.bind(user, changed, before=found), found)
        self.assertIsNone(self.bind(replace(user, disabled=True), group, before=found))
        self.assertIsNone(self.bind(group, before=found))
