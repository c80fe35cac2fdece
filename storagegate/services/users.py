"""
The reference UserService, in the gateway's form: C{handler(request, context)}::

    definition = makeUserService(SQLiteUserStore("data/users.sqlite", reactor))

Requests and results are dictionaries with camelCase names. A request is validated here and not by
schemas: what is wrong with one is C{INVALID_ARGUMENT} on every wire, with the same details.

Requests, read field by field: what is wrong with one is gathered, and told at once.

C{None} is as if it were not there.

What requests to the UserService may say.

Every function raises C{INVALID_ARGUMENT} whose details list all that is wrong with a request, each
a C{path} and a C{message}. C{None} is as if it were not there, and what nobody knows is ignored.

The streams of the UserService that the table of users knows nothing of: chats, uploads and data.
"""

import re
import time
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from secrets import token_hex
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.options import parseDecimal
from storagegate.core.streams import BoundedStream, Bus, PubSub
from storagegate.services.usertable import (
    EDITABLE,
    SEARCHABLE,
    SORTABLE,
    EmailTaken,
    IUserStore,
    MonotonicTimestamps,
    NoSuchUser,
    Order,
    User,
    isEmail,
    isoTime,
)

LARGEST = (1 << 31) - 1
"""Numbers are C{int32} in the proto."""

# No more than nine digits after the point are a Timestamp's.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ID = re.compile(r"[0-9a-fA-F]{32}")
_UNPRINTABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))


def invalid(path: str, message: str) -> ServiceError:
    """Make the error of one mistake."""
    return _refusal([{"path": path, "message": message}])


class Reading:
    """One request, and what is wrong with it so far."""

    def __init__(self, request: Any) -> None:
        if not isinstance(request, Mapping):
            raise invalid("", "is an object")
        self._request = request
        self._violations: list[dict[str, str]] = []

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Any:
        """Give a value as it is."""
        return self._request.get(name)

    def wrong(self, path: str, message: str) -> None:
        """Take note of a mistake."""
        self._violations.append({"path": path, "message": message})

    def end(self) -> None:
        """Refuse the request if there was any."""
        if self._violations:
            raise _refusal(self._violations)

    def id(self, name: str) -> str:
        """Read the id of a user."""
        value = self.get(name)
        if isinstance(value, str) and _ID.fullmatch(value):
            return value.lower()
        self.wrong(name, "is required" if value in (None, "") else "is not 32 hexadecimal digits")
        return ""

    def text(self, name: str, maximum: int, required: bool = False) -> str | None:
        """Read text, C{None} where there is none; blank is not enough where it is required."""
        return self._checked(name, self.get(name), maximum, required, _hasSurrogate)

    def line(self, name: str, maximum: int, required: bool = False) -> str | None:
        """Read text without control characters, else as L{text}."""
        return self._checked(name, self.get(name), maximum, required, _hasControl)

    def lineAt(self, path: str, value: Any, maximum: int, required: bool = False) -> str | None:
        """Read a value that lies deeper as L{line} does."""
        return self._checked(path, value, maximum, required, _hasControl)

    def time(self, name: str) -> str | None:
        """Read a time of RFC 3339, as it is written."""
        value = self.get(name)
        if value in (None, ""):
            return None
        try:
            if isinstance(value, str) and _TIME.fullmatch(value) and datetime.fromisoformat(value):
                return value
        except ValueError:
            pass
        self.wrong(name, "is no time of RFC 3339")
        return None

    def number(self, name: str) -> int:
        """Read a number from 0 on; 0 where there is none."""
        value = self.get(name)
        # A query string's numbers are text.
        if isinstance(value, str):
            try:
                return parseDecimal(value, LARGEST)
            except ValueError:
                value = None
        elif value is None:
            return 0
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            self.wrong(name, f"is a whole number from 0 to {LARGEST}")
            return 0
        return value

    def choice(
        self, name: str, choices: Sequence[str], default: str, ignoreCase: bool = False
    ) -> str:
        """Read one of some words."""
        value = self.get(name)
        value = default if value in (None, "") else value
        if ignoreCase and isinstance(value, str):
            value = value.lower()
        if value not in choices:
            self.wrong(name, f"is one of {', '.join(choices)}")
            return default
        return str(value)

    def _checked(
        self, path: str, value: Any, maximum: int, required: bool, isBad: Callable[[str], bool]
    ) -> str | None:
        if required and (value in (None, "") or (isinstance(value, str) and value.isspace())):
            self.wrong(path, "is required")
        elif value is None:
            return None
        elif not isinstance(value, str):
            self.wrong(path, "is text")
        elif len(value) > maximum:
            self.wrong(path, f"has at most {maximum} characters")
        elif isBad(value):
            self.wrong(path, "has characters that are no text")
        else:
            return value
        return None


def _refusal(violations: list[dict[str, str]]) -> ServiceError:
    said = "; ".join(f"{each['path'] or 'the request'} {each['message']}" for each in violations)
    return codedError("INVALID_ARGUMENT", said, violations)


def _hasSurrogate(text: str) -> bool:
    # Not to be written as UTF-8.
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _hasControl(text: str) -> bool:
    if text.isprintable():
        return False
    return any(unicodedata.category(letter) in _UNPRINTABLE for letter in text)


ADDRESS = ("street", "city", "state", "zipCode", "country")
"""The parts of an address."""

LINE = 200
"""Characters of a name or a part of an address; no passport has room for so many."""

PHONE = 40
"""Fifteen digits at most (ITU-T E.164), with whatever people put between and after them."""

ROLES = 32
ROLE = 64
"""Roles of a user, and characters of one: a user travels in many messages."""

MESSAGE = 4_000
"""Characters that somebody says at a time."""

_DEFAULT_LIMIT = 10


@frozen
class UserListing:
    """Which users to list, and how."""

    order: Order
    limit: int
    offset: int


@frozen
class Search:
    """What to look for, and where."""

    query: str
    fields: tuple[str, ...]
    limit: int


def readId(request: Any, name: str = "id") -> str:
    """Read the id of a user, in lower case."""
    reading = Reading(request)
    id = reading.id(name)
    reading.end()
    return id


def readNewUser(request: Any) -> dict[str, Any]:
    """Read the attributes of a user to create."""
    reading = Reading(request)
    read = {
        "name": reading.line("name", LINE, required=True) or "",
        "email": _email(reading, required=True) or "",
        "phone": reading.line("phone", PHONE) or "",
        "address": _address(reading) or {},
        "roles": _roles(reading),
    }
    reading.end()
    return read


def readChanges(request: Any) -> tuple[str, dict[str, Any]]:
    """
    Read the id of a user, and the attributes to change: those that are there.

    An empty phone or address takes it away; empty roles change nothing, for on gRPC they cannot be
    told from absent ones.
    """
    reading = Reading(request)
    id = reading.id("id")
    read = {
        "name": reading.line("name", LINE, required="name" in reading),
        "email": _email(reading, required="email" in reading),
        "phone": reading.line("phone", PHONE),
        "address": _address(reading),
        "roles": _roles(reading) or None,
    }
    reading.end()
    return id, {name: value for name, value in read.items() if value is not None}


def readListing(request: Any) -> UserListing:
    """Read which page of users to begin with, and their order."""
    reading = Reading(request)
    page = reading.number("page") or 1
    limit = reading.number("limit") or _DEFAULT_LIMIT
    by = reading.choice("sortBy", tuple(SORTABLE), "created_at")
    direction = reading.choice("sortOrder", ("asc", "desc"), "asc", ignoreCase=True)
    reading.end()
    return UserListing(Order(SORTABLE[by], direction == "desc"), limit, (page - 1) * limit)


def readSearch(request: Any) -> Search:
    """Read what to search for."""
    reading = Reading(request)
    query = reading.line("query", LINE, required=True) or ""
    limit = reading.number("limit") or _DEFAULT_LIMIT
    fields = reading.get("fields") or ("name", "email")
    # A query string with one of them has no list.
    fields = (fields,) if isinstance(fields, str) else fields
    if not isinstance(fields, Sequence):
        reading.wrong("fields", "is a list of names of fields")
        fields = ()
    for at, field in enumerate(fields):
        if field not in SEARCHABLE:
            reading.wrong(f"fields[{at}]", f"is one of {', '.join(SEARCHABLE)}")
            break
    reading.end()
    return Search(query, tuple(dict.fromkeys(fields)), limit)


def readMessage(request: Any) -> dict[str, str]:
    """Read who says what in a chat, and when, if that is said."""
    reading = Reading(request)
    read = {
        "userId": reading.line("userId", ROLE, required=True),
        "message": reading.text("message", MESSAGE, required=True),
        "timestamp": reading.time("timestamp"),
    }
    reading.end()
    return {name: value for name, value in read.items() if value}


def readRecords(request: Any, maximum: int) -> Sequence[Any]:
    """Read a chunk of records, whatever they are."""
    reading = Reading(request)
    records: Any = reading.get("records")
    if not isinstance(records, list | tuple):
        reading.wrong("records", "is a list of records")
    elif len(records) > maximum:
        reading.wrong("records", f"has at most {maximum} records; send more chunks")
    reading.end()
    return records  # type: ignore[no-any-return]


def _email(reading: Reading, required: bool) -> str | None:
    value = reading.get("email")
    if isEmail(value):
        return str(value)
    if value not in (None, ""):
        reading.wrong("email", "is no email address")
    elif required:
        reading.wrong("email", "is required")
    return None


def _address(reading: Reading) -> dict[str, str] | None:
    """Read an address: of its parts those that are not empty."""
    value = reading.get("address")
    if value is None:
        return None
    if not isinstance(value, Mapping):
        reading.wrong("address", "is an object")
        return None
    read = {part: reading.lineAt(f"address.{part}", value.get(part), LINE) for part in ADDRESS}
    return {part: text for part, text in read.items() if text}


def _roles(reading: Reading) -> tuple[str, ...]:
    """Read a list of roles; empty where there is none."""
    value = reading.get("roles")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        reading.wrong("roles", "is a list of roles")
        return ()
    if len(value) > ROLES:
        reading.wrong("roles", f"has at most {ROLES} roles")
        return ()
    read = (reading.lineAt(f"roles[{at}]", role, ROLE, True) for at, role in enumerate(value))
    return tuple(role or "" for role in read)


SYSTEM = "system"
"""Who says the welcome; nobody else may take the name."""

WELCOME = "Welcome to the chat"

_RECORDS = 10_000
"""Records of a chunk: they are looked at in one go, in some hundredths of a second."""

# The one topic there is.
_ROOM = "room"


class Chats:
    """
    One room for both chats: what anybody says in one of them, everybody hears.

    Calls of all processes on one bus are in it. A call that ends its requests leaves when it has
    been given what was said until then; one that does not read is ended (L{BoundedStream}), and
    one that
    says much is read from as fast as it reads itself.
    """

    def __init__(
        self, moments: MonotonicTimestamps, newId: Callable[[], str], bus: Bus | None = None
    ) -> None:
        self._moments = moments
        self._newId = newId
        self._topics = PubSub(bus, "users.chats")

    def __len__(self) -> int:
        return len(self._topics)

    async def chatWithUsers(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Relay messages; those that name a time keep it."""
        with self._joined(requests, keepTime=True) as box:
            while (said := await box.get()) is not None:
                yield {name: said[name] for name in ("userId", "message", "timestamp")}

    async def chat(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Say welcome, then relay messages, each with an id."""
        with self._joined(requests, keepTime=False) as box:
            yield self._said({"userId": SYSTEM, "message": WELCOME})
            while (said := await box.get()) is not None:
                yield said

    @contextmanager
    def _joined(self, requests: AsyncIterable[Any], keepTime: bool) -> Iterator[BoundedStream]:
        """Be in the room: what the requests say is heard there until the end."""
        box = self._topics.join(_ROOM)
        listening = Deferred.fromCoroutine(self._listen(requests, keepTime, box))
        listening.addCallbacks(box.end, lambda failure: box.end(failure.value))
        try:
            yield box
        finally:
            self._topics.leave(_ROOM, box)
            listening.cancel()

    async def _listen(
        self, requests: AsyncIterable[Any], keepTime: bool, box: BoundedStream
    ) -> None:
        async for request in requests:
            message = readMessage(request)
            if message["userId"].lower() == SYSTEM:
                raise invalid("userId", "is a name that nobody can have")
            if not keepTime:
                message.pop("timestamp", None)
            self._topics.tell(_ROOM, (self._said(message),))
            await box.untilRead()
            # Who hears itself may leave for it, before there is anything to cancel.
            if box.isOver:
                return

    def _said(self, message: Mapping[str, str]) -> dict[str, str]:
        return {"timestamp": isoTime(self._moments()), "id": self._newId(), **message}


async def uploadUserData(requests: AsyncIterable[Any], context: Any) -> dict[str, Any]:
    """
    Count records, and those among them that have no valid email.

    The records are checked, not kept: they have no ids, and only C{CreateMultipleUsers} says what
    becomes of each.
    """
    total = errors = 0
    async for request in requests:
        records = readRecords(request, _RECORDS)
        total += len(records)
        errors += sum(not _isRecord(record) for record in records)
    processed = total - errors
    return {
        "totalRecords": total,
        "processedRecords": processed,
        "errorCount": errors,
        "successRate": processed / total if total else 0.0,
    }


async def streamData(requests: AsyncIterable[Any], context: Any) -> AsyncIterator[dict[str, Any]]:
    """
    Give back each input without its empty values, if anything is left of it; then a summary.

    An item is C{{"type": "result", "index", "data"}} with the number of the input from 0 on, the
    summary C{{"type": "summary", "total", "processed", "skipped"}}.
    """
    total = processed = 0
    async for request in requests:
        if not isinstance(request, Mapping):
            raise invalid("", "is an object")
        data = {name: value for name, value in request.items() if not _isEmpty(value)}
        if data:
            processed += 1
            yield {"type": "result", "index": total, "data": data}
        total += 1
    yield {"type": "summary", "total": total, "processed": processed, "skipped": total - processed}


def _isRecord(record: Any) -> bool:
    return isinstance(record, Mapping) and isEmail(record.get("email"))


def _isEmpty(value: Any) -> bool:
    # A number is a value, 0 as well.
    return value is None or (isinstance(value, str | bytes | list | tuple | Mapping) and not value)


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
    moments = MonotonicTimestamps(now)
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
        self,
        store: IUserStore,
        moments: MonotonicTimestamps,
        newId: Callable[[], str],
        bus: Bus | None,
    ) -> None:
        self._store = store
        self._moments = moments
        self._newId = newId
        self._watchers = PubSub(bus, "users.updates")

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
