"""Pages of lists that are in memory."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from attrs import frozen

from storagegate.core.errors import codedError

T = TypeVar("T")

MOST = 1000
"""Items of a page."""


@frozen
class Page(Generic[T]):
    """
    A page.

    @ivar next: The C{after} of the next one; L{None} for the last.
    """

    items: Sequence[T]
    next: str | None


def checkLimit(limit: int) -> int:
    """
    Accept the number of items of a page.

    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    if not 1 <= limit <= MOST:
        raise codedError("INVALID_ARGUMENT", f"limit is a number from 1 to {MOST}")
    return limit


def page(items: Sequence[T], after: str, limit: int, name: Callable[[T], str]) -> Page[T]:
    """
    Take a page.

    @param items: In the order of their names.
    @param after: Names strictly after this one; empty begins.
    @param limit: The most items.
    @param name: Returns the name of an item.
    @raise ServiceError: The limit is none.
    """
    checkLimit(limit)
    rest = [item for item in items if name(item) > after]
    some = rest[:limit]
    return Page(some, name(some[-1]) if len(rest) > limit else None)
