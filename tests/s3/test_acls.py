"""ACLs in headers and in documents."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import ALL_USERS, FULL_CONTROL, GRANT_LIMIT, Grant
from storagegate.objects.accounts import canonicalId
from storagegate.s3.acls import HeaderList, listIn
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import readList

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


class ListTests(SynchronousTestCase):
    """The two forms of a list that names its grants."""

    def assertCode(self, code: str, function: Callable[..., Any], *args: object) -> None:
        """Check the code of the error that a call raises."""
        self.assertEqual(refusalOf(function, *args).code, code)

    def test_headers(self) -> None:
        """Grantees by id, group and address, several in a header, with and without quotes."""
        headers = {
            b"x-amz-grant-read": f'id="{BOB}", uri="{ALL_USERS}"'.encode(),
            b"x-amz-grant-write-acp": b"emailAddress=Bob@X.org",
            b"x-amz-grant-full-control": f"id={ANN}".encode(),
        }
        named = listIn(headers, Directory())
        assert named is not None
        found = named.ownedBy("ann")
        self.assertEqual(
            set(found.grants),
            {
                Grant(BOB, "READ"),
                Grant(ALL_USERS, "READ"),
                Grant(BOB, "WRITE_ACP"),
                Grant(ANN, FULL_CONTROL),
            },
        )
        self.assertIsNone(listIn({b"x-amz-meta-a": b"b"}, Directory()))

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
            self.assertCode(
                code, HeaderList({b"x-amz-grant-read": value}, Directory()).ownedBy, "ann"
            )
        both = {b"x-amz-acl": b"private", b"x-amz-grant-read": f"id={BOB}".encode()}
        self.assertCode("InvalidRequest", HeaderList(both, Directory()).ownedBy, "ann")

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
