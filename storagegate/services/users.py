"""
The reference UserService, in the gateway's form: C{handler(request, context)}::

    definition = makeUserService(SQLiteUserStore("data/users.sqlite", reactor))

Requests and results are dictionaries with camelCase names. This module validates requests instead
of JSON Schema: an invalid request is C{INVALID_ARGUMENT} on every transport, and its details list
every invalid field, each with its C{path} and a C{message}. C{None} is the same as an absent field;
unknown fields are ignored.
"""

import re
import time
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.definitions import MessageSchemas, ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.options import parseDecimal
from storagegate.core.streams import BoundedStream, Bus, PubSub
from storagegate.services.usertable import (
    ADDRESS,
    CHUNK_RECORDS,
    EDITABLE,
    EMAIL_TAKEN,
    LARGEST,
    LINE,
    MESSAGE,
    NOT_FOUND,
    PHONE,
    ROLE,
    ROLES,
    SEARCHABLE,
    SORTABLE,
    MonotonicTimestamps,
    Order,
    SQLiteUserStore,
    User,
    UserTable,
    isEmail,
    isoTime,
)

SYSTEM = "system"
"""The user id of the welcome message; clients cannot use it."""

WELCOME = "Welcome to the chat"

_DEFAULT_LIMIT = 10

_BATCH_USERS = 100
"""Users that one read of the store returns and that wait for a slow client: 1 MB at most."""

_MAX_CREATED = 10_000
_MAX_CREATED_CHARACTERS = 4 * 1024 * 1024
"""
Users of one C{CreateMultipleUsers}, and the size of all its requests: the response repeats them,
and no message is larger.
"""

# A Timestamp has at most nine digits after the point.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ID = re.compile(r"[0-9a-fA-F]{32}")


# ---- Fields of requests


class FieldErrors(ValueError):
    """
    Violations below a field.

    @ivar violations: Pairs of a path below the field and a message.
    """

    def __init__(self, *violations: tuple[str, str]) -> None:
        super().__init__(*violations)
        self.violations = violations


FieldParser = Callable[[Any], Any]
"""
Returns the value of a field, which is C{None} if absent, or raises C{ValueError} with a message, or
L{FieldErrors}.
"""


def invalid(*violations: tuple[str, str]) -> ServiceError:
    """
    Make a C{INVALID_ARGUMENT} error from violations.

    @param violations: Pairs of the path of a field, empty for the request itself, and a message.
    """
    text = "; ".join(f"{path or 'the request'} {message}" for path, message in violations)
    details = [{"path": path, "message": message} for path, message in violations]
    return codedError("INVALID_ARGUMENT", text, details)


def readRequest(request: Any, schema: Mapping[str, FieldParser]) -> dict[str, Any]:
    """
    Parse the fields of a request.

    @param request: The decoded message; anything but a mapping is a violation.
    @param schema: The parser of each known field.
    @return: The value of each field of the schema.
    @raise ServiceError: C{INVALID_ARGUMENT} with all violations.
    """
    if not isinstance(request, Mapping):
        raise invalid(("", "is an object"))
    try:
        return _parseAll((name, request.get(name), parse) for name, parse in schema.items())
    except FieldErrors as error:
        raise invalid(*error.violations) from None


def _parseAll(fields: Iterable[tuple[str, Any, FieldParser]]) -> dict[str, Any]:
    """Parse values by their paths; raise one L{FieldErrors} for all invalid values."""
    parsed: dict[str, Any] = {}
    violations: list[tuple[str, str]] = []
    for path, value, parse in fields:
        try:
            parsed[path] = parse(value)
        except FieldErrors as error:
            violations += [(path + inner, message) for inner, message in error.violations]
        except ValueError as error:
            violations.append((path, str(error)))
    if violations:
        raise FieldErrors(*violations)
    return parsed


def _text(maximum: int, required: bool = False, multiline: bool = False) -> FieldParser:
    """
    Make a parser of text.

    @param maximum: The largest number of characters.
    @param required: Whether absent and blank text is an error.
    @param multiline: Whether control characters are allowed.
    """
    # Surrogates cannot be encoded as UTF-8.
    refused = {"Cs"} if multiline else {"Cc", "Cs", "Zl", "Zp"}

    def parse(value: Any) -> str | None:
        if required and (value is None or (isinstance(value, str) and not value.strip())):
            raise ValueError("is required")
        if value is None:
            return None
        if not isinstance(value, str):
            raise ValueError("is text")
        if len(value) > maximum:
            raise ValueError(f"has at most {maximum} characters")
        if not value.isprintable() and not refused.isdisjoint(map(unicodedata.category, value)):
            raise ValueError("has characters that are no text")
        return value

    return parse


_parseLine = _text(LINE)


def _optional(parse: FieldParser) -> FieldParser:
    return lambda value: None if value is None else parse(value)


def _choice(choices: Iterable[str], default: str, ignoreCase: bool = False) -> FieldParser:
    words = tuple(choices)

    def parse(value: Any) -> str:
        value = default if value in (None, "") else value
        if ignoreCase and isinstance(value, str):
            value = value.lower()
        if value not in words:
            raise ValueError(f"is one of {', '.join(words)}")
        return str(value)

    return parse


def _list(kind: str, maximum: int, tooMany: str, parse: FieldParser | None = None) -> FieldParser:
    """
    Make a parser of lists, which returns tuples.

    @param kind: Completes "is a list of", for errors.
    @param tooMany: The error for more than C{maximum} items.
    @param parse: Parses each item; C{None} leaves them as they are.
    """

    def parseList(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"is a list of {kind}")
        if len(value) > maximum:
            raise ValueError(tooMany)
        if parse is None:
            return tuple(value)
        items = ((f"[{index}]", item, parse) for index, item in enumerate(value))
        return tuple(_parseAll(items).values())

    return parseList


def _parseId(value: Any) -> str:
    if isinstance(value, str) and _ID.fullmatch(value):
        return value.lower()
    raise ValueError("is required" if value in (None, "") else "is not 32 hexadecimal digits")


def _parseTime(value: Any) -> str | None:
    """Validate a time of RFC 3339, and return it unchanged."""
    if value in (None, ""):
        return None
    try:
        if isinstance(value, str) and _TIME.fullmatch(value) and datetime.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise ValueError("is no time of RFC 3339")


def _parseNumber(value: Any) -> int:
    """Return a non-negative number; 0 if it is absent."""
    if value is None:
        return 0
    # Numbers in a query string are text.
    if isinstance(value, str):
        try:
            return parseDecimal(value, LARGEST)
        except ValueError:
            value = None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise ValueError(f"is a whole number from 0 to {LARGEST}")
    return value


def _parseEmail(value: Any) -> str:
    if isEmail(value):
        return str(value)
    raise ValueError("is required" if value in (None, "") else "is no email address")


def _parseAddress(value: Any) -> dict[str, str] | None:
    """Return the non-empty parts of an address."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("is an object")
    parts = _parseAll((f".{part}", value.get(part), _parseLine) for part in ADDRESS)
    return {path[1:]: text for path, text in parts.items() if text}


def _parseSearchFields(value: Any) -> tuple[str, ...]:
    fields = value or ("name", "email")
    # A query string with one field has no list.
    fields = (fields,) if isinstance(fields, str) else fields
    if not isinstance(fields, list | tuple):
        raise ValueError("is a list of names of fields")
    for index, field in enumerate(fields):
        if field not in SEARCHABLE:
            raise FieldErrors((f"[{index}]", f"is one of {', '.join(SEARCHABLE)}"))
    return tuple(dict.fromkeys(fields))


_USER_ID = {"id": _parseId}
_NEW_USER = {
    "name": _text(LINE, required=True),
    "email": _parseEmail,
    "phone": _text(PHONE),
    "address": _parseAddress,
    "roles": _optional(
        _list("roles", ROLES, f"has at most {ROLES} roles", _text(ROLE, required=True))
    ),
}
_CHANGES = _USER_ID | {name: _optional(parse) for name, parse in _NEW_USER.items()}
_LISTING = {
    "page": _parseNumber,
    "limit": _parseNumber,
    "sortBy": _choice(SORTABLE, "created_at"),
    "sortOrder": _choice(("asc", "desc"), "asc", ignoreCase=True),
}
_SEARCH = {
    "query": _text(LINE, required=True),
    "limit": _parseNumber,
    "fields": _parseSearchFields,
}
_MESSAGE = {
    "userId": _text(ROLE, required=True),
    "message": _text(MESSAGE, required=True, multiline=True),
    "timestamp": _parseTime,
}
_CHUNK = {
    "records": _list(
        "records",
        CHUNK_RECORDS,
        f"has at most {CHUNK_RECORDS} records; send more chunks",
    )
}


# ---- The service


def makeUserService(
    store: SQLiteUserStore,
    now: Callable[[], float] = time.time,
    newId: Callable[[], str] = lambda: token_hex(16),
    bus: Bus | None = None,
) -> ServiceDefinition:
    """
    Make the UserService.

    @param store: The users, in a store that the caller closes.
    @param now: Returns seconds since 1970.
    @param newId: Returns 32 unique hexadecimal digits that cannot be guessed.
    @param bus: Carries chats and updates to other processes that serve the same users; C{None}
        for this process alone.
    """
    timestamps = MonotonicTimestamps(now)
    users, chats = _Users(store, timestamps, newId, bus), Chats(timestamps, newId, bus)
    handlers: Mapping[str, tuple[Callable[..., Any], str]] = {
        "GetUser": (users.getUser, "none"),
        "CreateUser": (users.createUser, "none"),
        "UpdateUser": (users.updateUser, "none"),
        "DeleteUser": (users.deleteUser, "none"),
        "ListUsers": (users.listUsers, "server"),
        "SearchUsers": (users.searchUsers, "server"),
        "CreateMultipleUsers": (users.createMultipleUsers, "client"),
        "ChatWithUsers": (chats.chatWithUsers, "bidirectional"),
        "StreamUserUpdates": (users.streamUserUpdates, "server"),
        "UploadUserData": (uploadUserData, "client"),
        "Chat": (chats.chat, "bidirectional"),
        "StreamData": (streamData, "bidirectional"),
    }
    methods = {
        name: ServiceMethod(handler, streaming, describe=partial(_describe, name))
        for name, (handler, streaming) in handlers.items()
    }
    return ServiceDefinition("UserService", methods)


def _describe(method: str) -> MessageSchemas:
    """Return the schemas of a method."""
    # Only descriptions of the service have them.
    from storagegate.services.userschemas import SCHEMAS

    return SCHEMAS.get(method, (None, None))


class _Users:
    """The methods that use the store."""

    def __init__(
        self,
        store: SQLiteUserStore,
        timestamps: MonotonicTimestamps,
        newId: Callable[[], str],
        bus: Bus | None,
    ) -> None:
        self._store = store
        self._timestamps = timestamps
        self._newId = newId
        self._watchers = PubSub(bus, "users.updates")

    async def getUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Return a user."""
        id = readRequest(request, _USER_ID)["id"]
        user = await self._store.read(lambda table: table.get(id), context.client.id)
        if user is None:
            raise codedError(*NOT_FOUND)
        return user.asDict()

    async def createUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Create a user."""
        user = self._newUser(request)
        if not all(await self._store.write(lambda table: table.add((user,)), context.client.id)):
            raise codedError(*EMAIL_TAKEN)
        return user.asDict()

    async def updateUser(self, request: Any, context: Any) -> dict[str, Any]:
        """
        Change the fields that the request has, and notify the user's watchers.

        An empty phone or address removes it; empty roles change nothing, because gRPC does not
        distinguish empty from absent.
        """
        fields = readRequest(request, _CHANGES)
        id, now = fields.pop("id"), self._timestamps()
        fields["roles"] = fields["roles"] or None
        changes = {name: value for name, value in fields.items() if value is not None}
        before, after = await self._store.write(
            lambda table: table.update(id, changes, now), context.client.id
        )
        old, new = before.asDict(), after.asDict()
        differences = [
            {
                "userId": id,
                "field": name,
                "oldValue": old.get(name),
                "newValue": new.get(name),
                "timestamp": new["updatedAt"],
            }
            for name in EDITABLE
            if old.get(name) != new.get(name)
        ]
        self._watchers.publish(id, differences)
        return new

    async def deleteUser(self, request: Any, context: Any) -> dict[str, Any]:
        """Delete a user, and end the streams of its updates."""
        id = readRequest(request, _USER_ID)["id"]
        if not await self._store.write(lambda table: table.remove(id), context.client.id):
            raise codedError(*NOT_FOUND)
        self._watchers.close(id)
        return {"success": True}

    async def listUsers(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """
        Yield all users, starting at a page.

        Each batch continues after the last user of the previous one, so concurrent creations and
        deletions neither repeat nor skip other users.
        """
        fields = readRequest(request, _LISTING)
        order = Order(SORTABLE[fields["sortBy"]], fields["sortOrder"] == "desc")
        pageSize = fields["limit"] or _DEFAULT_LIMIT
        limit = min(pageSize, _BATCH_USERS)
        offset = ((fields["page"] or 1) - 1) * pageSize
        client = context.client.id
        users = await self._store.read(lambda table: table.page(order, limit, offset), client)
        while users:
            for user in users:
                yield user.asDict()
            if len(users) < limit:
                return
            users = await self._store.read(
                partial(UserTable.pageAfter, order=order, limit=limit, last=users[-1]), client
            )

    async def searchUsers(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield users with a text in one of the given fields, oldest first."""
        fields = readRequest(request, _SEARCH)
        left = fields["limit"] or _DEFAULT_LIMIT
        after: int | None = 0
        while left and after is not None:
            limit = min(left, _BATCH_USERS)
            search = partial(
                UserTable.search,
                fields=fields["fields"],
                query=fields["query"],
                after=after,
                limit=limit,
            )
            users, after = await self._store.read(search, context.client.id)
            for user in users:
                yield user.asDict()
            left -= len(users)

    async def createMultipleUsers(
        self, requests: AsyncIterable[Any], context: Any
    ) -> dict[str, Any]:
        """
        Create users in one step after the last request; return the created users and the errors.

        A truncated call, or a call that exceeds the limits, creates no user.
        """
        received: list[tuple[Any, User | None, str]] = []
        characters = 0
        async for request in requests:
            characters += len(repr(request))
            if len(received) == _MAX_CREATED or characters > _MAX_CREATED_CHARACTERS:
                raise codedError("PAYLOAD_TOO_LARGE", "These are too many users for one call")
            try:
                received.append((request, self._newUser(request), EMAIL_TAKEN[1]))
            except ServiceError as error:
                received.append((request, None, error.message))
        users = [user for _, user, _ in received if user is not None]
        adding = self._store.write(
            lambda table: table.add(users), context.client.id, len(users) or 1
        )
        added = iter(await adding)
        created: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for request, user, reason in received:
            if user is not None and next(added):
                created.append(user.asDict())
            else:
                errors.append({"request": request, "error": reason})
        result = {"count": len(created), "users": created}
        return {**result, "errors": errors} if errors else result

    async def streamUserUpdates(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """
        Yield each later change of a field of a user, until the user is deleted.

        Simultaneous changes by two processes arrive in any order; each item has its time.
        """
        id = readRequest(request, {"userId": _parseId})["userId"]
        # Subscribed before the store is read, so that no change is missed.
        changes = self._watchers.subscribe(id)
        try:
            if await self._store.read(lambda table: table.get(id), context.client.id) is None:
                raise codedError(*NOT_FOUND)
            while (change := await changes.get()) is not None:
                yield change
        finally:
            self._watchers.unsubscribe(id, changes)

    def _newUser(self, request: Any) -> User:
        fields, us = readRequest(request, _NEW_USER), self._timestamps()
        return User(
            id=self._newId(),
            name=fields["name"],
            email=fields["email"],
            phone=fields["phone"] or "",
            address=fields["address"] or {},
            roles=fields["roles"] or (),
            createdUs=us,
            updatedUs=us,
        )


class Chats:
    """
    Both chat methods: all calls of both receive every message.

    Calls of all processes on one bus take part. A call whose requests have ended delivers the
    messages up to that point, then finishes. A call that does not read is ended (L{BoundedStream}),
    and the requests of a call are read no faster than it reads its responses.
    """

    def __init__(
        self, timestamps: MonotonicTimestamps, newId: Callable[[], str], bus: Bus | None = None
    ) -> None:
        self._timestamps = timestamps
        self._newId = newId
        self._topics = PubSub(bus, "users.chats")

    def __len__(self) -> int:
        return len(self._topics)

    async def chatWithUsers(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Relay messages; a message that has a time keeps it."""
        with self._joined(requests, keepTime=True) as messages:
            while (message := await messages.get()) is not None:
                yield {name: message[name] for name in ("userId", "message", "timestamp")}

    async def chat(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield a welcome, then relay messages, each with an id."""
        with self._joined(requests, keepTime=False) as messages:
            yield self._stamped({"userId": SYSTEM, "message": WELCOME})
            while (message := await messages.get()) is not None:
                yield message

    @contextmanager
    def _joined(self, requests: AsyncIterable[Any], keepTime: bool) -> Iterator[BoundedStream[Any]]:
        """Subscribe to the chat, and publish the messages of a call during the subscription."""
        messages = self._topics.subscribe("chat")
        publishing = Deferred.fromCoroutine(self._publish(requests, keepTime, messages))
        publishing.addCallbacks(messages.end, lambda failure: messages.end(failure.value))
        try:
            yield messages
        finally:
            self._topics.unsubscribe("chat", messages)
            publishing.cancel()

    async def _publish(
        self, requests: AsyncIterable[Any], keepTime: bool, messages: BoundedStream[Any]
    ) -> None:
        async for request in requests:
            fields = readRequest(request, _MESSAGE)
            if fields["userId"].lower() == SYSTEM:
                raise invalid(("userId", "is a reserved name"))
            if not keepTime or fields["timestamp"] is None:
                del fields["timestamp"]
            self._topics.publish("chat", (self._stamped(fields),))
            await messages.drained()
            # The call may end during the delivery of its own message, before it can be cancelled.
            if messages.isEnded:
                return

    def _stamped(self, message: Mapping[str, str]) -> dict[str, str]:
        return {"timestamp": isoTime(self._timestamps()), "id": self._newId(), **message}


async def uploadUserData(requests: AsyncIterable[Any], context: Any) -> dict[str, Any]:
    """
    Count records, and the records without a valid email address.

    The records are checked, not stored: they have no ids, and only C{CreateMultipleUsers} returns
    the outcome of each.

    @param requests: Items C{{"records": [...]}}.
    """
    total = errors = 0
    async for request in requests:
        records = readRequest(request, _CHUNK)["records"]
        total += len(records)
        errors += sum(
            not (isinstance(record, Mapping) and isEmail(record.get("email"))) for record in records
        )
    processed = total - errors
    return {
        "totalRecords": total,
        "processedRecords": processed,
        "errorCount": errors,
        "successRate": processed / total if total else 0.0,
    }


async def streamData(requests: AsyncIterable[Any], context: Any) -> AsyncIterator[dict[str, Any]]:
    """
    Yield each input without its empty values, unless all are empty; then a summary.

    An item is C{{"type": "result", "index", "data"}} with the zero-based number of the input, the
    summary C{{"type": "summary", "total", "processed", "skipped"}}.

    @param requests: Mappings with any keys.
    """
    total = processed = 0
    async for request in requests:
        if not isinstance(request, Mapping):
            raise invalid(("", "is an object"))
        # A number is a value, even 0.
        data = {
            name: value
            for name, value in request.items()
            if value or isinstance(value, int | float)
        }
        if data:
            processed += 1
            yield {"type": "result", "index": total, "data": data}
        total += 1
    yield {"type": "summary", "total": total, "processed": processed, "skipped": total - processed}
