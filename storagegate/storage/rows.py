"""
The forms of rows that all catalogs share: pages of listings, attributes, and segments as JSON.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from storagegate.storage.records import ACCOUNT, AccountDocuments, Attributes, Content, Segment

_Row = TypeVar("_Row")


Position = tuple[str, str]
"""A sort position: a key or common prefix, and an upload's id or an empty text."""


def cutPage(
    rows: list[_Row], positionOf: Callable[[_Row], Position], prefixes: list[str], limit: int
) -> Position | None:
    """
    Drop rows and common prefixes beyond the first C{limit}, counted together.

    @param rows: The rows in order. Modified in place, like C{prefixes}.
    @param positionOf: Returns the sort key of a row.
    @param prefixes: The common prefixes of the page, in order.
    @param limit: The most rows and common prefixes to keep.
    @return: The position of the last one kept; L{None} if none was dropped.
    """
    if len(rows) + len(prefixes) <= limit:
        return None
    while len(rows) + len(prefixes) > limit:
        if not prefixes or (rows and positionOf(rows[-1]) > (prefixes[-1], "")):
            rows.pop()
        else:
            prefixes.pop()
    ends = [positionOf(row) for row in rows[-1:]] + [(part, "") for part in prefixes[-1:]]
    return max(ends)


_decodeSegments = msgspec.json.Decoder(tuple[tuple[str, int, int], ...]).decode


readAttributes = msgspec.json.Decoder(Attributes).decode
"""Decodes attributes; absent fields get their defaults."""


def segmentsText(content: Content) -> str | None:
    """Encode the segments of a content; L{None} if it has none."""
    if not content.segments:
        return None
    segments = [(each.blob, each.offset, each.length) for each in content.segments]
    return msgspec.json.encode(segments).decode()


def readSegments(text: str | None) -> tuple[Segment, ...]:
    """Decode the result of L{segmentsText}."""
    return () if text is None else tuple(Segment(*each) for each in _decodeSegments(text))


def gatherIdentities(rows: Iterable[Sequence[Any]]) -> dict[str, AccountDocuments]:
    """
    Gather the documents of accounts.

    @param rows: In any order: account, its revision, and kind, name and document of one of its
        entities.
    """
    revisions: dict[str, int] = {}
    documents: dict[str, dict[tuple[str, str], bytes]] = {}
    for account, revision, kind, name, document in rows:
        revisions[account] = revision
        found = documents.setdefault(account, {})
        if kind != ACCOUNT:
            found[kind, name] = document
    return {
        account: AccountDocuments(revision, documents[account])
        for account, revision in revisions.items()
    }
