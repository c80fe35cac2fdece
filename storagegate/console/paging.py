"""Pages of in-memory lists."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from attrs import frozen

from storagegate.core.errors import codedError

T = TypeVar("T")

MOST = 1000
"""Largest number of items per page."""


@frozen
class Page(Generic[T]):
    """
    A page.

    @ivar next: The C{after} of the next page; L{None} on the last page.
    """

    items: Sequence[T]
    next: str | None


def checkLimit(limit: int) -> int:
    """
    Validate the number of items of a page.

    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    if not 1 <= limit <= MOST:
        raise codedError("INVALID_ARGUMENT", f"limit must be a number from 1 to {MOST}")
    return limit


def page(items: Sequence[T], after: str, limit: int, name: Callable[[T], str]) -> Page[T]:
    """
    Return a page of a list.

    @param items: Sorted by name.
    @param after: Only names strictly after this one; empty for the first page.
    @param limit: Largest number of items.
    @param name: Returns the name of an item.
    @raise ServiceError: The limit is invalid.
    """
    checkLimit(limit)
    rest = [item for item in items if name(item) > after]
    some = rest[:limit]
    return Page(some, name(some[-1]) if len(rest) > limit else None)
