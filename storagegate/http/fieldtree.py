"""
Form fields whose names nest, as C{multer} reads them, one after another::

    a=1 a=2          {"a": ["1", "2"]}      a[b]=1 a[c]=2    {"a": {"b": "1", "c": "2"}}
    a[]=1            {"a": ["1"]}           a[0][b]=1        {"a": [{"b": "1"}]}

A name whose brackets do not pair, or that begins with one, is a name like any other. An index makes
a list up to L{INDEX_LIMIT}, above it it is a key; a list that is not full closes up. Where one name
has a value and names below it too, the value is under the empty name.
"""

import re
from typing import Any

DEPTH_LIMIT = 32
"""As deep as other forms may nest: building and encoding the result is recursive."""

INDEX_LIMIT = 100
"""As in other forms: a list is not to be longer than what was sent."""

_GROUP = re.compile(r"\[([^\]]+)\]")
_INDEX = re.compile(r"[0-9]{1,3}", re.ASCII)

_Key = str | int


class TooDeep(ValueError):
    """A name nests deeper than L{DEPTH_LIMIT}."""


class _Node:
    """A dictionary, or a list while all that it was given were indexes, which are C{int}."""

    __slots__ = ("after", "entries", "isList")

    def __init__(self, isList: bool) -> None:
        self.isList = isList
        self.entries: dict[_Key, _Node | str] = {}
        # The index after the largest.
        self.after = 0

    def put(self, key: _Key, entry: "_Node | str") -> None:
        """Set an entry."""
        self.entries[key] = entry
        if self.isList and isinstance(key, int):
            self.after = max(self.after, key + 1)

    def normalKey(self, key: _Key) -> _Key:
        """Give the key that stands for C{key} here; a list that gets a name is none any more."""
        if self.isList and isinstance(key, str):
            self.isList = False
            self.entries = {str(index): entry for index, entry in self.entries.items()}
        return key if self.isList else str(key)

    def addLast(self, key: _Key, value: str, appends: bool) -> None:
        """Add the value that a name leads to."""
        key = self.normalKey(key)
        held = self.entries.get(key)
        if held is None and not appends:
            self.put(key, value)
        elif isinstance(held, _Node) and not held.isList:
            held.addLast("", value, False)
        else:
            if not isinstance(held, _Node):
                first = held
                held = _Node(isList=True)
                self.put(key, held)
                if first is not None:
                    held.put(0, first)
            held.put(held.after, value)

    def descend(self, key: _Key) -> "_Node":
        """Give the node below a key, made if there is none."""
        key = self.normalKey(key)
        held = self.entries.get(key)
        if not isinstance(held, _Node):
            first = held
            held = _Node(isList=first is None)
            self.put(key, held)
            if first is not None:
                held.put("", first)
        return held

    def build(self) -> Any:
        """Give plain dictionaries and lists."""
        if self.isList:
            return [_build(self.entries[index]) for index in sorted(self.entries, key=int)]
        return {key: _build(entry) for key, entry in self.entries.items()}


def _build(entry: _Node | str) -> Any:
    return entry.build() if isinstance(entry, _Node) else entry


def _steps(name: str) -> tuple[list[_Key], bool]:
    """Take a name apart; say whether it ends in C{[]}."""
    start = name.find("[")
    if start <= 0:
        return [name], False
    steps: list[_Key] = [name[:start]]
    end = len(name)
    appends = name.endswith("[]")
    if appends:
        end -= 2
    while start < end:
        group = _GROUP.match(name, start, end)
        if group is None:
            return [name], False
        if len(steps) > DEPTH_LIMIT:
            raise TooDeep(f"a field's name nests deeper than {DEPTH_LIMIT}")
        key = group[1]
        isIndex = _INDEX.fullmatch(key) is not None and int(key) <= INDEX_LIMIT
        steps.append(int(key) if isIndex else key)
        start = group.end()
    return steps, appends


class FieldTree:
    """The fields of one form. A name only ever becomes a key."""

    def __init__(self) -> None:
        self._root = _Node(False)

    def add(self, name: str, value: str) -> None:
        """
        Add a field.

        @raise TooDeep: If its name nests too deep.
        """
        steps, appends = _steps(name)
        node = self._root
        for step in steps[:-1]:
            node = node.descend(step)
        node.addLast(steps[-1], value, appends)

    def build(self) -> dict[str, Any]:
        """Give what has been added so far."""
        fields: dict[str, Any] = self._root.build()
        return fields
