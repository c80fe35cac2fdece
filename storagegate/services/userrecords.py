"""Users as values, and what keeps them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Interface

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

EDITABLE = ("name", "email", "phone", "address", "roles")
"""What an update can change, and what its watchers are told of, in this order."""


class NoSuchUser(Exception):
    """There is no user of that id."""


class EmailTaken(Exception):
    """Another user has that email address."""


class DatabaseError(Exception):
    """
    The database cannot be used.

    Its name is what makes C{UNAVAILABLE} of it (L{storagegate.core.errors}); its text is for the
    log of whoever answers the call.
    """


class UserFileError(DatabaseError):
    """The file cannot keep users; the text says why in one line."""


@frozen
class User:
    """
    A user.

    @ivar id: 32 hexadecimal digits.
    @ivar phone: Empty for none.
    @ivar address: Its parts that are known, by their names.
    @ivar createdUs: In microseconds since 1970.
    """

    id: str
    name: str
    email: str
    phone: str
    address: Mapping[str, str]
    roles: tuple[str, ...]
    createdUs: int
    updatedUs: int

    def asDict(self) -> dict[str, Any]:
        """Write it for a caller; what it does not have is left out, but for the roles."""
        written: dict[str, Any] = {"id": self.id, "name": self.name, "email": self.email}
        if self.phone:
            written["phone"] = self.phone
        if self.address:
            written["address"] = dict(self.address)
        written["roles"] = list(self.roles)
        written["createdAt"] = isoTime(self.createdUs)
        written["updatedAt"] = isoTime(self.updatedUs)
        return written


@frozen
class Order:
    """
    How users are sorted; those that are equal by it, by id.

    @ivar by: One of L{SORTABLE}.
    """

    by: str = "createdUs"
    descending: bool = False


SORTABLE: Mapping[str, str] = {
    "id": "id",
    "name": "name",
    "email": "email",
    "createdAt": "createdUs",
    "created_at": "createdUs",
    "updatedAt": "updatedUs",
    "updated_at": "updatedUs",
}
"""The attribute for each name of an order, as a handler or the proto writes it."""

SEARCHABLE = ("name", "email", "phone", "roles")
"""Where a search can look."""


class IUserStore(Interface):
    """
    Keeps users. Every Deferred may fail with L{DatabaseError}, or with C{UNAVAILABLE} if somebody
    else holds the database, too many calls wait for it, or the store was closed.

    A change that was asked for is made or refused whether or not its Deferred is cancelled.
    """

    def get(id: str) -> Deferred[User | None]:
        """Give the user of an id."""

    def add(users: Sequence[User]) -> Deferred[list[bool]]:
        """
        Add users in one step, all but those whose email address is taken.

        @return: For each whether it was added.
        """

    def update(id: str, changes: Mapping[str, Any], nowUs: int) -> Deferred[tuple[User, User]]:
        """
        Change attributes of a user; if none of them differs, nothing happens.

        @return: The user before and after.
        @raise NoSuchUser: As a failure.
        @raise EmailTaken: As a failure.
        """

    def remove(id: str) -> Deferred[bool]:
        """Remove a user; say whether there was one."""

    def page(order: Order, limit: int, offset: int) -> Deferred[list[User]]:
        """List users from an offset."""

    def pageAfter(order: Order, limit: int, last: User) -> Deferred[list[User]]:
        """List the users that come after one, which need not be there any more."""

    def search(
        fields: Sequence[str], query: str, after: int, limit: int
    ) -> Deferred[tuple[list[User], int | None]]:
        """
        Look for users with a text in one of some fields, without regard to case, in the order in
        which they were added.

        @param fields: Some of L{SEARCHABLE}.
        @param after: Where to go on, 0 to begin.
        @return: Some of them, or none yet, and where to go on: C{None} at the end.
        """

    def close() -> Deferred[None]:
        """Let go of everything when what was asked for is done."""


class Moments:
    """
    The time, never twice the same: so that users that were made one after the other are listed one
    after the other.

    @param now: Gives seconds since 1970.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = 0

    def __call__(self) -> int:
        """Give microseconds since 1970."""
        self._last = max(int(self._now() * 1_000_000), self._last + 1)
        return self._last


def isoTime(us: int) -> str:
    """Write microseconds since 1970 as RFC 3339 does."""
    written = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    return written.removesuffix("+00:00") + "Z"
