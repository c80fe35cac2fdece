"""Access keys as JSON, with the table's columns as members."""

from typing import Any

import msgspec
from attrs import asdict, fields

from storagegate.storage.records import AccessKey

_FIELDS = {each.name.lower(): each.name for each in fields(AccessKey)}


def keyDocument(key: AccessKey) -> bytes:
    """Encode a key."""
    return msgspec.json.encode({name.lower(): value for name, value in asdict(key).items()})


def readKey(document: str | bytes) -> AccessKey:
    """Decode a row of the table."""
    found: dict[str, Any] = msgspec.json.decode(document)
    return AccessKey(**{_FIELDS[name]: value for name, value in found.items()})
