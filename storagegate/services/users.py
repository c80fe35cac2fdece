"""
The reference UserService, in the gateway's form: C{handler(request, context)}::

    definition = makeUserService(SQLiteUserStore("data/users.sqlite", reactor))

Requests and results are dictionaries with camelCase names. A request is validated here and not by
schemas: what is wrong with one is C{INVALID_ARGUMENT} on every wire, with the same details.
"""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from secrets import token_hex
from typing import Any

from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError, codedError
from storagegate.services.mailboxes import Bus, Topics
from storagegate.services.userrecords import (
    EDITABLE,
    EmailTaken,
    IUserStore,
    Moments,
    NoSuchUser,
    User,
    isoTime,
)
from storagegate.services.userstreams import Chats, streamData, uploadUserData
from storagegate.services.uservalidation import (
    readChanges,
    readId,
    readListing,
    readNewUser,
    readSearch,
)

_READ_AT_ONCE = 100
"""Users that are read in one go and wait for a slow reader: a megabyte at the very most."""

_CREATED_AT_ONCE = 10_000
_CHARACTERS_AT_ONCE = 4 * 1024 * 1024
"""Users of one C{CreateMultipleUsers}, and what they may be in all: its response holds them again,
and no message is larger."""

_NOT_FOUND = "There is no such user"
_TAKEN = "A user with the same email exists"


def newUserId() -> str:
    """Make an id that nobody can guess."""
    return token_hex(16)


def makeUserService(
    store: IUserStore,
    now: Callable[[], float] = time.time,
    newId: Callable[[], str] = newUserId,
    bus: Bus | None = None,
) -> ServiceDefinition:
    """
    Make the service.

    @param store: Who made it closes it.
    @param now: Gives seconds since 1970.
    @param newId: Gives 32 hexadecimal digits, others every time.
    @param bus: What brings chats and updates to other processes that serve the same users; C{None}
        for this process alone.
    """
    moments = Moments(now)
    users, chats = _Users(store, moments, newId, bus), Chats(moments, newId, bus)
    methods = {
        "GetUser": ServiceMethod(users.getUser),
        "CreateUser": ServiceMethod(users.createUser),
        "UpdateUser": ServiceMethod(users.updateUser),
        "DeleteUser": ServiceMethod(users.deleteUser),
        "ListUsers": ServiceMethod(users.listUsers, "server"),
        "SearchUsers": ServiceMethod(users.searchUsers, "server"),
        "CreateMultipleUsers": ServiceMethod(users.createMultipleUsers, "client"),
        "ChatWithUsers": ServiceMethod(chats.chatWithUsers, "bidirectional"),
        "StreamUserUpdates": ServiceMethod(users.streamUserUpdates, "server"),
        "UploadUserData": ServiceMethod(uploadUserData, "client"),
        "Chat": ServiceMethod(chats.chat, "bidirectional"),
        "StreamData": ServiceMethod(streamData, "bidirectional"),
    }
    return ServiceDefinition("UserService", methods)


class _Users:
    """The methods that need the store."""

    def __init__(
        self, store: IUserStore, moments: Moments, newId: Callable[[], str], bus: Bus | None
    ) -> None:
        self._store = store
        self._moments = moments
        self._newId = newId
        self._watchers = Topics(bus, "users.updates")

    async def getUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Give a user."""
        user = await self._store.get(readId(request))
        if user is None:
            raise _notFound()
        return user.asDict()

    async def createUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Create a user."""
        user = self._newUser(request)
        if not all(await self._store.add((user,))):
            raise codedError("ALREADY_EXISTS", _TAKEN)
        return user.asDict()

    async def updateUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Change what the request has, and tell those who watch the user."""
        id, changes = readChanges(request)
        try:
            before, after = await self._store.update(id, changes, self._moments())
        except NoSuchUser:
            raise _notFound() from None
        except EmailTaken:
            raise codedError("ALREADY_EXISTS", _TAKEN) from None
        self._watchers.tell(id, _differences(before, after))
        return after.asDict()

    async def deleteUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Delete a user; whoever watches it hears no more."""
        id = readId(request)
        if not await self._store.remove(id):
            raise _notFound()
        self._watchers.close(id)
        return {"success": True}

    async def listUsers(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """
        Give all users from a page on.

        Each batch goes on behind the last user of the one before: users that come and go meanwhile
        make nobody else appear twice or not at all.
        """
        listing = readListing(request)
        order, limit = listing.order, min(listing.limit, _READ_AT_ONCE)
        users = await self._store.page(order, limit, listing.offset)
        while users:
            for user in users:
                yield user.asDict()
            if len(users) < limit:
                return
            users = await self._store.pageAfter(order, limit, users[-1])

    async def searchUsers(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """Give users that have a text in one of some fields, the oldest first."""
        search = readSearch(request)
        left = search.limit
        after: int | None = 0
        while left and after is not None:
            limit = min(left, _READ_AT_ONCE)
            users, after = await self._store.search(search.fields, search.query, after, limit)
            for user in users:
                yield user.asDict()
            left -= len(users)

    async def createMultipleUsers(
        self, requests: AsyncIterable[Any], context: Any
    ) -> dict[str, Any]:
        """
        Create users, all in one step when the last request has come, and say which could not be.

        A call that is cut before its end, or that asks for too much, creates nobody.
        """
        asked: list[tuple[Any, User | None, str]] = []
        characters = 0
        async for request in requests:
            characters += len(repr(request))
            if len(asked) == _CREATED_AT_ONCE or characters > _CHARACTERS_AT_ONCE:
                raise codedError("PAYLOAD_TOO_LARGE", "These are too many users for one call")
            try:
                asked.append((request, self._newUser(request), _TAKEN))
            except ServiceError as error:
                asked.append((request, None, error.message))
        users = [user for _, user, _ in asked if user is not None]
        added = iter(await self._store.add(users)) if users else iter(())
        created: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for request, user, reason in asked:
            if user is not None and next(added):
                created.append(user.asDict())
            else:
                errors.append({"request": request, "error": reason})
        result = {"count": len(created), "users": created}
        return {**result, "errors": errors} if errors else result

    async def streamUserUpdates(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """
        Tell of each field of a user that changes from now on, until the user is deleted.

        What two processes change at one time is told in either order; each item has its time.
        """
        id = readId(request, "userId")
        # First of all, so that nothing is missed while the store looks.
        box = self._watchers.join(id)
        try:
            if await self._store.get(id) is None:
                raise _notFound()
            while (change := await box.get()) is not None:
                yield change
        finally:
            self._watchers.leave(id, box)

    def _newUser(self, request: Any) -> User:
        read, us = readNewUser(request), self._moments()
        return User(id=self._newId(), createdUs=us, updatedUs=us, **read)


def _differences(before: User, after: User) -> list[dict[str, Any]]:
    """List what an update has changed; C{None} stands for what is not there."""
    old, new = before.asDict(), after.asDict()
    return [
        {
            "userId": after.id,
            "field": name,
            "oldValue": old.get(name),
            "newValue": new.get(name),
            "timestamp": isoTime(after.updatedUs),
        }
        for name in EDITABLE
        if old.get(name) != new.get(name)
    ]


def _notFound() -> ServiceError:
    return codedError("NOT_FOUND", _NOT_FOUND)
