"""Bodies as they are."""

from collections.abc import Callable
from typing import Any

from storagegate.http.bodies import BodyOptions, BodyParser, Wanted


def raw(
    type: Wanted = "application/octet-stream",
    limit: int | str = "100kb",
    inflate: bool = True,
    verify: Callable[[Any, Any, bytes, str | None], Any] | None = None,
) -> Callable[..., Any]:
    """
    Make middleware that puts bodies into C{req.body}, as C{bytes}.

    @param type: The media type, several, or C{(req) -> bool}.
    @param limit: How long a body may be once inflated, in bytes or text.
    @param inflate: Whether to take bodies with a Content-Encoding.
    @param verify: Called C{(req, res, body, None)}; refuses by raising.
    @raise ValueError: If the limit is no size.
    """
    options = BodyOptions(limit=limit, type=type, inflate=inflate, verify=verify)
    return BodyParser(options, None).handle
