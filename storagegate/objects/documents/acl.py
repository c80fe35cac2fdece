"""AccessControlPolicy: an ACL with its owner."""

from collections.abc import Callable, Mapping

from storagegate.objects.access.acl import (
    GRANT_LIMIT,
    GROUPS,
    PERMISSIONS,
    AccessControlList,
    AccountDirectory,
    Grant,
    GranteeReader,
)
from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.errors import AccessDenied, MalformedDocument, MalformedList
from storagegate.objects.principals import canonicalId

_GRANTEE = ("ID", "URI", "EmailAddress", "DisplayName")


def readList(document: Document, owner: str, directory: AccountDirectory) -> AccessControlList:
    """
    Read an ACL.

    @param owner: The account that owns the bucket or the object, which the document must name.
    @param directory: The accounts that grants can name.
    @raise MalformedList: The document has another form.
    @raise AccessDenied: The document names another owner.
    @raise DomainError: A grantee does not exist.
    """
    try:
        parts = document.byName(("Owner", "AccessControlList"))
        rows = parts["AccessControlList"]
        rows.check(("Grant",))
    except (MalformedDocument, KeyError):
        raise MalformedList() from None
    ids = parts["Owner"].all("ID") if "Owner" in parts else []
    if not ids or len(rows.members) > GRANT_LIMIT:
        raise MalformedList()
    if ids[0].text.strip() != canonicalId(owner):
        raise AccessDenied()
    reader = GranteeReader(directory)
    return AccessControlList(tuple(dict.fromkeys(_grant(row, reader) for row in rows.members)))


def _grant(row: Document, reader: GranteeReader) -> Grant:
    forms: Mapping[str, tuple[str, Callable[[str], str]]] = {
        "CanonicalUser": ("ID", reader.account),
        "Group": ("URI", reader.group),
        "AmazonCustomerByEmail": ("EmailAddress", reader.email),
    }
    try:
        parts = row.byName(("Grantee", "Permission"))
        permission, grantee = parts["Permission"].text.strip(), parts["Grantee"]
        name, find = forms[grantee.kind]
        text = grantee.byName(_GRANTEE)[name].text
    except (MalformedDocument, KeyError):
        raise MalformedList() from None
    if permission not in PERMISSIONS:
        raise MalformedList()
    return Grant(find(text.strip()), permission)


def writeList(
    account: str, acl: AccessControlList, nameOf: Callable[[str], str | None]
) -> Document:
    """
    Write an ACL.

    @param account: The owner's account.
    @param nameOf: Returns the name of an account by its canonical id, or L{None}.
    """
    names = {canonicalId(account): account}
    grants = []
    for grant in acl.grants:
        if grant.grantee in GROUPS:
            kind, members = "Group", pairs(URI=grant.grantee)
        else:
            name = names.get(grant.grantee) or nameOf(grant.grantee) or None
            kind, members = "CanonicalUser", pairs(ID=grant.grantee, DisplayName=name)
        grantee = Document("Grantee", members=members, kind=kind)
        grants.append(group("Grant", (grantee, *pairs(Permission=grant.permission)), isList=True))
    owner = group("Owner", pairs(ID=canonicalId(account), DisplayName=account))
    return group("AccessControlPolicy", (owner, group("AccessControlList", grants)))
