"""
LifecycleConfiguration, in both of its forms::

    Rule   = ID Status Filter or Prefix, and the actions
    Filter = one condition, or And with several: Prefix, Tag, ObjectSizeGreaterThan, ...
    action = Expiration, NoncurrentVersionExpiration, AbortIncompleteMultipartUpload

L{storagegate.objects.lifecycle} documents the meaning of the rules.
"""

import re
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import Any, Final

from storagegate.objects import errors
from storagegate.objects.dates import LAST_SECOND, isoTimestamp, parseDate
from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.lifecycle import DAY_SECONDS, Form, LifecycleRule
from storagegate.objects.tags import OBJECT_TAGS, checkedTags
from storagegate.storage.records import NEWER_LIMIT

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


def readLifecycle(document: Document) -> tuple[LifecycleRule, ...]:
    """
    Read the rules; a rule without an id gets one.

    @raise MalformedDocument: The document has another form.
    @raise DomainError: A rule is invalid, or has transitions: there is only one storage class.
    """
    document.check(("Rule",))
    elements = document.members
    if not elements:
        raise errors.MalformedDocument()
    if len(elements) > RULE_LIMIT:
        message = (
            f"The number of lifecycle rules must not exceed the allowed limit of {RULE_LIMIT} rules"
        )
        raise errors.InvalidRequest(message)
    rules = tuple(map(_readRule, elements))
    ids = [rule.id for rule in rules]
    if len(ids) != len(set(ids)):
        message = "Rule ID must be unique. Found same ID for more than one rule"
        raise errors.InvalidArgument(message)
    return rules


def _number(parent: Document, name: str, most: int) -> int | None:
    text = parent.textOf(name)
    if text is None:
        return None
    if _INTEGER.match(text.strip()) is None or abs(int(text)) > most:
        raise errors.MalformedDocument()
    return int(text)


def _days(parent: Document, name: str, action: str) -> int | None:
    days = _number(parent, name, _DAYS_LIMIT)
    if days is not None and days < 1:
        message = f"'{name}' for {action} action must be a positive integer"
        raise errors.InvalidArgument(message)
    return days


def _readRule(rule: Document) -> LifecycleRule:
    for name in _TRANSITIONS:
        if rule.all(name):
            raise errors.UnsupportedFeature(element=name)
    rule.check(_ELEMENTS)
    status = (rule.textOf("Status") or "").strip()
    if status not in ("Enabled", "Disabled"):
        raise errors.MalformedDocument()
    ruleId = rule.textOf("ID") or token_hex(24)
    if len(ruleId) > _ID_LIMIT:
        message = f"ID length should not exceed allowed limit of {_ID_LIMIT}"
        raise errors.InvalidArgument(message)
    found = LifecycleRule(ruleId, status == "Enabled", **_filter(rule), **_actions(rule))
    for action, value in (
        ("AbortIncompleteMultipartUpload", found.abortDays),
        ("ExpiredObjectDeleteMarker", found.markers),
    ):
        if value is not None and (found.tags or found.hasSize):
            kind = "tag" if found.tags else "object size"
            message = f"{action} cannot be specified with {kind} filters"
            raise errors.InvalidRequest(message)
    return found


def _filter(rule: Document) -> dict[str, Any]:
    """Parse the conditions of a rule as fields of L{LifecycleRule}."""
    parent, old = rule.only("Filter"), rule.textOf("Prefix")
    if (parent is None) == (old is None):
        raise errors.MalformedDocument()
    if parent is None:
        return {"form": "prefix", "prefix": _prefix(old)}
    form: Form = "filter"
    parent.check((*_CONDITIONS, "And"))
    both = parent.only("And")
    named = len(parent.members) - (both is not None)
    if both is not None:
        form = "and"
        both.check(_CONDITIONS)
        if named or len(both.members) < 2:
            raise errors.MalformedDocument()
        parent = both
    elif named > 1:
        raise errors.MalformedDocument()
    greater = _number(parent, "ObjectSizeGreaterThan", _SIZE_LIMIT)
    less = _number(parent, "ObjectSizeLessThan", _SIZE_LIMIT)
    if (greater is not None and greater < 0) or (less is not None and less < 1):
        raise errors.InvalidRequest("The object size of a filter must not be negative")
    if greater is not None and less is not None and greater >= less:
        message = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'"
        raise errors.InvalidRequest(message)
    return {
        "form": form,
        "prefix": _prefix(parent.textOf("Prefix")),
        "tags": _tags(parent),
        "greaterThan": greater,
        "lessThan": less,
    }


def _prefix(prefix: str | None) -> str | None:
    if prefix is not None and len(prefix.encode()) > _PREFIX_LIMIT:
        message = f"The maximum size of a prefix is {_PREFIX_LIMIT}"
        raise errors.InvalidRequest(message)
    return prefix


def _tags(parent: Document) -> Mapping[str, str]:
    found = []
    for each in parent.all("Tag"):
        each.check(("Key", "Value"))
        key, value = each.textOf("Key"), each.textOf("Value")
        if key is None or value is None:
            raise errors.MalformedDocument()
        found.append((key, value))
    return checkedTags(found, OBJECT_TAGS)


def _actions(rule: Document) -> dict[str, Any]:
    """Parse the actions of a rule as fields of L{LifecycleRule}."""
    actions: dict[str, Any] = {}
    expiration = rule.only("Expiration")
    if expiration is not None:
        expiration.check(("Days", "Date", "ExpiredObjectDeleteMarker"))
        days = _days(expiration, "Days", "Expiration")
        date, markers = expiration.textOf("Date"), expiration.textOf("ExpiredObjectDeleteMarker")
        if sum(each is not None for each in (days, date, markers)) != 1:
            raise errors.MalformedDocument()
        if markers is not None and markers.strip() not in ("true", "false"):
            raise errors.MalformedDocument()
        actions["days"] = days
        actions["dateMs"] = None if date is None else _midnight(date.strip())
        actions["markers"] = None if markers is None else markers.strip() == "true"
    noncurrent = rule.only("NoncurrentVersionExpiration")
    if noncurrent is not None:
        noncurrent.check(("NoncurrentDays", "NewerNoncurrentVersions"))
        days = _days(noncurrent, "NoncurrentDays", "NoncurrentVersionExpiration")
        newer = _number(noncurrent, "NewerNoncurrentVersions", _DAYS_LIMIT)
        if newer is not None and not 1 <= newer <= NEWER_LIMIT:
            message = f"'NewerNoncurrentVersions' must be from 1 to {NEWER_LIMIT}"
            raise errors.InvalidArgument(message)
        if days is None:
            raise errors.MalformedDocument()
        actions.update(noncurrentDays=days, newer=newer)
    abort = rule.only("AbortIncompleteMultipartUpload")
    if abort is not None:
        abort.check(("DaysAfterInitiation",))
        days = _days(abort, "DaysAfterInitiation", "AbortIncompleteMultipartUpload")
        if days is None:
            raise errors.MalformedDocument()
        actions["abortDays"] = days
    if not actions:
        message = "At least one action needs to be specified in a rule"
        raise errors.InvalidRequest(message)
    return actions


def _midnight(text: str) -> int:
    """Parse a date at midnight UTC; return milliseconds since the epoch."""
    try:
        seconds = parseDate(text)
    except ValueError:
        raise errors.MalformedDocument() from None
    # Only policies accept seconds since the epoch.
    if text.isdigit():
        raise errors.MalformedDocument()
    if seconds % DAY_SECONDS or not 0 <= seconds <= LAST_SECOND:
        raise errors.InvalidArgument("'Date' must be at midnight GMT")
    return int(seconds) * 1000


def writeLifecycle(rules: Iterable[LifecycleRule]) -> Document:
    """Write the rules, each in its original form."""
    return group("LifecycleConfiguration", map(_ruleDocument, rules))


def _ruleDocument(rule: LifecycleRule) -> Document:
    conditions = [
        *pairs(Prefix=rule.prefix),
        *(
            group("Tag", pairs(Key=key, Value=value), isList=rule.form == "and")
            for key, value in rule.tags.items()
        ),
        *pairs(ObjectSizeGreaterThan=rule.greaterThan, ObjectSizeLessThan=rule.lessThan),
    ]
    if rule.form == "and":
        conditions = [group("And", conditions)]
    if rule.form != "prefix":
        conditions = [group("Filter", conditions)]
    expiration = pairs(
        Days=rule.days,
        Date=None if rule.dateMs is None else isoTimestamp(rule.dateMs),
        ExpiredObjectDeleteMarker=None if rule.markers is None else str(rule.markers).lower(),
    )
    noncurrent = pairs(NoncurrentDays=rule.noncurrentDays, NewerNoncurrentVersions=rule.newer)
    actions = {
        "Expiration": expiration,
        "NoncurrentVersionExpiration": noncurrent,
        "AbortIncompleteMultipartUpload": pairs(DaysAfterInitiation=rule.abortDays),
    }
    status = pairs(Status="Enabled" if rule.isEnabled else "Disabled")
    done = [group(name, members) for name, members in actions.items() if members]
    return group("Rule", (*pairs(ID=rule.id), *conditions, *status, *done), isList=True)
