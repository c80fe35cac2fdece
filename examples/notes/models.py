"""The notes that clients send and receive."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from msgspec import Meta


@dataclass
class NewNote:
    """A note to add."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    tags: list[str] = field(default_factory=list)


@dataclass
class Note:
    """A note."""

    id: int
    author: str
    text: str
    tags: list[str]
    created: datetime
