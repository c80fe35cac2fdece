"""
Route patterns: the syntax of paths of routes and middleware, and the matching of paths.

::

    pattern   = "*" / 1*( "/" segment )
    segment   = "*" / parameter [ "?" ] / mixed / literal
    mixed     = [ literal ] parameter *( literal parameter ) [ literal ]
    parameter = ":" name            ; a name as in Python

Characters that are special in other routers are refused in a literal, so that no pattern is
silently misread. Any of them can be written as a percent escape, which in a literal represents its
character.

Paths are raw here: ASCII, with percent escapes and a leading slash. A path is split at its slashes
before it is decoded, so that an escaped slash is not a separator.
"""

import itertools
import math
import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import NoReturn, TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import Struct

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)


class MalformedEscape(ValueError):
    """
    A percent escape in the path is incomplete, or its bytes are not UTF-8.

    @cvar statusCode: The status of the response.
    """

    statusCode = 400

    def __init__(self) -> None:
        super().__init__("A percent escape in the path is malformed")


class PathText:
    """
    A path, split at its slashes.

    @ivar segments: The raw text between the slashes; the first one, before the leading slash, is
        empty.
    @ivar values: The decoded segments; C{None} for a malformed escape.
    @ivar keys: The decoded segments, case-folded if case is ignored; C{None} equals no literal.
    """

    __slots__ = ("keys", "path", "segments", "values")

    keys: Sequence[str | None]
    values: Sequence[str | None]

    def __init__(self, path: str, caseSensitive: bool, limit: int = -1) -> None:
        """
        @param caseSensitive: Whether C{keys} keep their case.
        @param limit: The number of slashes to split at; the rest stays one segment; -1 for all.
        """
        self.path = path
        self.segments = segments = path.split("/", limit)
        if "%" in path or not path.isascii():
            self.values = values = [decodeEscapes(segment) for segment in segments]
            self.keys = values if caseSensitive else [text and foldCase(text) for text in values]
            return
        self.values = self.keys = segments
        # Folded once for the whole path; most paths are in lower case.
        if not caseSensitive and (folded := path.lower()) != path:
            self.keys = folded.split("/", limit)

    def offset(self, at: int) -> int:
        """Return the offset in the path at which a segment begins."""
        return sum(map(len, self.segments[:at])) + at


def decodeEscapes(raw: str) -> str | None:
    """
    Decode percent escapes, once.

    @return: C{None} if an escape is not C{%} and two hexadecimal digits, or the text is not UTF-8.
    """
    if "%" not in raw:
        return raw
    if _MALFORMED.search(raw) is not None:
        return None
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeError:
        return None


def foldCase(text: str) -> str:
    """Fold the case of decoded text; accents stay."""
    folded = text.lower()
    # The lower case of the Kelvin sign is a plain k: a name that a proxy in front did not recognise
    # as protected must not fold to the protected name.
    return folded if folded.isascii() == text.isascii() else text


class Literal(Struct, frozen=True):
    """
    A segment of text.

    @ivar key: The decoded segment that matches, case-folded if case is ignored.
    @ivar expression: A regular expression for the raw segment.
    """

    key: str
    expression: str


class Parameter(Struct, frozen=True):
    """A segment that is a parameter."""

    name: str
    optional: bool


class Mixed(Struct, frozen=True):
    """A segment with text around or between parameters; the expression matches the raw segment."""

    names: tuple[str, ...]
    expression: re.Pattern[str]


class Wildcard(Struct, frozen=True):
    """
    Any number of segments.

    @ivar whole: Whether the value includes the slash before them, as for a lone C{*}.
    """

    whole: bool


Element: TypeAlias = Literal | Parameter | Mixed | Wildcard


class Shape(Struct, frozen=True):
    """
    A variant of a pattern, with all, some or none of its optional parameters.

    @ivar head: The elements before the wildcard, or all of them.
    @ivar tail: The elements after the wildcard.
    """

    head: tuple[Element, ...]
    wildcard: Wildcard | None
    tail: tuple[Element, ...]


WILDCARD = "*"
"""The parameter name of a wildcard's value."""

# Each optional parameter can double the shapes of a pattern, and every path is matched against all
# of them. 64 shapes correspond to six separate optional parameters.
_MAX_SHAPES = 64

_PARAMETER = re.compile(r":([^\W\d]\w*)")
_ESCAPES = re.compile(r"((?:%[0-9A-Fa-f]{2})+)", re.ASCII)

_NO_GROUP = "check the parameter in the handler, or give a compiled regular expression"
_NO_BRACES = "write an optional parameter as /:id?, or register two routes"
_NO_SYNTAX = "for the character itself write {}, or give a compiled regular expression"

_ADVICE = {
    "*": "a * stands alone between slashes and has no name: write /files/* and read params['*'], "
    "or give a compiled regular expression",
    "?": "a ? follows a parameter that is a whole segment, as in /:id?; register two routes for "
    "anything else",
    ":": "a : is followed by the parameter's name; for the character itself write %3A",
    "(": _NO_GROUP,
    ")": _NO_GROUP,
    "{": _NO_BRACES,
    "}": _NO_BRACES,
    "+": _NO_SYNTAX.format("%2B"),
    "[": _NO_SYNTAX.format("%5B"),
    "]": _NO_SYNTAX.format("%5D"),
    "\\": _NO_SYNTAX.format("%5C"),
}
"""Advice for characters that are special in other routers."""


def parsePattern(source: str, caseSensitive: bool, strict: bool) -> tuple[Element, ...]:
    """
    Parse a pattern.

    @param strict: Whether a trailing slash is significant.
    @raise ValueError: If the pattern is invalid; the message suggests a correction.
    """
    if source == WILDCARD:
        return (Wildcard(whole=True),)
    if not source.startswith("/"):
        _refuse(source, "a pattern begins with a slash, or is a lone *")
    segments = source[1:].split("/")
    if len(segments) > 1 and segments[-1] == "" and not strict:
        segments.pop()
    names = _PARAMETER.findall(source)
    for name in names:
        if not name.isidentifier():
            _refuse(source, f"{name} is not a valid parameter name")
        if names.count(name) > 1:
            _refuse(source, f"the parameter {name} occurs twice in it")
    if segments.count(WILDCARD) > 1:
        _refuse(source, "only one * is allowed; give a compiled regular expression")
    elements = tuple(_parseSegment(source, segment, caseSensitive) for segment in segments)
    if WILDCARD in segments:
        for element in elements[segments.index(WILDCARD) :]:
            if _isOptional(element):
                _refuse(source, "a * leaves nothing to an optional parameter; register two routes")
    return elements


def _isOptional(element: Element) -> bool:
    return isinstance(element, Parameter) and element.optional


def shapesOf(source: str, elements: Sequence[Element]) -> tuple[Shape, ...]:
    """
    List the shapes of a pattern; shapes with earlier optional parameters come first.

    @raise ValueError: If there are too many.
    """
    runs = [list(run) for _, run in itertools.groupby(elements, _isOptional)]
    # The later of adjacent optional parameters are omitted first: other shapes would match no other
    # paths.
    ways = [range(len(run), -1 if _isOptional(run[0]) else len(run) - 1, -1) for run in runs]
    if math.prod(map(len, ways)) > _MAX_SHAPES:
        _refuse(source, "it has too many optional parameters; register several routes")
    return tuple(
        _shape([element for run, n in zip(runs, lengths, strict=True) for element in run[:n]])
        for lengths in itertools.product(*ways)
    )


def _shape(elements: Sequence[Element]) -> Shape:
    for at, element in enumerate(elements):
        if isinstance(element, Wildcard):
            return Shape(tuple(elements[:at]), element, tuple(elements[at + 1 :]))
    return Shape(tuple(elements), None, ())


def elementNames(element: Element) -> tuple[str, ...]:
    """List the names of the parameters in an element."""
    if isinstance(element, Parameter):
        return (element.name,)
    if isinstance(element, Mixed):
        return element.names
    return (WILDCARD,) if isinstance(element, Wildcard) else ()


def _parseSegment(source: str, segment: str, caseSensitive: bool) -> Element:
    if segment == WILDCARD:
        return Wildcard(whole=False)
    pieces = _PARAMETER.split(segment)
    names = pieces[1::2]
    if len(names) == 1 and pieces[0] == "" and pieces[2] in ("", "?"):
        return Parameter(names[0], optional=pieces[2] == "?")
    for text in pieces[::2]:
        for character in text:
            if character in _ADVICE:
                _refuse(source, _ADVICE[character])
    if not names:
        key = _textOf(segment)
        return Literal(key if caseSensitive else foldCase(key), _literalExpression(segment))
    if "" in pieces[2:-1:2]:
        _refuse(source, "there must be text between two parameters of one segment")
    flags = re.ASCII if caseSensitive else re.ASCII | re.IGNORECASE
    return Mixed(tuple(names), re.compile(_mixedExpression(pieces), flags))


def _refuse(source: str, why: str) -> NoReturn:
    raise ValueError(f"the pattern {source!r} cannot be used: {why}")


def _textOf(written: str) -> str:
    """Decode the escapes of a literal; a malformed escape leaves the text unchanged."""
    text = decodeEscapes(written)
    return written if text is None else text


def _mixedExpression(pieces: list[str]) -> str:
    """
    Make the expression for a segment.

    Ambiguous segments split as in Express 5: the first parameter is greedy, and later parameters do
    not contain the text before them, or equal it. Each character is visited a bounded number of
    times, so matching takes linear time.

    @param pieces: Alternating text and names.
    """
    expression = _literalExpression(pieces[0])
    before = ""
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if not before:
            expression += f"(?P<{name}>[^/]+)"
        elif len(before.removeprefix("\\")) == 1:
            expression += f"(?P<{name}>[^/{before}]+|{before})"
        else:
            expression += f"(?P<{name}>(?:(?!{before})[^/])+|{before})"
        before = _literalExpression(text)
        expression += before
    return expression


def _literalExpression(written: str) -> str:
    """Make the expression that matches text in a raw path."""
    if _textOf(written) == written:
        return "".join(map(_characterExpression, written))
    expression = ""
    # Alternating text and runs of escapes.
    for at, part in enumerate(_ESCAPES.split(written)):
        if at % 2 == 0:
            expression += "".join(map(_characterExpression, part))
            continue
        for character in _textOf(part):
            escaped = _escapeExpression(character)
            plain = _characterExpression(character)
            expression += escaped if plain == escaped else f"(?:{plain}|{escaped})"
    return expression


def _characterExpression(character: str) -> str:
    # A raw path contains only printable ASCII, and a percent sign begins an escape.
    if "!" <= character <= "~" and character != "%":
        return re.escape(character)
    return _escapeExpression(character)


def _escapeExpression(character: str) -> str:
    return f"(?i:{''.join(f'%{byte:02X}' for byte in character.encode('utf-8'))})"


# Placeholders for a character or class, and for a repeating group, during reduction of groups.
_ONE, _MANY = "x", "x+"

_BACKSLASHED = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_GROUP = re.compile(r"\((?:\?(?:[a-z-]*:|P?<\w+>|<?[=!]|>))?([^()]*)\)")
_UNBOUNDED = re.compile(r"[*+]\??(?!\+)|\{[0-9]*,\}\??(?!\+)")
_ATOM = re.compile(r"[^*+?{}|](?:([*+]|\{[0-9]*,\})|\?|\{[0-9,]*\})(?![+])\??")


def nestsQuantifiers(source: str) -> bool:
    """
    Return whether a repeated group consists of unbounded repetitions only.

    C{(a+)+} can split a text in a number of ways that doubles with each character, and tries all of
    them before it fails.
    """
    text = _CLASS.sub(_ONE, _BACKSLASHED.sub(_ONE, source))
    while True:
        match = _GROUP.search(text)
        if match is None:
            return False
        repeats = any(_onlyRepeats(branch) for branch in match.group(1).split("|"))
        if repeats and _UNBOUNDED.match(text, match.end()):
            return True
        quantified = text[match.end() : match.end() + 1] in ("*", "+", "?", "{")
        inner = _MANY if repeats and not quantified else _ONE
        text = text[: match.start()] + inner + text[match.end() :]


def _onlyRepeats(branch: str) -> bool:
    """Return whether every part of a branch is quantified, and at least one without upper bound."""
    at, unbounded = 0, False
    while at < len(branch):
        match = _ATOM.match(branch, at)
        if match is None:
            return False
        unbounded = unbounded or match.group(1) is not None
        at = match.end()
    return unbounded


Params: TypeAlias = dict[str | int, str | None]
Match: TypeAlias = tuple[Params | MalformedEscape, int]

NO_PARAMS: Params = {}
"""The parameters of matches without any. Shared, so it must not be modified."""


class PathPattern:
    """
    A pattern given as text.

    @ivar source: The pattern as registered.
    @ivar names: The names of the parameters.
    @ivar prefix: Whether the rest of the path may be anything.
    @ivar shapes: The shapes; the first match wins.
    """

    def __init__(self, source: str, caseSensitive: bool, strict: bool, prefix: bool) -> None:
        self.source = source
        self.caseSensitive = caseSensitive
        # The slash after a prefix is part of the rest of the path.
        self.strict = strict and not prefix
        self.prefix = prefix
        self._elements = parsePattern(source, caseSensitive, self.strict)
        if prefix and source == "/":
            self._elements = ()
        self.names = [name for element in self._elements for name in elementNames(element)]
        self.shapes = shapesOf(source, self._elements)

    def match(self, path: str) -> Match | None:
        """
        Match a raw path.

        @return: The parameters, or the error in decoding them, and the length of the matched part,
            which is the whole path unless the pattern is a prefix.
        """
        text = PathText(path, self.caseSensitive)
        for shape in self.shapes:
            found = self._matchShape(shape, text)
            if found is not None:
                return found
        return None

    @cached_property
    def regexp(self) -> re.Pattern[str]:
        """
        Return a regular expression that matches the same paths.

        It does not match paths with needlessly escaped characters.
        """
        expression = "".join(map(_expression, self._elements))
        if self.prefix:
            expression += r"(?=/|\Z)"
        else:
            shape = self.shapes[0]
            exact = self.strict or (shape.wildcard and not shape.tail)
            expression += r"\Z" if exact else r"/?\Z"
        flags = re.ASCII if self.caseSensitive else re.ASCII | re.IGNORECASE
        return re.compile(r"\A" + expression, flags)

    def _matchShape(self, shape: Shape, text: PathText) -> Match | None:
        first = len(shape.head) + 1
        last = len(text.segments) - len(shape.tail)
        if last < first or not _fits(shape.head, text, 1):
            return None
        if shape.wildcard is None:
            ends = range(first, first + 1)
        else:
            # The wildcard is greedy, and takes at least one segment.
            ends = range(last, first if self.prefix else max(first, last - 2), -1)
        for end in ends:
            folds = last - end == 1 and text.segments[-1] == "" and not self.strict
            if (self.prefix or end == last or folds) and _fits(shape.tail, text, end):
                taken = text.offset(end + len(shape.tail)) - 1 if self.prefix else len(text.path)
                return self._params(shape, text, end), taken
        return None

    def _params(self, shape: Shape, text: PathText, end: int) -> Params | MalformedEscape:
        if not self.names:
            return NO_PARAMS
        # Absent optional parameters stay None; the order is the pattern's.
        params: Params = dict.fromkeys(self.names)
        read = _read(shape.head, text, 1, params)
        if shape.wildcard:
            raw = "/".join(text.segments[len(shape.head) + 1 : end])
            value = params[WILDCARD] = decodeEscapes(text.path if shape.wildcard.whole else raw)
            read = read and value is not None and _read(shape.tail, text, end, params)
        return params if read else MalformedEscape()


class RegularPattern:
    """
    A pattern given as a regular expression, which is searched in the raw path.

    @ivar source: The pattern as registered.
    @ivar regexp: The regular expression, equal to C{source}.
    @ivar names: The numbers of the groups from 0, then the names of named groups.
    @ivar prefix: Whether the rest of the path may be anything.
    """

    def __init__(self, source: re.Pattern[str], prefix: bool) -> None:
        self.source = self.regexp = source
        self.prefix = prefix
        self.names = [str(at) for at in range(source.groups)] + list(source.groupindex)

    def match(self, path: str) -> Match | None:
        """Match a path, as L{PathPattern.match}."""
        found = self.regexp.search(path)
        if found is None:
            return None
        end = self._taken(path, found) if self.prefix else len(path)
        if end is None:
            return None
        if not self.names:
            return NO_PARAMS, end
        params: Params = {}
        for at, group in enumerate(found.groups()):
            params[at] = group and decodeEscapes(group)
            if group is not None and params[at] is None:
                return MalformedEscape(), end
        for name, number in self.regexp.groupindex.items():
            params[name] = params[number - 1]
        return params, end

    def _taken(self, path: str, found: re.Match[str]) -> int | None:
        """
        Return the length of the path that a prefix matches: whole segments from its beginning.
        """
        if found.end() == found.start():
            return 0
        # A slash at the end of the match begins the rest.
        end = found.end() - (path[found.end() - 1] == "/")
        if found.start() == 0 and path[end : end + 1] in ("", "/"):
            return end
        return None


Pattern: TypeAlias = PathPattern | RegularPattern
"""The compiled path of a route."""


def compilePattern(
    path: str | re.Pattern[str],
    *,
    caseSensitive: bool = False,
    strict: bool = False,
    prefix: bool = False,
) -> Pattern:
    """
    Compile the pattern of a route or of middleware.

    @param caseSensitive: Whether the text of the pattern is case-sensitive.
    @param strict: Whether a trailing slash is significant.
    @param prefix: Whether the pattern also matches everything below it.
    @raise ValueError: If the pattern is invalid; the message suggests a correction.
    """
    if isinstance(path, str):
        return PathPattern(path, caseSensitive, strict, prefix)
    if not isinstance(path, re.Pattern) or not isinstance(path.pattern, str):
        raise ValueError(f"the pattern {path!r} is neither text nor a regular expression for text")
    if nestsQuantifiers(path.pattern):
        warnings.warn(
            f"the regular expression {path.pattern!r} has nested repetitions: some paths "
            "would take it hours",
            RuntimeWarning,
            stacklevel=2,
        )
    return RegularPattern(path, prefix)


def _fits(elements: Sequence[Element], text: PathText, at: int) -> bool:
    """Return whether the segments of a path from C{at} match the elements."""
    for element in elements:
        if isinstance(element, Literal):
            fits = text.keys[at] == element.key
        elif isinstance(element, Mixed):
            fits = element.expression.fullmatch(text.segments[at]) is not None
        else:
            fits = text.segments[at] != ""
        if not fits:
            return False
        at += 1
    return True


def _read(elements: Sequence[Element], text: PathText, at: int, params: Params) -> bool:
    """Set the parameters of matching elements; return whether all could be decoded."""
    for element in elements:
        if isinstance(element, Parameter):
            params[element.name] = text.values[at]
            if text.values[at] is None:
                return False
        elif isinstance(element, Mixed):
            found = element.expression.fullmatch(text.segments[at])
            assert found is not None
            for name, raw in found.groupdict().items():
                params[name] = value = decodeEscapes(raw)
                if value is None:
                    return False
        at += 1
    return True


def _expression(element: Element) -> str:
    """Make an element's part of the expression for the whole path."""
    if isinstance(element, Literal):
        return "/" + element.expression
    if isinstance(element, Mixed):
        return "/" + element.expression.pattern
    if isinstance(element, Parameter):
        one = f"/(?P<{element.name}>[^/]+)"
        return f"(?:{one})?" if element.optional else one
    return "(.*)" if element.whole else "/(.*)"
