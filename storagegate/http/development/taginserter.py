"""Puts a tag into an HTML page that passes by in pieces."""

import re

from zope.interface import implementer

from storagegate.http.responsehooks import IBodyEncoder

_END = b"</body"
_BODY_END = re.compile(_END + rb"[\s>]", re.IGNORECASE)


@implementer(IBodyEncoder)
class TagInserter:
    """
    Inserts a tag before the end of the body, or at the end where that is not marked.

    Its methods may be called in any thread, one at a time.
    """

    flushes = False

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._held = b""
        self._isDone = False

    def feed(self, chunk: bytes) -> bytes:
        """Pass a piece on, without what may be the first half of the mark."""
        if self._isDone:
            return chunk
        page, self._held = self._held + chunk, b""
        mark = _BODY_END.search(page)
        if mark is not None:
            self._isDone = True
            return page[: mark.start()] + self._tag + page[mark.start() :]
        for length in range(min(len(_END), len(page)), 0, -1):
            if _END.startswith(page[-length:].lower()):
                self._held = page[-length:]
                return page[:-length]
        return page

    def flush(self) -> bytes:
        """Give what is held; a mark that is cut just here is not found."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> bytes:
        """Give what is held, and the tag if it is not in the page yet."""
        if self._isDone:
            return b""
        self._isDone = True
        return self.flush() + self._tag
