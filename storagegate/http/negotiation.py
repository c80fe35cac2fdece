"""
What a client would like best: Accept, Accept-Encoding, Accept-Language and Accept-Charset.

The grammar is that of RFC 9110 section 12.5, read leniently: a piece that cannot be read is left
out, the rest counts::

    header    = [ piece *( "," piece ) ]
    piece     = name *( ";" parameter ) [ ";" "q=" number ]
    name      = token / token "/" token / token "-" token / "*"
    parameter = token "=" ( token / quoted-string )

What is offered is sorted by the client's number, then by how exactly the client
named it, then by the client's order, then by the server's. Several pieces may speak of one thing:
the most exact one counts. Both are what C{negotiator} does for users of Express.

The work grows with the length of the header, not with its square.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

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


Fit = tuple[int, float, int]
"""How exactly a piece names what is offered, its quality and its order: the greatest counts."""

Index = dict[str, list[_Piece]]


def preferredTypes(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the media types that an Accept header allows, best first.

    @param header: The header; without one, or with an empty one, everything is welcome.
    @param offered: Full media types. With none, what the client named is returned.
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

    @param offered: Codings. With none, what the client named is returned.
    @param preference: What comes first among codings that the client likes equally well.
    """
    pieces = list(_read(header or "", _NAME))
    if not any(piece.name.lower() in ("identity", "*") for piece in pieces):
        # One that the client refused says nothing of how well it likes the plain bytes.
        least = min((piece.quality for piece in pieces if 0 < piece.quality < 1), default=1.0)
        last = pieces[-1].order + 1 if pieces else 0
        pieces.append(_Piece("identity", {}, least, last))
    places = {coding: place for place, coding in enumerate(preference)}
    return _ranked(pieces, offered, _fitsByName(pieces), places)


def preferredCharsets(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the charsets that an Accept-Charset header allows, best first.

    @param header: The header; without one everything is welcome.
    @param offered: Charsets. With none, what the client named is returned.
    """
    pieces = _read("*" if header is None else header, _NAME)
    return _ranked(pieces, offered, _fitsByName(pieces))


def preferredLanguages(header: str | None, offered: Sequence[str] = ()) -> list[str]:
    """
    Return the languages that an Accept-Language header allows, best first.

    C{en} in the header allows C{en-GB}, and C{en-GB} also allows C{en}.

    @param header: The header; without one everything is welcome.
    @param offered: Language tags. With none, what the client named is returned.
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


def _indexed(pieces: Iterable[_Piece], key: Callable[[str], str]) -> Index:
    index: Index = {}
    for piece in pieces:
        index.setdefault(key(piece.name), []).append(piece)
    return index


def _fitsOf(*groups: Sequence[_Piece] | None) -> Iterator[Fit]:
    """List how pieces fit; those of a later group fit more exactly."""
    for exactness, pieces in enumerate(groups):
        for piece in pieces or ():
            yield exactness, piece.quality, piece.order


def _fitsByName(pieces: Iterable[_Piece]) -> Callable[[str], Iterator[Fit]]:
    """Match by name without regard to case, else by C{*}."""
    names = _indexed(pieces, str.lower)
    return lambda one: _fitsOf(names.get("*"), names.get(one.lower()))


def _ranked(
    pieces: Iterable[_Piece],
    offered: Sequence[str],
    fits: Callable[[str], Iterator[Fit]],
    places: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """
    Return what is welcome of what is offered, best first; without an offer, what was requested.

    @param places: Decide between names of one quality; those without a place come last.
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
