"""
ACLs in headers of requests and in form fields: a canned ACL, or the grantees of each permission::

    x-amz-acl        = name                       such as public-read
    x-amz-grant-read = grantee *("," grantee)
    grantee          = ("id" / "uri" / "emailAddress") "=" ['"'] value ['"']
"""

from collections.abc import Callable, Mapping

from attrs import frozen

from storagegate.objects.access.acl import (
    GRANT_LIMIT,
    AccessControlList,
    AccountDirectory,
    Grant,
    GranteeReader,
    cannedList,
)
from storagegate.s3.attributes import GRANT_HEADERS, LIST_FIELDS
from storagegate.s3.errors import S3Error, invalidArgument


@frozen
class HeaderList:
    """
    The ACL that headers name, which are parsed when the owner is known.

    @ivar headers: Values by lower-case name; at least one is of L{LIST_FIELDS}.
    @ivar directory: The accounts that grants can name.
    """

    headers: Mapping[bytes, bytes]
    directory: AccountDirectory

    @property
    def canned(self) -> str | None:
        """The name of the canned ACL; L{None} for another form."""
        name = self.headers.get(b"x-amz-acl")
        return None if name is None else name.strip().decode("latin-1")

    def ownedBy(self, owner: str, bucketOwner: str | None = None) -> AccessControlList:
        """
        Parse the ACL.

        @param owner: The account that owns, or will own, the bucket or the object.
        @param bucketOwner: See L{cannedList}.
        @raise S3Error: C{InvalidRequest} if both forms are present; also the errors of each form.
        """
        grants = [
            (permission, name, self.headers[name])
            for name, permission in GRANT_HEADERS.items()
            if name in self.headers
        ]
        if self.canned is not None:
            if grants:
                raise S3Error(
                    "InvalidRequest", "Specifying both Canned ACLs and Header Grants is not allowed"
                )
            return cannedList(self.canned, owner, bucketOwner)
        reader = GranteeReader(self.directory)
        found = [
            Grant(grantee, permission)
            for permission, name, value in grants
            for grantee in _readGrantees(reader, name, value)
        ]
        if len(found) > GRANT_LIMIT:
            raise invalidArgument("x-amz-grant", str(len(found)), "The request has too many grants")
        return AccessControlList(tuple(dict.fromkeys(found)))


def listIn(headers: Mapping[bytes, bytes], directory: AccountDirectory) -> HeaderList | None:
    """
    Return the ACL that headers name; L{None} for no ACL.

    @param headers: Values by lower-case name.
    @param directory: The accounts that grants can name.
    """
    return None if LIST_FIELDS.isdisjoint(headers) else HeaderList(headers, directory)


def _readGrantees(reader: GranteeReader, name: bytes, value: bytes) -> list[str]:
    """Parse the grantees of a header; raise C{InvalidArgument} if it is malformed."""
    kinds: Mapping[str, Callable[[str], str]] = {
        "id": reader.account,
        "uri": reader.group,
        "emailaddress": reader.email,
    }
    found = []
    for each in value.decode("utf-8", "replace").split(","):
        kind, equals, text = each.strip().partition("=")
        read = kinds.get(kind.strip().lower())
        if read is None or not equals:
            raise invalidArgument(
                name.decode("latin-1"),
                value.decode("utf-8", "replace"),
                "Argument format not recognized",
            )
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = text[1:-1]
        found.append(read(text))
    return found
