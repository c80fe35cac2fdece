"""Route patterns (a draft)."""

import re
from typing import Any
from urllib.parse import unquote

NO_PARAMS: dict[Any, Any] = {}


class Pattern:
    """One pattern."""

    def __init__(self, source: Any, caseSensitive: bool, strict: bool, prefix: bool) -> None:
        self.source = source
        self._prefix = prefix
        if isinstance(source, re.Pattern):
            self.regexp = source
            self.names = [str(i) for i in range(source.groups)]
            return
        self.names = re.findall(r":(\w+)", source) + re.findall(r"\*", source)
        text = re.sub(r"/:(\w+)\?", r"(?:/(?P<\1>[^/]+))?", source.rstrip("/"))
        text = re.sub(r":(\w+)", r"(?P<\1>[^/]+)", text)
        text = text.replace("*", "(?P<STAR>.*)") if "*" in source else text
        end = "(?=/|$)" if prefix else ("$" if strict else "/?$")
        self.regexp = re.compile(text + end, 0 if caseSensitive else re.I)

    def match(self, path: str) -> Any:
        """Match."""
        if isinstance(self.source, re.Pattern):
            found = self.source.search(path)
            return found and ({i: g for i, g in enumerate(found.groups())}, 0)
        found = self.regexp.match(path)
        if not found:
            return None
        params = {
            ("*" if k == "STAR" else k): None if v is None else unquote(v)
            for k, v in found.groupdict().items()
        }
        return params, found.end() if self._prefix else len(path)


def compilePattern(
    path: Any, *, caseSensitive: bool = False, strict: bool = False, prefix: bool = False
) -> Pattern:
    """Compile."""
    return Pattern(path, caseSensitive, strict, prefix)
