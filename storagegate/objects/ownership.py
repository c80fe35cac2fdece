"""The owner of a new object, which a write carries from its check to its commit."""

from typing import TYPE_CHECKING

from msgspec import Struct

from storagegate.storage.records import Bucket

if TYPE_CHECKING:
    from storagegate.objects.access.acl import AccessControlList, RequestedList
    from storagegate.objects.access.context import Caller


class Ownership(Struct, frozen=True):
    """
    The owner and ACL of a new object.

    @ivar account: The owner.
    @ivar acl: The ACL that the request names; L{None} for the private ACL.
    @ivar home: The bucket in which access was decided; L{None} if the commit verifies C{revision}.
    @ivar caller: The writer, if access was decided from a cached bucket that may be stale.
    @ivar revision: The revision of the cached bucket, which the commit verifies.
    @ivar requested: The ACL as the request names it, for another decision.
    """

    account: str
    acl: "AccessControlList | None" = None
    home: Bucket | None = None
    caller: "Caller | None" = None
    revision: int | None = None
    requested: "RequestedList | None" = None

    @property
    def text(self) -> str:
        """The ACL in its stored form."""
        if self.acl is None:
            return ""
        from storagegate.objects.access.acl import encodeList

        return encodeList(self.acl, self.account) or ""
