"""
Patterns of bucket policies::

    pattern  = *(text / "*" / "?" / variable)
    variable = "${" key [", '" default "'"] "}" / "${*}" / "${?}" / "${$}"

C{*} matches any run of characters, including slashes; C{?} matches one character. A variable stands
for the literal value of a condition key in the request: a star in it matches only a star. If the
request has no value and the variable no default, the pattern matches nothing.

The pieces between stars are searched from left to right, each at its first position, and no
position is tried again for another piece. So matching takes time in proportion to the text; the
positions of pieces with C{?} are tested many at a time.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from attrs import frozen


@frozen
class WildcardSign:
    """A C{*} or C{?} of a pattern."""

    sign: str


ANY: Final = WildcardSign("*")
ONE: Final = WildcardSign("?")


@frozen
class Variable:
    """
    A variable of a pattern.

    @ivar key: The condition key as written.
    @ivar default: The value if the request has none; L{None} for no default.
    """

    key: str
    default: str | None = None


Token = str | WildcardSign | Variable
Tokens = tuple[Token, ...]

_SIGNS = {"*": "*", "?": "?", "$": "$"}


def tokenise(text: str, *, wildcards: bool, variables: bool) -> Tokens:
    """
    Read a pattern.

    @param wildcards: Whether C{*} and C{?} are wildcards.
    @param variables: Whether C{${...}} is a variable.
    @return: Wildcards, variables and the non-empty runs of text between them.
    @raise ValueError: A variable is malformed; the text names it.
    """
    tokens: list[Token] = []
    literal = ""
    position = 0
    while position < len(text):
        character = text[position]
        token: Token | None = None
        position += 1
        if wildcards and character in "*?":
            token = ANY if character == "*" else ONE
        elif variables and character == "$" and text[position : position + 1] == "{":
            end = text.find("}", position)
            if end < 0:
                raise ValueError(f"{text[position - 1 :]!a} has no closing brace")
            inner = text[position + 1 : end]
            position = end + 1
            if inner in _SIGNS:
                literal += inner
                continue
            token = _variable(inner)
        if token is None:
            literal += character
            continue
        if literal:
            tokens.append(literal)
            literal = ""
        if not (token is ANY and tokens and tokens[-1] is ANY):
            tokens.append(token)
    if literal:
        tokens.append(literal)
    return tuple(tokens)


def _variable(inner: str) -> Variable:
    key, comma, rest = inner.partition(",")
    default = rest.strip()
    if comma:
        if len(default) < 2 or default[0] != "'" or default[-1] != "'":
            raise ValueError(f"the default of ${{{inner}}} is not in quotation marks")
        return Variable(key.strip(), default[1:-1])
    return Variable(key.strip())


def shownText(text: str) -> str:
    """
    Return a text of a policy for people: half of a surrogate pair, which JSON can escape and no
    response can carry, is a question mark.
    """
    return text.encode("utf-8", "replace").decode()


def patternText(tokens: Tokens) -> str:
    """Return a pattern as text, for people."""
    return shownText(
        "".join(
            token
            if isinstance(token, str)
            else token.sign
            if isinstance(token, WildcardSign)
            else f"${{{token.key}}}"
            for token in tokens
        )
    )


def hasVariables(tokens: Iterable[Token]) -> bool:
    """Return whether a pattern depends on the request."""
    return any(isinstance(token, Variable) for token in tokens)


def resolve(tokens: Tokens, value: Callable[[str], str | None]) -> Tokens | None:
    """
    Replace variables with values.

    @param value: Maps a condition key to its value in the request, or L{None}.
    @return: L{None} if a variable has no value.
    """
    resolved: list[Token] = []
    for token in tokens:
        if isinstance(token, Variable):
            found = value(token.key)
            if found is None:
                found = token.default
            if found is None:
                return None
            if found:
                resolved.append(found)
        else:
            resolved.append(token)
    return tuple(resolved)


_Piece = tuple[int, tuple[tuple[int, str], ...]]
"""A run without stars: its length, and its texts with offsets; C{?} adds only to both."""


def _pieces(tokens: Tokens) -> list[_Piece]:
    pieces: list[_Piece] = []
    length = 0
    texts: list[tuple[int, str]] = []
    for token in tokens:
        if token is ANY:
            pieces.append((length, tuple(texts)))
            length, texts = 0, []
        elif token is ONE:
            length += 1
        else:
            assert isinstance(token, str), "variables are resolved"
            texts.append((length, token))
            length += len(token)
    pieces.append((length, tuple(texts)))
    return pieces


def _fits(piece: _Piece, text: str, at: int) -> bool:
    length, texts = piece
    if at + length > len(text):
        return False
    return all(text.startswith(each, at + offset) for offset, each in texts)


# Attempts to fit a piece at one position after another, before all positions are tested together.
_ATTEMPTS = 8

_BLOCK = 32 * 1024
"""
The most positions that are tested together: more than the longest value of a request has, which is
one of 20,000 bytes in a form. Pieces of different lengths read different blocks of a longer text,
so no two could share the places of its characters.
"""


def _find(piece: _Piece, text: str, start: int) -> int:
    """Return the first position at or after C{start} where a piece fits; -1 for none."""
    length, texts = piece
    if not texts:
        return start if start + length <= len(text) else -1
    offset, first = texts[0]
    for _ in range(_ATTEMPTS):
        found = text.find(first, start + offset)
        if found < 0 or found - offset + length > len(text):
            return -1
        start = found - offset
        if len(texts) == 1 or _fits(piece, text, start):
            return start
        start += 1
    return _findTogether(piece, text, start)


def _findTogether(piece: _Piece, text: str, start: int) -> int:
    """
    Find a piece as L{_find} does, with one bit a position: each character of the piece clears the
    bits of all positions that it refuses.

    One position after another takes the product of both lengths, half a minute for a policy of 20
    KiB and a header of 16 KiB; this takes milliseconds.
    """
    length, texts = piece
    for block in range(0, len(text) - length + 1, _BLOCK):
        count = min(_BLOCK, len(text) - length + 1 - block)
        skipped = start - block
        if skipped >= count:
            continue
        places = _placesOf(text[block : block + count + length - 1])
        candidates = (1 << count) - 1
        if skipped > 0:
            candidates = candidates >> skipped << skipped
        for offset, each in texts:
            for place, character in enumerate(each, offset):
                candidates &= places.get(character, 0) >> place
            if not candidates:
                break
        if candidates:
            # The lowest bit is the first position.
            return block + (candidates & -candidates).bit_length() - 1
    return -1


# The conditions of a policy compare few texts of a request with many patterns.
@lru_cache(maxsize=8)
def _placesOf(text: str) -> dict[str, int]:
    """Return the places of each character in a text, as bits."""
    found: dict[str, int] = {}
    for place, character in enumerate(text):
        found[character] = found.get(character, 0) | 1 << place
    return found


def matcher(tokens: Tokens) -> Callable[[str], bool]:
    """
    Make a test of whether a whole text matches a pattern.

    @param tokens: A pattern without variables.
    """
    pieces = _pieces(tokens)
    if len(pieces) == 1:
        whole = pieces[0]
        return lambda text: len(text) == whole[0] and _fits(whole, text, 0)
    first, *middle, last = pieces
    if tokens == (ANY,):
        return lambda text: True
    if len(tokens) == 2 and isinstance(tokens[0], str) and tokens[1] is ANY:
        # Most patterns are a prefix and a star.
        prefix = tokens[0]
        return lambda text: text.startswith(prefix)

    def matches(text: str) -> bool:
        if not _fits(first, text, 0):
            return False
        position = first[0]
        for piece in middle:
            position = _find(piece, text, position)
            if position < 0:
                return False
            position += piece[0]
        end = len(text) - last[0]
        return end >= position and _fits(last, text, end)

    return matches


def derive(tokens: Tokens, text: str) -> tuple[Tokens, ...]:
    """
    Return the patterns of the possible continuations of a text: the Brzozowski derivatives.

    @param tokens: A pattern; there is no derivative past a variable.
    @return: Patterns, one of which must match the rest; empty if no continuation can match.
    """
    # One token per character, so that a position in the pattern is a number.
    singles: list[Token] = []
    for token in tokens:
        if isinstance(token, str):
            singles.extend(token)
        else:
            singles.append(token)

    def closed(places: Iterable[int]) -> set[int]:
        reached = set()
        for place in places:
            reached.add(place)
            while place < len(singles) and singles[place] is ANY:
                place += 1
                reached.add(place)
        return reached

    places = closed([0])
    for character in text:
        following = set()
        for place in places:
            if place < len(singles):
                token = singles[place]
                if token is ANY:
                    following.add(place)
                elif token is ONE or token == character:
                    following.add(place + 1)
        places = closed(following)
    kept = [
        place
        for place in sorted(places)
        # The star's own pattern already matches the continuation after it.
        if not (place and singles[place - 1] is ANY and place - 1 in places)
    ]
    return tuple(_joined(singles[place:]) for place in kept)


def _joined(singles: Iterable[Token]) -> Tokens:
    joined: list[Token] = []
    for token in singles:
        if isinstance(token, str) and joined and isinstance(joined[-1], str):
            joined[-1] += token
        else:
            joined.append(token)
    return tuple(joined)
