"""
Cross-origin access to a bucket: the rules, and the rule that allows a request.

A rule allows methods to pages of certain origins. The first rule that matches a request decides;
for a preflight request, the rule must also allow the header fields that it names. Source: "Using
cross-origin resource sharing" in the Amazon S3 User Guide, and the Fetch standard.
"""

from collections.abc import Iterable, Sequence

from attrs import frozen

from storagegate.net.http.parser import lowerName
from storagegate.objects import errors

RULE_LIMIT = 100
"""Rules per bucket: Amazon's limit."""

REQUESTED_LIMIT = 100
"""
The most header fields of a request that a rule can allow. Each is compared with each pattern of
each rule: thousands of names, which fit into a header, would block the reactor for seconds.
"""

_ID_LIMIT = 255

_METHODS = frozenset(("GET", "PUT", "POST", "DELETE", "HEAD"))


@frozen
class CORSRule:
    """
    A CORS rule.

    @ivar origins: Allowed origins, each with at most one C{*}, which matches any characters.
    @ivar methods: Allowed HTTP methods.
    @ivar headers: Names of header fields that requests may have, each with at most one C{*}; in any
        case.
    @ivar exposed: Names of header fields that pages may read.
    @ivar maxAge: Seconds for which browsers may cache the response to a preflight request.
    @ivar id: The user's id of the rule.
    """

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    maxAge: int | None = None
    id: str = ""


def _fits(pattern: str, text: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return pattern == text
    isLong = len(text) >= len(before) + len(after)
    return isLong and text.startswith(before) and text.endswith(after)


def findRule(
    rules: Iterable[CORSRule], origin: str, method: str, requested: Sequence[str] = ()
) -> CORSRule | None:
    """
    Find the first rule that allows a request.

    @param requested: The header field names of a preflight request, in lower case.
    """
    if len(requested) > REQUESTED_LIMIT:
        return None
    for rule in rules:
        if (
            method in rule.methods
            and any(_fits(each, origin) for each in rule.origins)
            and all(any(_fits(each.lower(), name) for each in rule.headers) for name in requested)
        ):
            return rule
    return None


def _isToken(text: str) -> bool:
    # A token may contain "*".
    try:
        lowerName(text.encode())
    except ValueError:
        return False
    return bool(text)


def checkRule(rule: CORSRule) -> None:
    """
    Check a rule.

    @raise InvalidRequest: The message names the problem.
    """
    message = ""
    for method in rule.methods:
        if method not in _METHODS:
            message = (
                f"Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            )
    for name, values in ("AllowedOrigin", rule.origins), ("AllowedHeader", rule.headers):
        for value in values:
            if value.count("*") > 1:
                message = f'{name} "{value}" can not have more than one wildcard.'
    for value in rule.exposed:
        if "*" in value:
            message = (
                f'ExposeHeader "{value}" contains wildcard. We currently do not support wildcard'
                " for ExposeHeader."
            )
    for name, values in ("AllowedHeader", rule.headers), ("ExposeHeader", rule.exposed):
        for value in values:
            if not _isToken(value):
                message = f'{name} "{value}" is not the name of a header field.'
    for value in rule.origins:
        if not (value.isascii() and value.isprintable() and value):
            message = f'AllowedOrigin "{value}" is not an origin.'
    if len(rule.id) > _ID_LIMIT:
        message = f"The ID of a CORS rule may have {_ID_LIMIT} characters."
    if message:
        raise errors.InvalidRequest(message)
