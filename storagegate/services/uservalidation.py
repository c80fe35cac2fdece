"""
What requests to the UserService may say.

Every function raises C{INVALID_ARGUMENT} whose details list all that is wrong with a request, each
a C{path} and a C{message}. C{None} is as if it were not there, and what nobody knows is ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from storagegate.services.emails import isEmail
from storagegate.services.reading import Reading
from storagegate.services.userrecords import SEARCHABLE, SORTABLE, Order

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
class Listing:
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


def readListing(request: Any) -> Listing:
    """Read which page of users to begin with, and their order."""
    reading = Reading(request)
    page = reading.number("page") or 1
    limit = reading.number("limit") or _DEFAULT_LIMIT
    by = reading.choice("sortBy", tuple(SORTABLE), "created_at")
    direction = reading.choice("sortOrder", ("asc", "desc"), "asc", ignoreCase=True)
    reading.end()
    return Listing(Order(SORTABLE[by], direction == "desc"), limit, (page - 1) * limit)


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
