"""CORSConfiguration, as in "Using cross-origin resource sharing" of the Amazon S3 User Guide."""

from collections.abc import Iterable

from storagegate.core.options import parseDecimal
from storagegate.objects.cors import RULE_LIMIT, CORSRule, checkRule
from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.errors import InvalidRequest, MalformedDocument

_MAX_AGE_LIMIT = 2**31 - 1
_MEMBERS = (
    "ID",
    "AllowedOrigin",
    "AllowedMethod",
    "AllowedHeader",
    "ExposeHeader",
    "MaxAgeSeconds",
)


def readCORS(document: Document) -> tuple[CORSRule, ...]:
    """
    Read the rules.

    @raise MalformedDocument: The document has another form.
    @raise InvalidRequest: A rule is invalid.
    """
    document.check(("CORSRule",))
    if not document.members:
        raise MalformedDocument()
    if len(document.members) > RULE_LIMIT:
        message = f"The number of CORS rules should not exceed allowed limit of {RULE_LIMIT} rules."
        raise InvalidRequest(message)
    rules = tuple(map(_readRule, document.members))
    ids = [rule.id for rule in rules if rule.id]
    if len(ids) != len(set(ids)):
        raise InvalidRequest("The IDs of CORS rules must be unique.")
    return rules


def _texts(rule: Document, name: str) -> tuple[str, ...]:
    return tuple(each.text.strip() for each in rule.all(name))


def _readRule(document: Document) -> CORSRule:
    document.check(_MEMBERS)
    age = (document.textOf("MaxAgeSeconds") or "").strip()
    try:
        maxAge = parseDecimal(age, _MAX_AGE_LIMIT) if age else None
    except ValueError:
        raise MalformedDocument() from None
    rule = CORSRule(
        origins=_texts(document, "AllowedOrigin"),
        methods=_texts(document, "AllowedMethod"),
        headers=_texts(document, "AllowedHeader"),
        exposed=_texts(document, "ExposeHeader"),
        maxAge=maxAge,
        id=(document.textOf("ID") or "").strip(),
    )
    if not rule.origins or not rule.methods:
        raise MalformedDocument()
    checkRule(rule)
    return rule


def writeCORS(rules: Iterable[CORSRule]) -> Document:
    """Write the rules."""
    return group("CORSConfiguration", map(_ruleDocument, rules))


def _ruleDocument(rule: CORSRule) -> Document:
    members = list(pairs(ID=rule.id or None))
    for name, values in (
        ("AllowedMethod", rule.methods),
        ("AllowedOrigin", rule.origins),
        ("AllowedHeader", rule.headers),
        ("ExposeHeader", rule.exposed),
    ):
        members += [Document(name, value, isList=True) for value in values]
    members += pairs(MaxAgeSeconds=rule.maxAge)
    return group("CORSRule", members, isList=True)
