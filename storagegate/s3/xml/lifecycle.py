"""
LifecycleConfiguration, in both of its forms::

    <LifecycleConfiguration><Rule>
        <ID>..</ID> <Status>Enabled</Status>
        <Filter><And><Prefix>..</Prefix> *(<Tag>..</Tag>)</And></Filter>    or <Prefix>..</Prefix>
        <Expiration><Days>30</Days></Expiration>
    </Rule></LifecycleConfiguration>

L{storagegate.objects.lifecycle} documents the meaning of the rules.
"""

import re
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from storagegate.objects.dates import LAST_SECOND, isoTimestamp, parseDate
from storagegate.objects.lifecycle import DAY_SECONDS, Form, LifecycleRule
from storagegate.objects.tags import OBJECT_TAGS, checkedTags
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import LIFECYCLE_LIMIT, checkNames, readTree
from storagegate.s3.xml.writer import document, element
from storagegate.storage.records import NEWER_LIMIT

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

RULE_LIMIT: Final = 1000
"""Rules per bucket: Amazon's limit."""

_ID_LIMIT = 255
_PREFIX_LIMIT = 1024
_DAYS_LIMIT = 2**31 - 1
_SIZE_LIMIT = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_TRANSITIONS = ("Transition", "NoncurrentVersionTransition")
_CONDITIONS = ("Prefix", "Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan")
_ELEMENTS = (
    "ID",
    "Prefix",
    "Filter",
    "Status",
    "Expiration",
    "NoncurrentVersionExpiration",
    "AbortIncompleteMultipartUpload",
)


def readLifecycle(body: bytes) -> tuple[LifecycleRule, ...]:
    """
    Parse the rules; a rule without an id gets one.

    @raise S3Error: C{MalformedXML}; C{InvalidArgument}, C{InvalidRequest} for a well-formed but
        invalid document; C{NotImplemented} for transitions, because there is only one storage
        class.
    """
    root = readTree(body, "LifecycleConfiguration", LIFECYCLE_LIMIT)
    checkNames(root, ("Rule",))
    elements = root.findall("{*}Rule")
    if not elements:
        raise S3Error("MalformedXML")
    if len(elements) > RULE_LIMIT:
        message = (
            f"The number of lifecycle rules must not exceed the allowed limit of {RULE_LIMIT} rules"
        )
        raise S3Error("InvalidRequest", message)
    rules = tuple(map(_readRule, elements))
    ids = [rule.id for rule in rules]
    if len(ids) != len(set(ids)):
        message = "Rule ID must be unique. Found same ID for more than one rule"
        raise S3Error("InvalidArgument", message)
    return rules


def _only(parent: "Element", name: str) -> "Element | None":
    found = parent.findall("{*}" + name)
    if len(found) > 1:
        raise S3Error("MalformedXML")
    return found[0] if found else None


def _text(parent: "Element", name: str) -> str | None:
    found = _only(parent, name)
    return None if found is None else found.text or ""


def _number(parent: "Element", name: str, most: int) -> int | None:
    text = _text(parent, name)
    if text is None:
        return None
    if _INTEGER.match(text.strip()) is None or abs(int(text)) > most:
        raise S3Error("MalformedXML")
    return int(text)


def _days(parent: "Element", name: str, action: str) -> int | None:
    days = _number(parent, name, _DAYS_LIMIT)
    if days is not None and days < 1:
        message = f"'{name}' for {action} action must be a positive integer"
        raise S3Error("InvalidArgument", message)
    return days


def _readRule(rule: "Element") -> LifecycleRule:
    for name in _TRANSITIONS:
        if rule.find("{*}" + name) is not None:
            raise S3Error("NotImplemented", fields={"Element": name})
    checkNames(rule, _ELEMENTS)
    status = (_text(rule, "Status") or "").strip()
    if status not in ("Enabled", "Disabled"):
        raise S3Error("MalformedXML")
    ruleId = _text(rule, "ID") or token_hex(24)
    if len(ruleId) > _ID_LIMIT:
        message = f"ID length should not exceed allowed limit of {_ID_LIMIT}"
        raise S3Error("InvalidArgument", message)
    found = LifecycleRule(ruleId, status == "Enabled", **_filter(rule), **_actions(rule))
    for action, value in (
        ("AbortIncompleteMultipartUpload", found.abortDays),
        ("ExpiredObjectDeleteMarker", found.markers),
    ):
        if value is not None and (found.tags or found.hasSize):
            kind = "tag" if found.tags else "object size"
            message = f"{action} cannot be specified with {kind} filters"
            raise S3Error("InvalidRequest", message)
    return found


def _filter(rule: "Element") -> dict[str, Any]:
    """Parse the conditions of a rule as fields of L{LifecycleRule}."""
    parent, old = _only(rule, "Filter"), _text(rule, "Prefix")
    if (parent is None) == (old is None):
        raise S3Error("MalformedXML")
    if parent is None:
        return {"form": "prefix", "prefix": _prefix(old)}
    form: Form = "filter"
    checkNames(parent, (*_CONDITIONS, "And"))
    both = _only(parent, "And")
    named = len(parent) - (both is not None)
    if both is not None:
        form = "and"
        checkNames(both, _CONDITIONS)
        if named or len(both) < 2:
            raise S3Error("MalformedXML")
        parent = both
    elif named > 1:
        raise S3Error("MalformedXML")
    greater = _number(parent, "ObjectSizeGreaterThan", _SIZE_LIMIT)
    less = _number(parent, "ObjectSizeLessThan", _SIZE_LIMIT)
    if (greater is not None and greater < 0) or (less is not None and less < 1):
        raise S3Error("InvalidRequest", "The object size of a filter must not be negative")
    if greater is not None and less is not None and greater >= less:
        message = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'"
        raise S3Error("InvalidRequest", message)
    return {
        "form": form,
        "prefix": _prefix(_text(parent, "Prefix")),
        "tags": _tags(parent),
        "greaterThan": greater,
        "lessThan": less,
    }


def _prefix(prefix: str | None) -> str | None:
    if prefix is not None and len(prefix.encode()) > _PREFIX_LIMIT:
        message = f"The maximum size of a prefix is {_PREFIX_LIMIT}"
        raise S3Error("InvalidRequest", message)
    return prefix


def _tags(parent: "Element") -> Mapping[str, str]:
    pairs = []
    for each in parent.iterfind("{*}Tag"):
        checkNames(each, ("Key", "Value"))
        key, value = _text(each, "Key"), _text(each, "Value")
        if key is None or value is None:
            raise S3Error("MalformedXML")
        pairs.append((key, value))
    return checkedTags(pairs, OBJECT_TAGS)


def _actions(rule: "Element") -> dict[str, Any]:
    """Parse the actions of a rule as fields of L{LifecycleRule}."""
    actions: dict[str, Any] = {}
    expiration = _only(rule, "Expiration")
    if expiration is not None:
        checkNames(expiration, ("Days", "Date", "ExpiredObjectDeleteMarker"))
        days = _days(expiration, "Days", "Expiration")
        date, markers = _text(expiration, "Date"), _text(expiration, "ExpiredObjectDeleteMarker")
        if sum(each is not None for each in (days, date, markers)) != 1:
            raise S3Error("MalformedXML")
        if markers is not None and markers.strip() not in ("true", "false"):
            raise S3Error("MalformedXML")
        actions["days"] = days
        actions["dateMs"] = None if date is None else _midnight(date.strip())
        actions["markers"] = None if markers is None else markers.strip() == "true"
    noncurrent = _only(rule, "NoncurrentVersionExpiration")
    if noncurrent is not None:
        checkNames(noncurrent, ("NoncurrentDays", "NewerNoncurrentVersions"))
        days = _days(noncurrent, "NoncurrentDays", "NoncurrentVersionExpiration")
        newer = _number(noncurrent, "NewerNoncurrentVersions", _DAYS_LIMIT)
        if newer is not None and not 1 <= newer <= NEWER_LIMIT:
            message = f"'NewerNoncurrentVersions' must be from 1 to {NEWER_LIMIT}"
            raise S3Error("InvalidArgument", message)
        if days is None:
            raise S3Error("MalformedXML")
        actions.update(noncurrentDays=days, newer=newer)
    abort = _only(rule, "AbortIncompleteMultipartUpload")
    if abort is not None:
        checkNames(abort, ("DaysAfterInitiation",))
        days = _days(abort, "DaysAfterInitiation", "AbortIncompleteMultipartUpload")
        if days is None:
            raise S3Error("MalformedXML")
        actions["abortDays"] = days
    if not actions:
        message = "At least one action needs to be specified in a rule"
        raise S3Error("InvalidRequest", message)
    return actions


def _midnight(text: str) -> int:
    """Parse a date at midnight UTC; return milliseconds since the epoch."""
    try:
        seconds = parseDate(text)
    except ValueError:
        raise S3Error("MalformedXML") from None
    # Only policies accept seconds since the epoch.
    if text.isdigit():
        raise S3Error("MalformedXML")
    if seconds % DAY_SECONDS or not 0 <= seconds <= LAST_SECOND:
        raise S3Error("InvalidArgument", "'Date' must be at midnight GMT")
    return int(seconds) * 1000


def writeLifecycle(rules: Iterable[LifecycleRule]) -> bytes:
    """Serialize the rules, each in its original form."""
    return document("LifecycleConfiguration", "".join(map(_ruleElement, rules)))


def _optionals(rule: object, names: Mapping[str, str]) -> str:
    pieces = []
    for name, attribute in names.items():
        value = getattr(rule, attribute)
        if value is not None:
            pieces.append(element(name, str(value)))
    return "".join(pieces)


def _ruleElement(rule: LifecycleRule) -> str:
    conditions = _optionals(rule, {"Prefix": "prefix"})
    for key, value in rule.tags.items():
        conditions += f"<Tag>{element('Key', key)}{element('Value', value)}</Tag>"
    conditions += _optionals(
        rule, {"ObjectSizeGreaterThan": "greaterThan", "ObjectSizeLessThan": "lessThan"}
    )
    if rule.form == "and":
        conditions = f"<And>{conditions}</And>"
    if rule.form != "prefix":
        conditions = f"<Filter>{conditions}</Filter>"
    expiration = _optionals(rule, {"Days": "days"})
    if rule.dateMs is not None:
        expiration += element("Date", isoTimestamp(rule.dateMs))
    if rule.markers is not None:
        expiration += element("ExpiredObjectDeleteMarker", str(rule.markers).lower())
    noncurrent = _optionals(
        rule, {"NoncurrentDays": "noncurrentDays", "NewerNoncurrentVersions": "newer"}
    )
    abort = _optionals(rule, {"DaysAfterInitiation": "abortDays"})
    actions = "".join(
        f"<{name}>{content}</{name}>"
        for name, content in (
            ("Expiration", expiration),
            ("NoncurrentVersionExpiration", noncurrent),
            ("AbortIncompleteMultipartUpload", abort),
        )
        if content
    )
    status = "Enabled" if rule.isEnabled else "Disabled"
    return f"<Rule>{element('ID', rule.id)}{conditions}{element('Status', status)}{actions}</Rule>"
