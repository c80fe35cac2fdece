"""The values that clients send and receive."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from msgspec import Meta


@dataclass
class Credentials:
    """An account, as a client signs up or logs in."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    password: Annotated[str, Meta(min_length=8, max_length=200)]


@dataclass
class User:
    """The user of a call."""

    id: int
    name: str


@dataclass
class Token:
    """The result of a login: the bearer token of further calls."""

    token: str


@dataclass
class NewNote:
    """A note to be made."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    tags: list[str] = field(default_factory=list)


@dataclass
class Attachment:
    """A file of a note."""

    id: int
    name: str
    size: int


@dataclass
class Note:
    """A note."""

    id: int
    author: str
    text: str
    tags: list[str]
    created: datetime
    attachments: list[Attachment] = field(default_factory=list)
