"""
Cross-origin access to a bucket: the rules, and the response headers that follow from them.

A rule allows methods to pages of certain origins. The first rule that matches a request decides;
for a preflight request, the rule must also allow the header fields that it names. Source: "Using
cross-origin resource sharing" in the Amazon S3 User Guide, and the Fetch standard.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.net.http.parser import lowerName
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import checkNames, readTree
from storagegate.s3.xml.writer import document, element

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

RULE_LIMIT = 100
"""Rules per bucket: Amazon's limit."""

REQUESTED_LIMIT = 100
"""
The most header fields of a request that a rule can allow. Each is compared with each pattern of
each rule: thousands of names, which fit into a header, would block the reactor for seconds.
"""

_ID_LIMIT = 255
_MAX_AGE_LIMIT = 2**31 - 1
_ELEMENTS = (
    "ID",
    "AllowedOrigin",
    "AllowedMethod",
    "AllowedHeader",
    "ExposeHeader",
    "MaxAgeSeconds",
)
_METHODS = frozenset(("GET", "PUT", "POST", "DELETE", "HEAD"))
_VARY = b"Origin, Access-Control-Request-Headers, Access-Control-Request-Method"


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

    def fields(self, origin: str, requested: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """
        Return the response header fields for a request that this rule allows.

        @param origin: The origin of the request.
        @param requested: The header field names of a preflight request.
        """
        # Only pages of a named origin may send credentials: browsers refuse them with "*".
        isOpen = "*" in self.origins
        found = [
            (b"Access-Control-Allow-Origin", b"*" if isOpen else origin.encode("latin-1")),
            (b"Access-Control-Allow-Methods", _joined(self.methods)),
        ]
        if requested:
            found.append((b"Access-Control-Allow-Headers", _joined(requested)))
        if self.exposed:
            found.append((b"Access-Control-Expose-Headers", _joined(self.exposed)))
        if self.maxAge is not None:
            found.append((b"Access-Control-Max-Age", b"%d" % self.maxAge))
        if not isOpen:
            found.append((b"Access-Control-Allow-Credentials", b"true"))
        found.append((b"Vary", _VARY))
        return found


def _joined(names: Iterable[str]) -> bytes:
    return ", ".join(names).encode("latin-1")


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


def parseRequested(value: bytes) -> list[str]:
    """Parse C{Access-Control-Request-Headers} to distinct lower-case names."""
    names = (name.strip().lower() for name in value.decode("latin-1").split(","))
    return [name for name in dict.fromkeys(names) if name]


def readCORS(body: bytes) -> tuple[CORSRule, ...]:
    """
    Parse a CORSConfiguration.

    @raise S3Error: C{MalformedXML}; C{InvalidRequest} for a well-formed but invalid configuration.
    """
    root = readTree(body, "CORSConfiguration")
    checkNames(root, ("CORSRule",))
    elements = root.findall("{*}CORSRule")
    if not elements:
        raise S3Error("MalformedXML")
    if len(elements) > RULE_LIMIT:
        message = f"The number of CORS rules should not exceed allowed limit of {RULE_LIMIT} rules."
        raise S3Error("InvalidRequest", message)
    rules = tuple(map(_readRule, elements))
    ids = [rule.id for rule in rules if rule.id]
    if len(ids) != len(set(ids)):
        raise S3Error("InvalidRequest", "The IDs of CORS rules must be unique.")
    return rules


def _texts(rule: "Element", name: str) -> tuple[str, ...]:
    return tuple((each.text or "").strip() for each in rule.iterfind("{*}" + name))


def _only(rule: "Element", name: str) -> str:
    found = _texts(rule, name)
    if len(found) > 1:
        raise S3Error("MalformedXML")
    return found[0] if found else ""


def _readRule(element: "Element") -> CORSRule:
    checkNames(element, _ELEMENTS)
    age = _only(element, "MaxAgeSeconds")
    try:
        maxAge = parseDecimal(age, _MAX_AGE_LIMIT) if age else None
    except ValueError:
        raise S3Error("MalformedXML") from None
    rule = CORSRule(
        origins=_texts(element, "AllowedOrigin"),
        methods=_texts(element, "AllowedMethod"),
        headers=_texts(element, "AllowedHeader"),
        exposed=_texts(element, "ExposeHeader"),
        maxAge=maxAge,
        id=_only(element, "ID"),
    )
    if not rule.origins or not rule.methods:
        raise S3Error("MalformedXML")
    _check(rule)
    return rule


def _isToken(text: str) -> bool:
    # A token may contain "*".
    try:
        lowerName(text.encode())
    except ValueError:
        return False
    return bool(text)


def _check(rule: CORSRule) -> None:
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
        raise S3Error("InvalidRequest", message)


def writeCORS(rules: Iterable[CORSRule]) -> bytes:
    """Serialize a CORSConfiguration."""
    return document("CORSConfiguration", "".join(map(_ruleElement, rules)))


def _ruleElement(rule: CORSRule) -> str:
    pieces = [element("ID", rule.id)] if rule.id else []
    for name, values in (
        ("AllowedMethod", rule.methods),
        ("AllowedOrigin", rule.origins),
        ("AllowedHeader", rule.headers),
        ("ExposeHeader", rule.exposed),
    ):
        pieces += [element(name, value) for value in values]
    if rule.maxAge is not None:
        pieces.append(element("MaxAgeSeconds", str(rule.maxAge)))
    return f"<CORSRule>{''.join(pieces)}</CORSRule>"
