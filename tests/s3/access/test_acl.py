"""Access control lists: their three forms, how they are stored, and what they grant."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.access.acl import (
    ALL_USERS,
    AUTHENTICATED_USERS,
    FULL_CONTROL,
    GRANT_LIMIT,
    PERMISSIONS,
    AccessControlList,
    Grant,
    cannedList,
    decodeList,
    encodeList,
    listFrom,
    namesList,
    privateList,
)
from storagegate.s3.accounts import ANONYMOUS, Identity, canonicalId
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import readList

ANN, BOB = canonicalId("ann"), canonicalId("bob")
XSI = "http://www.w3.org/2001/XMLSchema-instance"


class Directory:
    """Two accounts, and an address that both carry."""

    def isAccountId(self, accountId: str) -> bool:
        """Return whether it is one of the two."""
        return accountId in (ANN, BOB)

    def accountsOf(self, email: str) -> Sequence[str]:
        """Return who has an address."""
        return {"bob@x.org": ["bob"], "both@x.org": ["ann", "bob"]}.get(email, [])


def grant(kind: str, element: str, permission: str = "READ") -> str:
    """Write a grant."""
    return (
        f'<Grant><Grantee xmlns:xsi="{XSI}" xsi:type="{kind}">{element}</Grantee>'
        f"<Permission>{permission}</Permission></Grant>"
    )


def policy(grants: str, owner: str = ANN) -> bytes:
    """Write a list."""
    return (
        '<AccessControlPolicy xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Owner><ID>{owner}</ID></Owner><AccessControlList>{grants}</AccessControlList>"
        "</AccessControlPolicy>"
    ).encode()


class AclTests(SynchronousTestCase):
    """Forms of lists."""

    def assertCode(self, code: str, function: object, *args: object) -> None:
        """Check the code of the error that a call raises."""
        error = self.assertRaises(S3Error, function, *args)  # type: ignore[arg-type]
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

    def test_headers(self) -> None:
        """Grantees by id, group and address, several in a header, with and without quotes."""
        headers = {
            b"x-amz-grant-read": f'id="{BOB}", uri="{ALL_USERS}"'.encode(),
            b"x-amz-grant-write-acp": b"emailAddress=Bob@X.org",
            b"x-amz-grant-full-control": f"id={ANN}".encode(),
        }
        self.assertTrue(namesList(headers))
        found = listFrom(headers, "ann", Directory())
        assert found is not None
        self.assertEqual(
            set(found.grants),
            {
                *(Grant(BOB, "READ"), Grant(ALL_USERS, "READ")),
                *(Grant(BOB, "WRITE_ACP"), Grant(ANN, FULL_CONTROL)),
            },
        )
        self.assertIsNone(listFrom({}, "ann", Directory()))
        self.assertFalse(namesList({b"x-amz-meta-a": b"b"}))

    def test_headerErrors(self) -> None:
        """Unknown forms, ids, groups and addresses, and two forms at once."""
        for value, code in (
            (b"", "InvalidArgument"),
            (b"bob", "InvalidArgument"),
            (b"name=bob", "InvalidArgument"),
            (b"id=" + b"0" * 64, "InvalidArgument"),
            (b"uri=http://acs.amazonaws.com/groups/global/Nobody", "InvalidArgument"),
            (b"uri=http://acs.amazonaws.com/groups/s3/LogDelivery", "NotImplemented"),
            (b"emailAddress=eve@x.org", "UnresolvableGrantByEmailAddress"),
            (b"emailAddress=both@x.org", "AmbiguousGrantByEmailAddress"),
        ):
            self.assertCode(code, listFrom, {b"x-amz-grant-read": value}, "ann", Directory())
        both = {b"x-amz-acl": b"private", b"x-amz-grant-read": f"id={BOB}".encode()}
        self.assertCode("InvalidRequest", listFrom, both, "ann", Directory())

    def test_document(self) -> None:
        """A document names each kind of grantee; its own is what is written."""
        body = policy(
            grant("CanonicalUser", f"<ID>{ANN}</ID><DisplayName>x</DisplayName>", FULL_CONTROL)
            + grant("Group", f"<URI>{ALL_USERS}</URI>")
            + grant("AmazonCustomerByEmail", "<EmailAddress>bob@x.org</EmailAddress>", "WRITE")
        )
        self.assertEqual(
            readList(body, "ann", Directory()).grants,
            (Grant(ANN, FULL_CONTROL), Grant(ALL_USERS, "READ"), Grant(BOB, "WRITE")),
        )
        self.assertEqual(readList(policy(""), "ann", Directory()).grants, ())

    def test_documentErrors(self) -> None:
        """What is no list is C{MalformedACLError}; another owner is refused."""
        other = f"<ID>{BOB}</ID>"
        for body in (
            b"",
            b"<AccessControlPolicy/>",
            b'<!DOCTYPE a [<!ENTITY b "c">]><AccessControlPolicy/>',
            policy("").replace(b"AccessControlPolicy", b"Policy"),
            policy("").replace(b"<Owner>", b"<!--").replace(b"</Owner>", b"-->"),
            policy(grant("CanonicalUser", other, "SEE")),
            policy(grant("Robot", other)),
            policy(grant("Group", other)),
            policy("<Grant><Permission>READ</Permission></Grant>"),
            policy(grant("CanonicalUser", other) * (GRANT_LIMIT + 1)),
            policy("").replace(b"<AccessControlList></AccessControlList>", b""),
            policy("").replace(b"<Owner>", b"<Other/><Owner>"),
            policy("").replace(b"<Owner>", f"<Owner>{other}</Owner><Owner>".encode()),
            policy("<Other/>"),
            policy(
                grant("CanonicalUser", other).replace(
                    "</Grant>", "<Permission>WRITE</Permission></Grant>"
                )
            ),
            policy(grant("CanonicalUser", other).replace("</Grant>", "<Condition/></Grant>")),
            policy(grant("CanonicalUser", other + f"<ID>{ANN}</ID>")),
        ):
            self.assertCode("MalformedACLError", readList, body, "ann", Directory())
        self.assertCode("AccessDenied", readList, policy("", BOB), "ann", Directory())
        unknown = policy(grant("CanonicalUser", f"<ID>{'0' * 64}</ID>"))
        self.assertCode("InvalidArgument", readList, unknown, "ann", Directory())

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
