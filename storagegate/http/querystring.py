"""
Query strings and URL-encoded forms.

C{name=value} pairs between ampersands, as the URL Standard writes them: C{+} is a space, an escape
that is none stays as it is. There are two readings of names:

    - flat: a name is a name, brackets and all; one that comes again makes a list;
    - nested, in forms only: C{a[b][c]=1} is C{{"a": {"b": {"c": "1"}}}}, C{a[]=1} and C{a[0]=1} are
      C{{"a": ["1"]}}, as Node's C{qs} reads them.

Names only ever become keys of plain dictionaries. Every reading takes time in proportion to what is
read.

Form fields whose names nest, as C{multer} reads them, one after another::

    a=1 a=2          {"a": ["1", "2"]}      a[b]=1 a[c]=2    {"a": {"b": "1", "c": "2"}}
    a[]=1            {"a": ["1"]}           a[0][b]=1        {"a": [{"b": "1"}]}

A name whose brackets do not pair, or that begins with one, is a name like any other. An index makes
a list up to L{FORM_INDEX_LIMIT}, above it it is a key; a list that is not full closes up. Where
one name
has a value and names below it too, the value is under the empty name.
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

QUERY_PARAMETERS = 1000
"""Parameters of a query that are read, as in Node: no page has more, and what follows is noise."""

INDEX_LIMIT = 100
"""The largest index that makes a list by itself; above it C{a[999999]} would ask for a long one."""

DEPTH_LIMIT = 100
"""The deepest nesting that may be allowed: reading is recursive, and Python's stack is finite."""

_BRACKET = re.compile(r"[\[\]]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


class TooManyParameters(ValueError):
    """The form has more parameters than are allowed."""


class TooDeep(ValueError):
    """The name of a parameter nests deeper than is allowed."""


def parseQuery(raw: str | bytes) -> dict[str, str | list[str]]:
    """
    Read the query of a URL, flat.

    Anything can be read: bytes that are not UTF-8 become U+FFFD, and after
    L{QUERY_PARAMETERS} parameters the rest is ignored.

    @param raw: What follows the question mark.
    @return: Values by name, in the order in which they came; a list for a name that came again.
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
    Read a URL-encoded form.

    @param charset: The name of a Python codec for what the escapes stand for.
    @param extended: Whether names nest.
    @param depth: How many brackets a nested name may have.
    @return: Values by name: strings and lists of them; nested also dictionaries.
    @raise TooManyParameters: If there are more than C{parameterLimit}.
    @raise TooDeep: If a name has more than C{depth} brackets.
    """
    if not body:
        return {}
    # Empty ones count: a megabyte of ampersands is not to become a list of a million.
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
    if name not in values:
        values[name] = value
        return
    held = values[name]
    if isinstance(held, list):
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
    """Split a pair at its equals sign, which is not one in brackets (C{a[b=c]=d})."""
    equals = pair.find(b"=")
    if equals > 0 and b"[" in pair[:equals]:
        closing = pair.find(b"]=")
        if closing > 0:
            return pair[: closing + 1], pair[closing + 2 :]
    name, _, value = pair.partition(b"=")
    return name, value


# Nested names


class _Branch:
    """
    What has brackets: a list or a dictionary, which is only known at the end.

    @ivar isList: Whether all keys so far are indexes; they are then C{int}, otherwise C{str}.
    @ivar entries: Branches and strings by key.
    @ivar after: The index after the largest one.
    """

    __slots__ = ("after", "entries", "isList")

    def __init__(self, isList: bool) -> None:
        self.isList = isList
        self.entries: dict[int | str, _Branch | str] = {}
        self.after = 0

    def put(self, index: int, entry: "_Branch | str") -> None:
        """Give a list an entry where it has none."""
        self.entries[index] = entry
        self.after = max(self.after, index + 1)

    def append(self, entry: "_Branch | str") -> None:
        """Give a list one more entry."""
        self.put(self.after, entry)

    def toDictionary(self) -> None:
        """Keep what is here under keys that are strings."""
        if self.isList:
            self.isList = False
            self.entries = {str(index): entry for index, entry in self.entries.items()}

    def build(self) -> dict[str, Any] | list[Any]:
        """Give what has become of it; a list closes its gaps."""
        if self.isList:
            return [_build(self.entries[index]) for index in sorted(self.entries)]
        return {str(key): _build(entry) for key, entry in self.entries.items()}


def _listOf(*entries: _Branch | str) -> _Branch:
    branch = _Branch(True)
    for entry in entries:
        branch.append(entry)
    return branch


def _build(entry: _Branch | str) -> Any:
    return entry.build() if isinstance(entry, _Branch) else entry


def _readNested(body: bytes, charset: str, depth: int) -> dict[str, Any]:
    for escape, bracket in ((b"%5B", b"["), (b"%5b", b"["), (b"%5D", b"]"), (b"%5d", b"]")):
        body = body.replace(escape, bracket)
    pairs = body.split(b"&")
    # A list that is all there may be longer than what one index may ask for.
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
    return {str(key): _build(entry) for key, entry in root.entries.items()}


def _segments(name: str, depth: int) -> list[str]:
    """
    Take a name apart: what is before the first bracket, then each group with its brackets.

    Brackets within brackets belong to the group. What follows the last one closed is dropped, and a
    group that is never closed is one whose name begins with a bracket: C{a[b} has C{[b} in C{a}.
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
            # C{a[]} given twice is already the list that C{a} is.
            continue
        branch = _Branch(False)
        if bracketed and (not key or (_INDEX.fullmatch(key) and int(key) < indexes)):
            branch.isList = True
            branch.put(int(key or "0"), entry)
        else:
            branch.entries[key] = entry
        entry = branch
    return entry if isinstance(entry, _Branch) else _listOf(entry)


def _merge(target: _Branch, source: _Branch) -> None:
    """Add what one branch holds to another one."""
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
    """Make one of two values of one name, of which no one is lost."""
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


FORM_DEPTH_LIMIT = 32
"""As deep as other forms may nest: building and encoding the result is recursive."""

FORM_INDEX_LIMIT = 100
"""As in other forms: a list is not to be longer than what was sent."""

_GROUP = re.compile(r"\[([^\]]+)\]")
_FORM_INDEX = re.compile(r"[0-9]{1,3}", re.ASCII)

_Key = str | int


class FormTooDeep(ValueError):
    """A name nests deeper than L{FORM_DEPTH_LIMIT}."""


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
            return [_buildForm(self.entries[index]) for index in sorted(self.entries, key=int)]
        return {key: _buildForm(entry) for key, entry in self.entries.items()}


def _buildForm(entry: _Node | str) -> Any:
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
        if len(steps) > FORM_DEPTH_LIMIT:
            raise FormTooDeep(f"a field's name nests deeper than {FORM_DEPTH_LIMIT}")
        key = group[1]
        isIndex = _FORM_INDEX.fullmatch(key) is not None and int(key) <= FORM_INDEX_LIMIT
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

        @raise FormTooDeep: If its name nests too deep.
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
