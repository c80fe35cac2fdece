"""CORSConfiguration, as in "Using cross-origin resource sharing" of the Amazon S3 User Guide."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from storagegate.core.options import parseDecimal
from storagegate.objects.cors import RULE_LIMIT, CORSRule, checkRule
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import checkNames, readTree
from storagegate.s3.xml.writer import document, element

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


_MAX_AGE_LIMIT = 2**31 - 1
_ELEMENTS = (
    "ID",
    "AllowedOrigin",
    "AllowedMethod",
    "AllowedHeader",
    "ExposeHeader",
    "MaxAgeSeconds",
)


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
    checkRule(rule)
    return rule


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
