"""Access control lists: canned lists, how they are stored, and what they grant."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import (
    ALL_USERS,
    AUTHENTICATED_USERS,
    FULL_CONTROL,
    PERMISSIONS,
    AccessControlList,
    Grant,
    cannedList,
    decodeList,
    encodeList,
    privateList,
)
from storagegate.objects.accounts import ANONYMOUS, Identity, canonicalId
from storagegate.objects.errors import DomainError

ANN, BOB = canonicalId("ann"), canonicalId("bob")


class AclTests(SynchronousTestCase):
    """Forms of lists."""

    def assertCode(self, code: str, function: object, *args: object) -> None:
        """Check the code of the error that a call raises."""
        error = self.assertRaises(DomainError, function, *args)  # type: ignore[arg-type]
        self.assertEqual(error.code, code)

    def test_canned(self) -> None:
        """Each canned list has its grants; those of services that there are not are 501."""
        mine, all_ = Grant(ANN, FULL_CONTROL), Grant(ALL_USERS, "READ")
        for name, expected in (
            ("private", (mine,)),
            ("public-read", (all_, mine)),
            ("public-read-write", (all_, Grant(ALL_USERS, "WRITE"), mine)),
            ("authenticated-read", (Grant(AUTHENTICATED_USERS, "READ"), mine)),
            ("bucket-owner-read", (mine, Grant(BOB, "READ"))),
            ("bucket-owner-full-control", (mine, Grant(BOB, FULL_CONTROL))),
        ):
            self.assertEqual(cannedList(name, "ann", "bob").grants, expected, name)
        for name in ("bucket-owner-read", "bucket-owner-full-control"):
            self.assertEqual(cannedList(name, "ann"), privateList("ann"))
            self.assertEqual(cannedList(name, "ann", "ann"), privateList("ann"))
        self.assertCode("InvalidArgument", cannedList, "public", "ann")
        for name in ("log-delivery-write", "aws-exec-read"):
            self.assertCode("NotImplemented", cannedList, name, "ann")

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([ANN, BOB, ALL_USERS, AUTHENTICATED_USERS]),
                st.sampled_from(PERMISSIONS),
            )
        )
    )
    def test_stored(self, pairs: list[tuple[str, str]]) -> None:
        """A list is read as it was stored; the private one is stored as none."""
        acl = AccessControlList(tuple(Grant(*pair) for pair in pairs))
        text = encodeList(acl, "ann")
        self.assertEqual(privateList("ann") if text is None else decodeList(text), acl)
        self.assertEqual(text is None, acl == privateList("ann"))

    def test_grants(self) -> None:
        """A permission is had by id or by group; full control is every permission."""
        acl = AccessControlList(
            (
                Grant(BOB, FULL_CONTROL),
                Grant(ALL_USERS, "READ"),
                Grant(AUTHENTICATED_USERS, "WRITE"),
            )
        )
        bob, eve = Identity("B", "bob"), Identity("E", "eve")
        for identity, permission, withGroups, expected in (
            (bob, "READ_ACP", False, True),
            (eve, "READ", True, True),
            (eve, "READ", False, False),
            (eve, "WRITE", True, True),
            (eve, "READ_ACP", True, False),
            (ANONYMOUS, "READ", True, True),
            (ANONYMOUS, "WRITE", True, False),
            (ANONYMOUS, "READ", False, False),
        ):
            found = acl.grantsTo(permission, identity, withGroups=withGroups)
            self.assertIs(found, expected, (identity, permission, withGroups))
        self.assertTrue(acl.isPublic)
        self.assertFalse(privateList("ann").isPublic)
