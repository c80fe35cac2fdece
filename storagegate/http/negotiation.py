"""
What a client would like best: Accept, Accept-Encoding, Accept-Language and Accept-Charset.

The grammar is that of RFC 9110 section 12.5, read leniently: a piece that cannot be read is left
out, the rest counts::

    header    = [ piece *( "," piece ) ]
    piece     = name *( ";" parameter ) [ ";" "q=" number ]
    name      = token / token "/" token / token "-" token / "*"
    parameter = token "=" ( token / quoted-string )

What is offered is answered best first: by the client's number, then by how exactly the client
named it, then by the client's order, then by the server's. Several pieces may speak of one thing:
the most exact one counts. Both are what C{negotiator} does for users of Express.

The work grows with the length of the header, not with its square.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import attrs

# Browsers repeat a handful of short headers for ever: reading one takes 4 microseconds, finding it
# 0.1. Longer ones are read each time, so that what is kept stays under 1 MiB.
_REMEMBERED = 160

# Splits outside quoted strings. Each alternative begins with another character, and an open quote
# runs to the end, so that nothing is ever read twice.
_QUOTED = r'"(?:[^"\\]|\\.?)*+"?'
_BETWEEN_COMMAS = re.compile(rf'(?:[^,"]|{_QUOTED})++', re.DOTALL)
_BETWEEN_SEMICOLONS = re.compile(rf'(?:[^;"]|{_QUOTED})++', re.DOTALL)

_NAME = re.compile(r"[^\s;]+")
_TYPE = re.compile(r"[^\s/;]+/[^\s;]+")
_LANGUAGE = re.compile(r"[^\s;-]+(?:-[^\s;]+)?")

# Floating point numbers have no more digits that say anything.
_QUALITY = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}", re.ASCII)


@attrs.frozen
class _Piece:
    """One piece of a header: a name, what it is narrowed by, and how much it is liked."""

    name: str
    parameters: dict[str, str]
    quality: float
    order: int


@attrs.frozen
class _Match:
    """How a thing on offer meets the client's wishes."""

    quality: float
    exactness: int
    order: int


def preferredTypes(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the media types that an Accept header allows, best first.

    @param header: The header; without one, or with an empty one, everything is welcome.
    @param offered: Full media types. With none, what the client asked for is given.
    """
    if offered and not header:
        return list(offered)
    pieces = _read("*/*" if header is None else header, _TYPE)
    if not offered:
        return _asked(pieces)
    byName: dict[str, list[_Piece]] = {}
    for piece in pieces:
        byName.setdefault(piece.name.lower(), []).append(piece)

    def match(one: str) -> _Match | None:
        given = _piece(one, 0, _TYPE)
        if given is None:
            return None
        name = given.name.lower()
        kind, _, subtype = name.partition("/")
        patterns = ((name, 6), (f"{kind}/*", 4), (f"*/{subtype}", 2), ("*/*", 0))
        return _best(
            _Match(piece.quality, exactness + bool(piece.parameters), piece.order)
            for pattern, exactness in patterns
            for piece in byName.get(pattern, ())
            if _narrowed(piece.parameters, given.parameters)
        )

    return _ranked(offered, match)


def preferredEncodings(
    header: str | None, offered: Sequence[str] = (), preference: Sequence[str] = ()
) -> list[str]:
    """
    Return the content codings that an Accept-Encoding header allows, best first.

    C{identity} is allowed, and comes last, unless the header says otherwise.

    @param offered: Codings. With none, what the client asked for is given.
    @param preference: What comes first among codings that the client likes equally well.
    """
    pieces = list(_read(header or "", _NAME))
    if not any(piece.name.lower() in ("identity", "*") for piece in pieces):
        # One that the client refused says nothing of how well it likes the plain bytes.
        least = min((piece.quality for piece in pieces if 0 < piece.quality < 1), default=1.0)
        last = pieces[-1].order + 1 if pieces else 0
        pieces.append(_Piece("identity", {}, least, last))
    places = {coding: place for place, coding in enumerate(preference)}
    if not offered:
        return _asked(pieces, places)
    return _ranked(offered, _byName(pieces), places)


def preferredCharsets(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the charsets that an Accept-Charset header allows, best first.

    @param header: The header; without one everything is welcome.
    @param offered: Charsets. With none, what the client asked for is given.
    """
    pieces = _read("*" if header is None else header, _NAME)
    return _ranked(offered, _byName(pieces)) if offered else _asked(pieces)


def preferredLanguages(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the languages that an Accept-Language header allows, best first.

    C{en} in the header allows C{en-GB}, and C{en-GB} also allows C{en}.

    @param header: The header; without one everything is welcome.
    @param offered: Language tags. With none, what the client asked for is given.
    """
    pieces = _read("*" if header is None else header, _LANGUAGE)
    if not offered:
        return _asked(pieces)
    whole = _strongest(pieces, str.lower)
    prefixes = _strongest(pieces, _primary)

    def match(one: str) -> _Match | None:
        given = _piece(one, 0, _LANGUAGE)
        if given is None:
            return None
        name = given.name.lower()
        found = ((whole, name, 4), (prefixes, name, 2), (whole, _primary(name), 1), (whole, "*", 0))
        for table, key, exactness in found:
            piece = table.get(key)
            if piece is not None:
                return _Match(piece.quality, exactness, piece.order)
        return None

    return _ranked(offered, match)


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()


# Reading


def _read(header: str, name: re.Pattern[str]) -> Sequence[_Piece]:
    """Return the pieces of a header that can be read."""
    return _remember(header, name) if len(header) <= _REMEMBERED else _parse(header, name)


def _parse(header: str, name: re.Pattern[str]) -> tuple[_Piece, ...]:
    texts = _BETWEEN_COMMAS.findall(header) if '"' in header else header.split(",")
    pieces = (_piece(text, order, name) for order, text in enumerate(texts))
    return tuple(piece for piece in pieces if piece is not None)


_remember = lru_cache(maxsize=64)(_parse)


def _piece(text: str, order: int, form: re.Pattern[str]) -> _Piece | None:
    """Read one piece, or give C{None}."""
    name, _, rest = text.partition(";")
    name = name.strip()
    if not form.fullmatch(name):
        return None
    parameters = {}
    quality = 1.0
    for parameter in _BETWEEN_SEMICOLONS.findall(rest) if rest else ():
        key, _, value = parameter.partition("=")
        key = key.strip().lower()
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if key == "q":
            if not _QUALITY.fullmatch(value):
                return None
            # What follows was an extension of Accept, not a part of the type.
            quality = float(value)
            break
        if key:
            parameters[key] = value.lower()
    return _Piece(name, parameters, quality, order)


# Matching and ranking


def _narrowed(wanted: dict[str, str], given: dict[str, str]) -> bool:
    """Return whether a type has the parameters that a piece asks for."""
    return all(value in ("*", given.get(key, "")) for key, value in wanted.items())


def _best(matches: Iterable[_Match]) -> _Match | None:
    """Choose the piece that counts: the most exact, then the best liked, then the last."""
    return max(
        matches, key=lambda match: (match.exactness, match.quality, match.order), default=None
    )


def _strongest(pieces: Iterable[_Piece], key: Callable[[str], str]) -> dict[str, _Piece]:
    """Return the piece that counts for each name: the best liked, of equals the last."""
    strongest: dict[str, _Piece] = {}
    for piece in pieces:
        name = key(piece.name)
        other = strongest.get(name)
        if other is None or piece.quality >= other.quality:
            strongest[name] = piece
    return strongest


def _byName(pieces: Iterable[_Piece]) -> Callable[[str], _Match | None]:
    """Match by name without regard to case, else by C{*}."""
    strongest = _strongest(pieces, str.lower)
    star = strongest.get("*")

    def match(one: str) -> _Match | None:
        piece = strongest.get(one.lower())
        if piece is not None:
            return _Match(piece.quality, 1, piece.order)
        return None if star is None else _Match(star.quality, 0, star.order)

    return match


def _ranked(
    offered: Sequence[str],
    match: Callable[[str], _Match | None],
    places: dict[str, int] | None = None,
) -> list[str]:
    """Return what is welcome of what is offered, best first; C{places} decides between equals."""
    last = len(places or ())
    found: list[tuple[float, int, int, int, int, str]] = []
    for one in offered:
        fit = match(one)
        if fit is not None and fit.quality > 0:
            place = places.get(one, last) if places else 0
            found.append((-fit.quality, place, -fit.exactness, fit.order, len(found), one))
    return [key[-1] for key in sorted(found)]


def _asked(pieces: Iterable[_Piece], places: dict[str, int] | None = None) -> list[str]:
    """Return what the client asked for, best first."""
    last = len(places or ())
    found = [
        (-piece.quality, places.get(piece.name, last) if places else 0, piece.order, piece.name)
        for piece in pieces
        if piece.quality > 0
    ]
    return [key[-1] for key in sorted(found)]
