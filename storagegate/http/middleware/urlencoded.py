"""Bodies of forms."""

from collections.abc import Callable
from functools import partial
from typing import Any

from storagegate.http.bodies import BodyOptions, BodyParser, Wanted
from storagegate.http.errors import HTTPError
from storagegate.http.querystring import DEPTH_LIMIT, TooDeep, TooManyParameters, parseForm

_CHARSETS = {"utf-8": "utf-8", "iso-8859-1": "latin-1"}

_MARK = b"\xef\xbb\xbf"


def urlencoded(
    extended: bool = False,
    limit: int | str = "100kb",
    parameterLimit: int = 1000,
    depth: int = 32,
    inflate: bool = True,
    type: Wanted = "application/x-www-form-urlencoded",
    verify: Callable[[Any, Any, bytes, str | None], Any] | None = None,
) -> Callable[..., Any]:
    """
    Make middleware that parses URL-encoded forms into C{req.body}, a dictionary of strings.

    Errors: those of L{json<storagegate.http.middleware.json.json>}, 413 C{parameters.too.many}, 400
    C{querystring.parse.rangeError} for a name that is nested too deeply.

    @param extended: Whether C{a[b]=1} nests; otherwise brackets are part of the name.
    @param limit: How long a body may be once inflated, in bytes or text.
    @param parameterLimit: How many parameters a form may have.
    @param depth: How many brackets a name may have.
    @param inflate: Whether to take bodies with a Content-Encoding.
    @param type: The media type, several, or C{(req) -> bool}.
    @param verify: Called C{(req, res, body, charset)} before parsing; refuses by raising.
    @raise ValueError: If a number is none that is allowed.
    """
    _checkNumber("parameterLimit", parameterLimit, 1, None)
    _checkNumber("depth", depth, 0, DEPTH_LIMIT)
    options = BodyOptions(limit=limit, type=type, inflate=inflate, verify=verify)
    parse = partial(_parse, extended=bool(extended), parameterLimit=parameterLimit, depth=depth)
    return BodyParser(options, parse, _CHARSETS, "utf-8").handle


def _checkNumber(name: str, value: Any, minimum: int, maximum: int | None) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < minimum
        or (maximum is not None and value > maximum)
    ):
        bounds = f"from {minimum} to {maximum}" if maximum is not None else f"from {minimum} up"
        raise ValueError(f"the option {name} is a whole number {bounds}, not {value!r}")


def _parse(
    body: bytes, codec: str, *, extended: bool, parameterLimit: int, depth: int
) -> dict[str, Any]:
    try:
        return parseForm(body.removeprefix(_MARK), codec, extended, parameterLimit, depth)
    except TooManyParameters:
        raise HTTPError(
            413, "The form has too many parameters", "parameters.too.many", limit=parameterLimit
        ) from None
    except TooDeep:
        raise HTTPError(
            400,
            "The name of a parameter is nested too deeply",
            "querystring.parse.rangeError",
            limit=depth,
        ) from None
