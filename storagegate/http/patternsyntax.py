"""
The syntax of route patterns.

::

    pattern   = "*" / 1*( "/" segment )
    segment   = "*" / parameter [ "?" ] / mixed / literal
    mixed     = [ literal ] parameter *( literal parameter ) [ literal ]
    parameter = ":" name            ; a name as in Python

Characters that other routers give a meaning to are refused in a literal, so that no pattern is
silently read in another way than it was meant. Any of them can be written as its percent escape:
in a literal, an escape is the character that it stands for.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

import attrs

from storagegate.http.pathtext import decodeEscapes, foldCase


@attrs.frozen
class Literal:
    """
    A segment that is text.

    @ivar key: What the decoded segment of a path must be, its case folded if case is ignored.
    @ivar expression: A regular expression for the raw segment.
    """

    key: str
    expression: str


@attrs.frozen
class Parameter:
    """A segment that is a parameter."""

    name: str
    optional: bool


@attrs.frozen
class Mixed:
    """A segment with text around or between parameters; the expression is for the raw segment."""

    names: tuple[str, ...]
    expression: re.Pattern[str]


@attrs.frozen
class Wildcard:
    """
    Any number of segments.

    @ivar whole: Whether the slash before them belongs to the value, as it does for a lone C{*}.
    """

    whole: bool


Element: TypeAlias = Literal | Parameter | Mixed | Wildcard


@attrs.frozen
class Shape:
    """
    One way to read a pattern: with all, some or none of its optional parameters.

    @ivar head: The elements before the wildcard, or all of them.
    @ivar tail: Those after it.
    """

    head: tuple[Element, ...]
    wildcard: Wildcard | None
    tail: tuple[Element, ...]


WILDCARD = "*"
"""The name of what a wildcard matches."""

# Each optional parameter can double the ways to read a pattern, and every path is held against all
# of them; nobody writes six apart from each other.
_MAX_SHAPES = 64

_PARAMETER = re.compile(r":([^\W\d]\w*)")
_ESCAPES = re.compile(r"((?:%[0-9A-Fa-f]{2})+)", re.ASCII)

_GROUP = "look at the parameter in the handler, or give a compiled regular expression"
_BRACES = "write an optional parameter as /:id?, or register two routes"
_PLAIN = "for the character itself write {}, or give a compiled regular expression"

_ADVICE = {
    "*": "a * stands alone between slashes and has no name: write /files/* and read params['*'], "
    "or give a compiled regular expression",
    "?": "a ? follows a parameter that is a whole segment, as in /:id?; register two routes for "
    "anything else",
    ":": "a : is followed by the parameter's name; for the character itself write %3A",
    "(": _GROUP,
    ")": _GROUP,
    "{": _BRACES,
    "}": _BRACES,
    "+": _PLAIN.format("%2B"),
    "[": _PLAIN.format("%5B"),
    "]": _PLAIN.format("%5D"),
    "\\": _PLAIN.format("%5C"),
}
"""What to write instead of a character that has a meaning elsewhere."""


def parsePattern(source: str, caseSensitive: bool, strict: bool) -> tuple[Element, ...]:
    """
    Read a pattern.

    @param strict: Whether a slash at its end counts.
    @raise ValueError: If it cannot be read; the message says what to write instead.
    """
    if source == WILDCARD:
        return (Wildcard(whole=True),)
    if source[:1] != "/":
        _refuse(source, "a pattern begins with a slash, or is a lone *")
    segments = source[1:].split("/")
    if len(segments) > 1 and segments[-1] == "" and not strict:
        segments.pop()
    names = _PARAMETER.findall(source)
    for name in names:
        if not name.isidentifier():
            _refuse(source, f"{name} is no name for a parameter")
        if names.count(name) > 1:
            _refuse(source, f"the parameter {name} stands in it twice")
    if segments.count(WILDCARD) > 1:
        _refuse(source, "there can be one * only; give a compiled regular expression")
    elements = tuple(_parseSegment(source, segment, caseSensitive) for segment in segments)
    wildcards = False
    for element in elements:
        wildcards = wildcards or isinstance(element, Wildcard)
        if wildcards and isinstance(element, Parameter) and element.optional:
            _refuse(source, "a * leaves nothing to an optional parameter; register two routes")
    return elements


def shapesOf(source: str, elements: Sequence[Element]) -> tuple[Shape, ...]:
    """Give the ways to read a pattern; those in which the earlier optional parameters take more."""
    runs = [
        list(run)
        for _, run in itertools.groupby(
            elements, lambda element: isinstance(element, Parameter) and element.optional
        )
    ]
    # Of neighbours, the later are absent first: other ways match nothing more.
    ways = [
        range(len(run), -1, -1)
        if isinstance(run[0], Parameter) and run[0].optional
        else (len(run),)
        for run in runs
    ]
    count = 1
    for way in ways:
        count *= len(way)
    if count > _MAX_SHAPES:
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
    """Give the names of the parameters in an element."""
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
    """Undo the escapes of a literal, unless it is no more than text with a percent sign."""
    text = decodeEscapes(written)
    return written if text is None else text


def _mixedExpression(pieces: list[str]) -> str:
    """
    Give the expression for a segment, from text and names by turns.

    Splits where several are possible as Express 5 does: the first parameter takes as much as it
    can, and those after it hold none of the text before them, or are just that text. So each
    place is looked at a bounded number of times, and matching takes linear time.
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
    """Give the expression for text as it stands in a raw path."""
    if _textOf(written) == written:
        return "".join(map(_characterExpression, written))
    expression = ""
    # Text and runs of escapes, by turns.
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
    # Nothing but printable ASCII stands in a raw path, and a percent sign begins an escape.
    if "!" <= character <= "~" and character != "%":
        return re.escape(character)
    return _escapeExpression(character)


def _escapeExpression(character: str) -> str:
    return f"(?i:{''.join(f'%{byte:02X}' for byte in character.encode('utf-8'))})"
