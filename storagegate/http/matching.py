"""The compiled matcher (a draft)."""

from collections.abc import Sequence
from typing import Any

from storagegate.http.patterns import Pattern


class RouteIndex:
    """All patterns of a router."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = list(enumerate(patterns))

    def match(self, path: str) -> Any:
        """Give all that match."""
        out = []
        for index, pattern in self._patterns:
            found = pattern.match(path)
            if found:
                out.append((index, *found))
        return out
