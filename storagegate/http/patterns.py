"""
Route patterns: what a route or a middleware is registered under, held against a request's path.

A path is raw here: ASCII, its percent escapes as they came, with a slash at its beginning.
"""

import re
import warnings
from collections.abc import Sequence
from typing import TypeAlias

from storagegate.http.pathtext import MalformedEscape, PathText, decodeEscapes
from storagegate.http.patternsyntax import (
    WILDCARD,
    Element,
    Literal,
    Mixed,
    Parameter,
    Shape,
    elementNames,
    parsePattern,
    shapesOf,
)
from storagegate.http.regexadvice import nestsQuantifiers

Params: TypeAlias = dict[str | int, str | None]
Match: TypeAlias = tuple[Params | MalformedEscape, int]

NO_PARAMS: Params = {}
"""The parameters of every match that has none. Nobody may write into it."""


class Pattern:
    """
    What a route is registered under.

    @ivar source: What was registered.
    @ivar names: The names of the parameters.
    @ivar prefix: Whether the rest of the path may be anything.
    """

    source: str | re.Pattern[str]
    names: list[str]
    prefix: bool

    @property
    def regexp(self) -> re.Pattern[str]:
        """Give a regular expression that matches the same paths."""
        raise NotImplementedError

    def match(self, path: str) -> Match | None:
        """
        Hold a path against the pattern.

        @param path: The raw path.
        @return: The parameters, or why they cannot be decoded, and how much of the path was taken,
            which is all unless the pattern is a prefix.
        """
        raise NotImplementedError


class PathPattern(Pattern):
    """
    A pattern that was given as text.

    @ivar shapes: The ways to read it; the first that matches counts.
    """

    def __init__(self, source: str, caseSensitive: bool, strict: bool, prefix: bool) -> None:
        self.source = source
        self.caseSensitive = caseSensitive
        # What is below a prefix is not the prefix's to judge, and a slash begins it.
        self.strict = strict and not prefix
        self.prefix = prefix
        self._elements = parsePattern(source, caseSensitive, self.strict)
        if prefix and source == "/":
            self._elements = ()
        self.names = [name for element in self._elements for name in elementNames(element)]
        self.shapes = shapesOf(source, self._elements)
        self._regexp: re.Pattern[str] | None = None

    def match(self, path: str) -> Match | None:
        """Hold a path against the pattern."""
        text = PathText(path, self.caseSensitive)
        for shape in self.shapes:
            found = self._spanning(shape, text) if shape.wildcard else self._plain(shape, text)
            if found is not None:
                return found
        return None

    @property
    def regexp(self) -> re.Pattern[str]:
        """
        Give a regular expression that matches the same paths.

        It does not see through escapes that stand for what could be written without.
        """
        if self._regexp is None:
            expression = "".join(map(_expression, self._elements))
            if self.prefix:
                expression += r"(?=/|\Z)"
            else:
                shape = self.shapes[0]
                exact = self.strict or (shape.wildcard and not shape.tail)
                expression += r"\Z" if exact else r"/?\Z"
            flags = re.ASCII if self.caseSensitive else re.ASCII | re.IGNORECASE
            self._regexp = re.compile(r"\A" + expression, flags)
        return self._regexp

    def _plain(self, shape: Shape, text: PathText) -> Match | None:
        count = len(shape.head)
        rest = len(text.segments) - 1 - count
        if rest < 0 or not _fits(shape.head, text, 1):
            return None
        if self.prefix:
            return self._params(shape, text), text.offset(count + 1) - 1
        if rest == 0 or (rest == 1 and text.segments[-1] == "" and not self.strict):
            return self._params(shape, text), len(text.path)
        return None

    def _spanning(self, shape: Shape, text: PathText) -> Match | None:
        first = len(shape.head) + 1
        last = len(text.segments) - len(shape.tail)
        if last <= first or not _fits(shape.head, text, 1):
            return None
        if not shape.tail:
            return self._params(shape, text, len(text.segments)), len(text.path)
        if self.prefix:
            # As a greedy expression does: the wildcard takes as much as it can.
            ends = range(last, first, -1)
        else:
            folded = not self.strict and text.segments[-1] == ""
            ends = range(last, last - 2 if folded else last - 1, -1)
        for end in ends:
            if end > first and _fits(shape.tail, text, end):
                taken = text.offset(end + len(shape.tail)) - 1
                return self._params(shape, text, end), taken if self.prefix else len(text.path)
        return None

    def _params(self, shape: Shape, text: PathText, end: int = 0) -> Params | MalformedEscape:
        if not self.names:
            return NO_PARAMS
        # What is optional and absent stays None; the order is the pattern's.
        params: Params = dict.fromkeys(self.names)
        read = _read(shape.head, text, 1, params)
        if shape.wildcard:
            raw = "/".join(text.segments[len(shape.head) + 1 : end])
            value = params[WILDCARD] = decodeEscapes(text.path if shape.wildcard.whole else raw)
            read = read and value is not None and _read(shape.tail, text, end, params)
        return params if read else MalformedEscape()


class RegularPattern(Pattern):
    """A pattern that was given as a regular expression, which is searched in the raw path."""

    def __init__(self, source: re.Pattern[str], prefix: bool) -> None:
        self.source = self._compiled = source
        self.prefix = prefix
        self.names = [str(at) for at in range(source.groups)] + list(source.groupindex)

    @property
    def regexp(self) -> re.Pattern[str]:
        """Give the expression itself."""
        return self._compiled

    def match(self, path: str) -> Match | None:
        """Search in a path."""
        found = self._compiled.search(path)
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
        for name, number in self._compiled.groupindex.items():
            params[name] = params[number - 1]
        return params, end

    def _taken(self, path: str, found: re.Match[str]) -> int | None:
        """Tell how much of a path a prefix takes, which is whole segments from the beginning."""
        if found.end() == found.start():
            return 0
        # A slash that it matched begins what is below.
        end = found.end() - (path[found.end() - 1] == "/")
        if found.start() == 0 and path[end : end + 1] in ("", "/"):
            return end
        return None


def compilePattern(
    path: str | re.Pattern[str],
    *,
    caseSensitive: bool = False,
    strict: bool = False,
    prefix: bool = False,
) -> Pattern:
    """
    Compile what a route or a middleware is registered under.

    @param caseSensitive: Whether upper and lower case differ in the text of the pattern.
    @param strict: Whether one slash more at the end makes another path.
    @param prefix: Whether the pattern is for all that is below it, too.
    @raise ValueError: If the pattern cannot be used; the message says what to write instead.
    """
    if isinstance(path, str):
        return PathPattern(path, caseSensitive, strict, prefix)
    if not isinstance(path, re.Pattern) or not isinstance(path.pattern, str):
        raise ValueError(f"the pattern {path!r} is neither text nor a regular expression for text")
    if nestsQuantifiers(path.pattern):
        warnings.warn(
            f"the regular expression {path.pattern!r} repeats what repeats: a path can be made "
            "that takes it hours",
            RuntimeWarning,
            stacklevel=2,
        )
    return RegularPattern(path, prefix)


def _fits(elements: Sequence[Element], text: PathText, at: int) -> bool:
    """Tell whether segments of a path, from one on, are what elements say."""
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
    """Read the parameters of elements that fit; tell whether all could be decoded."""
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
    """Give an element's part of the expression for the whole path."""
    if isinstance(element, Literal):
        return "/" + element.expression
    if isinstance(element, Mixed):
        return "/" + element.expression.pattern
    if isinstance(element, Parameter):
        one = f"/(?P<{element.name}>[^/]+)"
        return f"(?:{one})?" if element.optional else one
    return "(.*)" if element.whole else "/(.*)"
