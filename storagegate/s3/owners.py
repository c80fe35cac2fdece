"""How an account looks to S3's clients: a canonical id and a display name."""

from functools import lru_cache
from hashlib import sha256

from attrs import frozen

from storagegate.s3.xmlwriter import element


@frozen
class Owner:
    """
    An account as the wire shows it.

    @ivar id: 64 hexadecimal digits that never change for an account.
    @ivar displayName: The account's name.
    """

    id: str
    displayName: str


# The accounts of one page are few; 256 keep an answer from being formatted row by row.
@lru_cache(maxsize=256)
def ownerOf(account: str) -> Owner:
    """Show an account. The id follows from the name, so that every store gives the same one."""
    return Owner(sha256(b"storagegate account " + account.encode()).hexdigest(), account)


@lru_cache(maxsize=256)
def ownerElement(name: str, account: str) -> str:
    """Write an account as an C{Owner}, C{Initiator} or C{Grantee} element."""
    owner = ownerOf(account)
    return f"<{name}>{element('ID', owner.id)}{element('DisplayName', owner.displayName)}</{name}>"
