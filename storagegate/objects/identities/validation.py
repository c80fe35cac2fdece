"""
The rules of the values in operations on identities: Amazon's patterns and lengths, by field.

L{checkOperation} checks an operation as a whole before it is performed, for all front ends.
"""

import re
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from storagegate.objects.errors import LimitExceeded, ValidationError
from storagegate.objects.identities.answers import Tag
from storagegate.objects.identities.operations import ContextEntry, IdentityOperation
from storagegate.objects.tags import isTagText

TAGS_LIMIT = 50
"""Tags of an identity: Amazon's limit."""


@frozen
class _Rule:
    """
    The rule of a text.

    @ivar pattern: The pattern as the message shows it.
    @ivar most: Largest number of characters.
    """

    pattern: str
    most: int
    least: int = 1

    def problem(self, text: str) -> str:
        """Return the broken constraint; empty for none."""
        if len(text) > self.most:
            return f"Member must have length less than or equal to {self.most}"
        if len(text) < self.least:
            return f"Member must have length greater than or equal to {self.least}"
        if re.fullmatch(self.pattern, text, re.ASCII) is None:
            return f"Member must satisfy regular expression pattern: {self.pattern}"
        return ""


_NAME = r"[\w+=,.@-]+"
_PATH = r"(/)|(/[!-~]+/)"
_POLICY_PATH = r"((/[A-Za-z0-9.,+@=_-]+)*)/"
_TEXT = r"[\t\n\r -\xff]*"
_DESCRIPTION = r"[\t\n\r -~\xa1-\xff]*"

_RULES = {
    "userName": _Rule(_NAME, 64),
    "newUserName": _Rule(_NAME, 64),
    "groupName": _Rule(_NAME, 128),
    "newGroupName": _Rule(_NAME, 128),
    "roleName": _Rule(_NAME, 64),
    "policyName": _Rule(_NAME, 128),
    "path": _Rule(_PATH, 512),
    "newPath": _Rule(_PATH, 512),
    "pathPrefix": _Rule(r"/[!-\x7f]*", 512),
    "policyArn": _Rule(r"[ -~]*", 2048, 20),
    "openIDConnectProviderArn": _Rule(r"[ -~]*", 2048, 20),
    "policyDocument": _Rule(_TEXT, 131_072),
    "assumeRolePolicyDocument": _Rule(_TEXT, 131_072),
    "description": _Rule(_DESCRIPTION, 1000, 0),
    # The access key of a key of an operator can have other forms than Amazon's.
    "accessKeyId": _Rule(r"[ -~]+", 128, 3),
    "status": _Rule(r"Active|Inactive", 8),
    "marker": _Rule(r"[ -\xff]+", 320),
    "versionId": _Rule(r"v[1-9][0-9]*(\.[A-Za-z0-9-]*)?", 32),
    "scope": _Rule(r"All|AWS|Local", 5),
    "policyUsageFilter": _Rule(r"PermissionsPolicy|PermissionsBoundary", 19),
    "entityFilter": _Rule(r"User|Role|Group|LocalManagedPolicy|AWSManagedPolicy", 18),
    "url": _Rule(r"https?://[!-~]+", 255),
    "clientID": _Rule(r"[ -~]+", 255),
    "roleArn": _Rule(r"[ -~]+", 2048),
    "roleSessionName": _Rule(r"[\w+=,.@-]+", 64, 2),
    "webIdentityToken": _Rule(r"[!-~]+", 20_000, 4),
    "externalId": _Rule(r"[\w+=,.@:/-]+", 1224, 2),
    "policy": _Rule(_TEXT, 131_072),
    "policySourceArn": _Rule(r"[ -~]*", 2048, 20),
    "callerArn": _Rule(r"[ -~]+", 2048),
    "resourceOwner": _Rule(r"[ -~]+", 2048),
    "resourcePolicy": _Rule(_TEXT, 131_072),
    "contextKeyName": _Rule(r"[!-~]+", 256, 5),
    "contextKeyType": _Rule(r"(string|numeric|boolean|ip|binary|date)(List)?", 11),
}

_PLURALS = {
    "clientIDList": _Rule(r"[ -~]+", 255),
    "thumbprintList": _Rule(r"[0-9A-Za-z]+", 40, 40),
    "actionNames": _Rule(r"[ -~]+", 128, 3),
    "resourceArns": _Rule(r"[^\x00-\x08\x0b\x0c\x0e-\x1f]+", 2048),
    "policyInputList": _Rule(_TEXT, 131_072),
    "contextKeyValues": _Rule(r"[^\x00-\x08\x0b\x0c\x0e-\x1f]*", 2048, 0),
}

_NUMBERS = {
    "maxItems": (1, 1000),
    "maxSessionDuration": (3600, 43_200),
    "durationSeconds": (900, 43_200),
}
"""The smallest and the largest value of numbers."""

_LENGTHS = {
    "clientIDList": 100,
    "thumbprintList": 5,
    "tagKeys": TAGS_LIMIT,
    "transitiveTagKeys": TAGS_LIMIT,
    # The parameters of a call are limited, too.
    "actionNames": 1000,
    "resourceArns": 1000,
    "policyInputList": 20,
    "contextEntries": 250,
}


def checkOperation(operation: IdentityOperation[Any]) -> None:
    """
    Check the values of an operation.

    @raise ValidationError: A value is invalid; the error names it.
    @raise LimitExceeded: A list is too long.
    """
    isOfPolicy = type(operation).__name__ == "CreatePolicy"
    defaults = dict(
        zip(
            reversed(operation.__struct_fields__),
            reversed(operation.__struct_defaults__),
            strict=False,
        )
    )
    for name in operation.__struct_fields__:
        value = getattr(operation, name)
        if name in defaults and value == defaults[name]:
            continue
        if isinstance(value, str) and name in _RULES:
            rule = _Rule(_POLICY_PATH, 512) if isOfPolicy and name == "path" else _RULES[name]
            _check(name, value, rule.problem(value))
        elif name in _NUMBERS and isinstance(value, int):
            least, most = _NUMBERS[name]
            if value < least:
                problem = f"Member must have value greater than or equal to {least}"
                _check(name, str(value), problem)
            if value > most:
                _check(name, str(value), f"Member must have value less than or equal to {most}")
        elif isinstance(value, tuple):
            _checkList(name, value)


def _check(name: str, value: str, problem: str) -> None:
    if problem:
        raise invalid(value, name, problem)


def invalid(value: str | None, name: str, constraint: str) -> ValidationError:
    """
    Make the error for a value of an operation.

    @param value: L{None} if it is absent.
    @param name: The field of the operation.
    @param constraint: The rule, as a sentence.
    """
    shown = "null" if value is None else f"'{value:.200}'"
    return ValidationError(
        f"1 validation error detected: Value {shown} at '{name}' failed to satisfy constraint: "
        f"{constraint}"
    )


def _checkList(name: str, values: tuple[Any, ...]) -> None:
    if name == "tags":
        checkTags(values)
        return
    if len(values) > _LENGTHS[name]:
        raise LimitExceeded(f"Cannot exceed {_LENGTHS[name]} members of {name}")
    for value in values:
        if isinstance(value, ContextEntry):
            for field in ("contextKeyName", "contextKeyType"):
                text = getattr(value, field)
                _check(field, text, _RULES[field].problem(text))
            for text in value.contextKeyValues:
                _check("contextKeyValues", text, _PLURALS["contextKeyValues"].problem(text))
        elif name in ("tagKeys", "transitiveTagKeys"):
            _check(name, value, "" if value and isTagText(value, 128) else _TAG)
        else:
            _check(name, value, _PLURALS[name].problem(value))


_TAG = r"Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]+"


def checkTags(tags: Iterable[Tag]) -> None:
    """
    Check the tags of an identity or a session.

    @raise ValidationError: A tag is invalid, or there are too many.
    """
    keys = set()
    for number, tag in enumerate(tags, 1):
        if number > TAGS_LIMIT:
            raise invalid(
                None, "tags", f"Member must have length less than or equal to {TAGS_LIMIT}"
            )
        if not tag.key or not isTagText(tag.key, 128):
            raise invalid(tag.key, f"tags.{number}.member.key", _TAG)
        if not isTagText(tag.value, 256):
            raise invalid(tag.value, f"tags.{number}.member.value", _TAG)
        if tag.key.lower().startswith("aws:"):
            raise ValidationError("Tag keys cannot begin with aws:")
        # Keys of IAM's tags differ by more than case, unlike those of S3.
        if tag.key.lower() in keys:
            raise ValidationError(
                "Duplicate tag keys found. Please note that Tag keys are case insensitive."
            )
        keys.add(tag.key.lower())
