"""
Content negotiation: Accept, Accept-Encoding, Accept-Language and Accept-Charset.

The grammar is from RFC 9110 section 12.5. Parsing is lenient: a malformed piece is ignored::

    header    = [ piece *( "," piece ) ]
    piece     = name *( ";" parameter ) [ ";" "q=" number ]
    name      = token / token "/" token / token "-" token / "*"
    parameter = token "=" ( token / quoted-string )

Offers are sorted by the client's q-value, then by the exactness of the matching piece, then by the
client's order, then by the server's. If several pieces match an offer, the most exact one applies.
Both rules follow C{negotiator}, as used by Express.

Parsing takes time linear in the length of the header.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

# Browsers repeat a handful of short headers: parsing one takes 4 microseconds, a cache hit 0.1.
# Longer ones are parsed each time, so that the cache stays under 1 MiB.
_REMEMBERED = 160

# Splits outside quoted strings. The alternatives begin with different characters, and an unclosed
# quote runs to the end, so that nothing is scanned twice.
_QUOTED = r'"(?:[^"\\]|\\.?)*+"?'
_BETWEEN_COMMAS = re.compile(rf'(?:[^,"]|{_QUOTED})++', re.DOTALL)
_BETWEEN_SEMICOLONS = re.compile(rf'(?:[^;"]|{_QUOTED})++', re.DOTALL)

_NAME = re.compile(r"[^\s;]+")
_TYPE = re.compile(r"[^\s/;]+/[^\s;]+")
_LANGUAGE = re.compile(r"[^\s;-]+(?:-[^\s;]+)?")

# More digits would not be significant in a float.
_QUALITY = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}", re.ASCII)


class _Piece(Struct, frozen=True):
    """One piece of a header: a name, its parameters, its q-value and its position."""

    name: str
    parameters: dict[str, str]
    quality: float
    order: int


Fit = tuple[int, float, int]
"""The exactness with which a piece matches an offer, its quality and its order; the greatest
applies."""

Index = dict[str, list[_Piece]]


def preferredTypes(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the media types that an Accept header allows, best first.

    @param header: The header; without one, or with an empty one, every type is acceptable.
    @param offered: Full media types; without any, the client's own list is returned.
    """
    if offered and not header:
        return list(offered)
    pieces = _read("*/*" if header is None else header, _TYPE)
    names = _indexed(pieces, str.lower)

    def fits(one: str) -> Iterator[Fit]:
        given = _piece(one, 0, _TYPE)
        if given is None:
            return
        name = given.name.lower()
        kind, _, subtype = name.partition("/")
        for pattern, exactness in ((name, 6), (f"{kind}/*", 4), (f"*/{subtype}", 2), ("*/*", 0)):
            for piece in names.get(pattern, ()):
                wanted = piece.parameters.items()
                if all(value in ("*", given.parameters.get(key, "")) for key, value in wanted):
                    yield exactness + bool(wanted), piece.quality, piece.order

    return _ranked(pieces, offered, fits)


def preferredEncodings(
    header: str | None, offered: Sequence[str] = (), preference: Sequence[str] = ()
) -> list[str]:
    """
    Return the content codings that an Accept-Encoding header allows, best first.

    C{identity} is allowed, and comes last, unless the header says otherwise.

    @param offered: Codings; without any, the client's own list is returned.
    @param preference: The order of codings with equal q-values.
    """
    pieces = list(_read(header or "", _NAME))
    if not any(piece.name.lower() in ("identity", "*") for piece in pieces):
        # A refused coding has no bearing on the rank of the plain bytes.
        least = min((piece.quality for piece in pieces if 0 < piece.quality < 1), default=1.0)
        last = pieces[-1].order + 1 if pieces else 0
        pieces.append(_Piece("identity", {}, least, last))
    places = {coding: place for place, coding in enumerate(preference)}
    return _ranked(pieces, offered, _fitsByName(pieces), places)


def preferredCharsets(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the charsets that an Accept-Charset header allows, best first.

    @param header: The header; without one, everything is acceptable.
    @param offered: Charsets; without any, the client's own list is returned.
    """
    pieces = _read("*" if header is None else header, _NAME)
    return _ranked(pieces, offered, _fitsByName(pieces))


def preferredLanguages(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the languages that an Accept-Language header allows, best first.

    C{en} in the header allows C{en-GB}, and C{en-GB} also allows C{en}.

    @param header: The header; without one, everything is acceptable.
    @param offered: Language tags; without any, the client's own list is returned.
    """
    pieces = _read("*" if header is None else header, _LANGUAGE)
    whole = _indexed(pieces, str.lower)
    primary = _indexed(pieces, _primary)

    def fits(one: str) -> Iterator[Fit]:
        given = _piece(one, 0, _LANGUAGE)
        name = "" if given is None else given.name.lower()
        groups = (whole.get("*"), whole.get(_primary(name)), primary.get(name), whole.get(name))
        return _fitsOf(*groups) if name else iter(())

    return _ranked(pieces, offered, fits)


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()


# Reading


def _read(header: str, name: re.Pattern[str]) -> Sequence[_Piece]:
    """Return the valid pieces of a header."""
    return _remember(header, name) if len(header) <= _REMEMBERED else _parse(header, name)


def _parse(header: str, name: re.Pattern[str]) -> tuple[_Piece, ...]:
    texts = _BETWEEN_COMMAS.findall(header) if '"' in header else header.split(",")
    pieces = (_piece(text, order, name) for order, text in enumerate(texts))
    return tuple(piece for piece in pieces if piece is not None)


_remember = lru_cache(maxsize=64)(_parse)


def _piece(text: str, order: int, form: re.Pattern[str]) -> _Piece | None:
    """Parse one piece, or return C{None} if it is malformed."""
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
            # The rest was an extension of Accept, not a part of the type.
            quality = float(value)
            break
        if key:
            parameters[key] = value.lower()
    return _Piece(name, parameters, quality, order)


# Matching and ranking


def _indexed(pieces: Iterable[_Piece], key: Callable[[str], str]) -> Index:
    index: Index = {}
    for piece in pieces:
        index.setdefault(key(piece.name), []).append(piece)
    return index


def _fitsOf(*groups: Sequence[_Piece] | None) -> Iterator[Fit]:
    """Yield the fits of pieces; later groups fit more exactly."""
    for exactness, pieces in enumerate(groups):
        for piece in pieces or ():
            yield exactness, piece.quality, piece.order


def _fitsByName(pieces: Iterable[_Piece]) -> Callable[[str], Iterator[Fit]]:
    """Match by case-insensitive name, otherwise by C{*}."""
    names = _indexed(pieces, str.lower)
    return lambda one: _fitsOf(names.get("*"), names.get(one.lower()))


def _ranked(
    pieces: Iterable[_Piece],
    offered: Sequence[str],
    fits: Callable[[str], Iterator[Fit]],
    places: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """
    Return the acceptable offers, best first; without offers, the client's own list.

    @param places: Ranks names of equal quality; names without a rank come last.
    """
    last = len(places)
    if not offered:
        named = [
            (-piece.quality, places.get(piece.name, last), piece.order, piece.name)
            for piece in pieces
            if piece.quality > 0
        ]
        return [key[-1] for key in sorted(named)]
    found = []
    for at, one in enumerate(offered):
        exactness, quality, order = max(fits(one), default=(0, 0.0, 0))
        if quality > 0:
            found.append((-quality, places.get(one, last), -exactness, order, at, one))
    return [fit[-1] for fit in sorted(found)]
