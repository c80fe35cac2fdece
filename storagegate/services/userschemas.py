"""
The schemas of the UserService's messages, for descriptions: L{storagegate.services.users} validates
requests itself, and its errors name every invalid field.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from storagegate.services.usertable import (
    ADDRESS,
    CHUNK_RECORDS,
    LARGEST,
    LINE,
    MESSAGE,
    PHONE,
    ROLE,
    ROLES,
    SEARCHABLE,
    SORTABLE,
)


def _object(required: str = "", /, **properties: Any) -> dict[str, Any]:
    """
    Describe an object.

    @param required: The names of its required properties, separated by spaces.
    """
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": required.split()} if required else schema


def _text(maximum: int, *examples: str) -> dict[str, Any]:
    schema = {"type": "string", "maxLength": maximum}
    return {**schema, "examples": [*examples]} if examples else schema


_ID = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{32}$",
    "description": "32 hexadecimal digits.",
    "examples": ["00000000000000000000000000000000"],
}
_TIME = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": LARGEST}
_FIELDS = {
    "name": {"minLength": 1, **_text(LINE, "Ada Lovelace")},
    "email": {"type": "string", "format": "email"},
    "phone": _text(PHONE, "+44 20 7946 0000"),
    "address": _object(**{part: _text(LINE) for part in ADDRESS}),
    "roles": {
        "type": "array",
        "maxItems": ROLES,
        "items": {"minLength": 1, **_text(ROLE, "reader")},
    },
}
_NEW_USER = {
    **_object("name email", **_FIELDS),
    "examples": [{"name": "Ada Lovelace", "email": "ada@example.com"}],
}
_USER = _object(
    "id name email roles createdAt updatedAt",
    id=_ID,
    **_FIELDS,
    createdAt=_TIME,
    updatedAt=_TIME,
)
_WITH_ID = _object("id", id=_ID)
_LIMIT = {**_COUNT, "description": "0 is 10.", "examples": [10]}
_MESSAGE = _object(
    "userId message",
    userId={"minLength": 1, **_text(ROLE, "ada")},
    message={"minLength": 1, **_text(MESSAGE, "Hello")},
    timestamp=_TIME,
)
_STAMPED = _object(
    "userId message timestamp",
    userId=_text(ROLE),
    message=_text(MESSAGE),
    timestamp=_TIME,
)

SCHEMAS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = MappingProxyType(
    {
        "GetUser": (_WITH_ID, _USER),
        "CreateUser": (_NEW_USER, _USER),
        "UpdateUser": (
            {
                **_object("id", id=_ID, **_FIELDS),
                "description": "Absent fields and empty roles change nothing.",
                "examples": [{"id": _ID["examples"][0], "name": "Ada Lovelace"}],
            },
            _USER,
        ),
        "DeleteUser": (_WITH_ID, _object("success", success={"type": "boolean"})),
        "ListUsers": (
            _object(
                page={**_COUNT, "description": "From 1.", "examples": [1]},
                limit=_LIMIT,
                sortBy={"type": "string", "enum": [*SORTABLE], "default": "created_at"},
                sortOrder={"type": "string", "enum": ["asc", "desc"], "default": "asc"},
            ),
            _USER,
        ),
        "SearchUsers": (
            _object(
                "query",
                query={"minLength": 1, **_text(LINE, "Ada")},
                limit=_LIMIT,
                fields={
                    "type": "array",
                    "items": {"type": "string", "enum": [*SEARCHABLE]},
                    "default": ["name", "email"],
                },
            ),
            _USER,
        ),
        "CreateMultipleUsers": (
            _NEW_USER,
            _object(
                "count users",
                count=_COUNT,
                users={"type": "array", "items": _USER},
                errors={
                    "type": "array",
                    "items": _object("request error", request={}, error={"type": "string"}),
                },
            ),
        ),
        "ChatWithUsers": (_MESSAGE, _STAMPED),
        "StreamUserUpdates": (
            _object("userId", userId=_ID),
            _object(
                "userId field timestamp",
                userId=_ID,
                field={"type": "string"},
                oldValue={},
                newValue={},
                timestamp=_TIME,
            ),
        ),
        "UploadUserData": (
            _object(
                "records",
                records={
                    "type": "array",
                    "maxItems": CHUNK_RECORDS,
                    "items": {},
                    "examples": [[{"name": "Ada Lovelace", "email": "ada@example.com"}]],
                },
            ),
            _object(
                "totalRecords processedRecords errorCount successRate",
                totalRecords=_COUNT,
                processedRecords=_COUNT,
                errorCount=_COUNT,
                successRate={"type": "number"},
            ),
        ),
        "Chat": (
            _MESSAGE,
            {
                **_STAMPED,
                "properties": {**_STAMPED["properties"], "id": _ID},
                "required": ["userId", "message", "timestamp", "id"],
            },
        ),
    }
)
"""
The schemas of the request and the response of each method, or of a stream's items. C{StreamData}
accepts any value.
"""
