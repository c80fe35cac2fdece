"""
Query strings, URL-encoded forms, and the field names of multipart forms.

Pairs C{name=value} are separated by ampersands, as in the URL Standard: C{+} is a space, an invalid
escape stays unchanged. There are three interpretations of names:

    - flat: brackets are text; a repeated name makes a list;
    - nested, as in Node's C{qs} (URL-encoded forms): C{a[b][c]=1} is C{{"a": {"b": {"c": "1"}}}},
      C{a[]=1} and C{a[0]=1} are C{{"a": ["1"]}};
    - nested, as in C{multer} (L{FieldTree}), field by field::

        a=1 a=2          {"a": ["1", "2"]}      a[b]=1 a[c]=2    {"a": {"b": "1", "c": "2"}}
        a[]=1            {"a": ["1"]}           a[0][b]=1        {"a": [{"b": "1"}]}

An index up to L{INDEX_LIMIT} makes a list, a larger one is a key; gaps in a list are closed. Names
become only keys of plain dictionaries. Parsing takes linear time.
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from attrs import define, field

QUERY_PARAMETERS = 1000
"""Maximum number of query parameters, as in Node: no page has more, and the rest is ignored."""

INDEX_LIMIT = 100
"""The largest index that makes a list by itself; otherwise C{a[999999]} would make a long one."""

DEPTH_LIMIT = 100
"""The largest allowed limit of nesting: parsing is recursive, and Python's stack is limited."""

FIELD_DEPTH_LIMIT = 32
"""The limit of nesting in L{FieldTree}: building and encoding the result is recursive."""

_BRACKET = re.compile(r"[\[\]]")
_GROUP = re.compile(r"\[([^\]]+)\]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


class TooManyParameters(ValueError):
    """The form has too many parameters."""


class TooDeep(ValueError):
    """A name is nested too deeply."""


def parseQuery(raw: str | bytes) -> dict[str, str | list[str]]:
    """
    Parse the query of a URL, with flat names.

    Any input is accepted: bytes that are not UTF-8 become U+FFFD, and parameters after the first
    L{QUERY_PARAMETERS} are ignored.

    @param raw: The text after the question mark.
    @return: Values by name, in order of arrival; a list for a repeated name.
    """
    if not raw:
        return {}
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    return _readFlat(raw.split(b"&", QUERY_PARAMETERS)[:QUERY_PARAMETERS], "utf-8")


def parseForm(
    body: bytes, charset: str, extended: bool, parameterLimit: int, depth: int
) -> dict[str, Any]:
    """
    Parse a URL-encoded form.

    @param charset: The name of the Python codec for the decoded bytes.
    @param extended: Whether names nest.
    @param parameterLimit: Maximum number of parameters, including empty ones.
    @param depth: Maximum number of brackets of a nested name.
    @return: Values by name: strings and lists of strings, and if nested, dictionaries.
    @raise TooManyParameters: If there are more than C{parameterLimit}.
    @raise TooDeep: If a name has more than C{depth} brackets.
    """
    if not body:
        return {}
    # Empty ones count: a megabyte of ampersands must not become a list of a million.
    if body.count(b"&") >= parameterLimit:
        raise TooManyParameters(f"there are more than {parameterLimit} parameters")
    if not extended:
        return _readFlat(body.split(b"&"), charset)
    return _readNested(body, charset, depth)


# Pairs


def _decode(raw: bytes, charset: str) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    return raw.decode(charset, "replace")


def _add(values: dict[str, str | list[str]], name: str, value: str) -> None:
    held = values.get(name)
    if held is None:
        values[name] = value
    elif isinstance(held, list):
        held.append(value)
    else:
        values[name] = [held, value]


def _readFlat(pairs: list[bytes], charset: str) -> dict[str, str | list[str]]:
    values: dict[str, str | list[str]] = {}
    for pair in pairs:
        if pair:
            name, _, value = pair.partition(b"=")
            _add(values, _decode(name, charset), _decode(value, charset))
    return values


def _splitNested(pair: bytes) -> tuple[bytes, bytes]:
    """Split a pair at its equals sign, ignoring one in brackets (C{a[b=c]=d})."""
    name, _, value = pair.partition(b"=")
    closing = pair.find(b"]=")
    if b"[" in name and closing > 0:
        return pair[: closing + 1], pair[closing + 2 :]
    return name, value


# Nested names


@define(eq=False)
class _Branch:
    """
    The value of a name with brackets: a list or a dictionary, as determined by all its keys.

    @ivar isList: Whether all keys so far are indexes; they are then C{int}, otherwise C{str}.
    @ivar entries: Branches and strings by key.
    @ivar after: The index after the largest one.
    """

    isList: bool
    entries: dict[int | str, "_Branch | str"] = field(factory=dict)
    after: int = 0

    def put(self, key: int | str, entry: "_Branch | str") -> None:
        """Set an entry; the key is an C{int} only in a list."""
        self.entries[key] = entry
        if isinstance(key, int):
            self.after = max(self.after, key + 1)

    def append(self, entry: "_Branch | str") -> None:
        """Add an entry to a list."""
        self.put(self.after, entry)

    def toDictionary(self) -> None:
        """Convert a list to a dictionary whose keys are the indexes as strings."""
        if self.isList:
            self.isList = False
            self.entries = {str(index): entry for index, entry in self.entries.items()}

    def build(self) -> Any:
        """Build plain lists, without gaps, and dictionaries."""
        values = {
            key: entry.build() if isinstance(entry, _Branch) else entry
            for key, entry in self.entries.items()
        }
        return [values[index] for index in sorted(values)] if self.isList else values


def _listOf(*entries: _Branch | str) -> _Branch:
    branch = _Branch(True)
    for entry in entries:
        branch.append(entry)
    return branch


def _readNested(body: bytes, charset: str, depth: int) -> dict[str, Any]:
    for escape, bracket in ((b"%5B", b"["), (b"%5b", b"["), (b"%5D", b"]"), (b"%5d", b"]")):
        body = body.replace(escape, bracket)
    pairs = body.split(b"&")
    # A list without gaps may be longer than one index may make it.
    indexes = max(INDEX_LIMIT + 1, len(pairs))
    values: dict[str, str | list[str]] = {}
    for pair in pairs:
        name, value = _splitNested(pair)
        if name:
            _add(values, _decode(name, charset), _decode(value, charset))
    root = _Branch(False)
    for key, held in values.items():
        leaf = _listOf(*held) if isinstance(held, list) else held
        _merge(root, _chain(_segments(key, depth), leaf, indexes))
    built: dict[str, Any] = root.build()
    return built


def _segments(name: str, depth: int) -> list[str]:
    """
    Split a name: the part before the first bracket, then each group with its brackets.

    Nested brackets belong to the group. Text after the last closed group is dropped, and the name
    of an unclosed group begins with a bracket: C{a[b} has C{[b} in C{a}.
    """
    start = name.find("[")
    if start < 0 or depth == 0:
        return [name]
    segments = [name[:start]] if start else []
    groups = level = 0
    for match in _BRACKET.finditer(name, start):
        if match.group() == "[":
            if level == 0:
                start = match.start()
                groups += 1
                if groups > depth:
                    raise TooDeep(f"a name has more than {depth} brackets")
            level += 1
        elif level:
            level -= 1
            if level == 0:
                segments.append(name[start : match.end()])
    if level:
        segments.append(f"[{name[start:]}]")
    return segments


def _chain(segments: list[str], leaf: _Branch | str, indexes: int) -> _Branch:
    """Make the branches that lead to a value."""
    entry = leaf
    for position in range(len(segments) - 1, -1, -1):
        segment = segments[position]
        bracketed = segment[0] == "[" and segment[-1] == "]"
        key = segment[1:-1] if bracketed else segment
        if bracketed and not key and isinstance(entry, _Branch) and entry.isList:
            # A repeated C{a[]} is already the list of C{a}.
            continue
        branch = _Branch(False)
        if bracketed and (not key or (_INDEX.fullmatch(key) and int(key) < indexes)):
            branch.isList = True
            branch.put(int(key or "0"), entry)
        else:
            branch.put(key, entry)
        entry = branch
    return entry if isinstance(entry, _Branch) else _listOf(entry)


def _merge(target: _Branch, source: _Branch) -> None:
    """Merge the entries of one branch into another."""
    if target.isList and source.isList:
        for index, entry in source.entries.items():
            assert isinstance(index, int)
            held = target.entries.get(index)
            if held is None:
                target.put(index, entry)
            elif isinstance(held, _Branch) and isinstance(entry, _Branch):
                _merge(held, entry)
            else:
                target.append(entry)
        return
    target.toDictionary()
    source.toDictionary()
    for key, entry in source.entries.items():
        held = target.entries.get(key)
        target.entries[key] = entry if held is None else _combine(held, entry)


def _combine(held: _Branch | str, entry: _Branch | str) -> _Branch:
    """Combine two values of one name without losing either."""
    if isinstance(held, _Branch):
        if isinstance(entry, _Branch):
            _merge(held, entry)
        elif held.isList:
            held.append(entry)
        else:
            return _listOf(held, entry)
        return held
    if isinstance(entry, _Branch) and entry.isList:
        return _listOf(held, *(entry.entries[index] for index in sorted(entry.entries)))
    return _listOf(held, entry)


class FieldTree:
    """
    The fields of one multipart form, nested by their names.

    A name with unbalanced brackets, or with a leading bracket, is flat. If a name has both a value
    and nested names, the value is under the empty name.
    """

    def __init__(self) -> None:
        self._root = _Branch(False)

    def add(self, name: str, value: str) -> None:
        """
        Add a field, with a name such as C{a[b][]}.

        @raise TooDeep: If the name has more than L{FIELD_DEPTH_LIMIT} brackets.
        """
        steps, appends = _steps(name)
        branch = self._root
        for step in steps[:-1]:
            key = _keyOf(branch, step)
            held = branch.entries.get(key)
            if not isinstance(held, _Branch):
                below = _Branch(isList=held is None)
                if held is not None:
                    below.put("", held)
                branch.put(key, below)
                held = below
            branch = held
        key = _keyOf(branch, steps[-1])
        held = branch.entries.get(key)
        while isinstance(held, _Branch) and not held.isList:
            branch, key, appends = held, "", False
            held = branch.entries.get(key)
        if isinstance(held, _Branch):
            held.append(value)
        elif held is not None:
            branch.put(key, _listOf(held, value))
        else:
            branch.put(key, _listOf(value) if appends else value)

    def build(self) -> dict[str, Any]:
        """Return the fields as plain dictionaries and lists."""
        built: dict[str, Any] = self._root.build()
        return built


def _keyOf(branch: _Branch, step: int | str) -> int | str:
    """Return the key for a step; a name converts a list to a dictionary."""
    if isinstance(step, str):
        branch.toDictionary()
    return step if branch.isList else str(step)


def _steps(name: str) -> tuple[list[int | str], bool]:
    """Split a field's name at its brackets, and return whether it ends in C{[]}."""
    start = name.find("[")
    if start <= 0:
        return [name], False
    steps: list[int | str] = [name[:start]]
    appends = name.endswith("[]")
    end = len(name) - 2 if appends else len(name)
    while start < end:
        group = _GROUP.match(name, start, end)
        if group is None:
            return [name], False
        if len(steps) > FIELD_DEPTH_LIMIT:
            raise TooDeep(f"a field's name nests deeper than {FIELD_DEPTH_LIMIT}")
        key = group[1]
        isNumber = len(key) <= 3 and key.isascii() and key.isdigit()
        steps.append(int(key) if isNumber and int(key) <= INDEX_LIMIT else key)
        start = group.end()
    return steps, appends
