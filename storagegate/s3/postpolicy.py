"""
The policy of a browser form: what it may contain::

    policy    = Base64 of {"expiration": "2030-01-01T00:00:00Z", "conditions": [*condition]}
    condition = {"field": "value"} / ["eq" / "starts-with", "$field", "value"]
              / ["content-length-range", smallest, largest]

Names of fields and operators may be written in any case. A condition holds or the form is refused;
a field without a condition is refused too, and so is a form whose policy leaves the bucket open.
Who signed the policy is for C{sigv4post}.
"""

import json
from collections.abc import Mapping

from storagegate.s3.errors import S3Error
from storagegate.s3.policydocument import Comparison, SizeLimits, parsePolicy

_EXEMPT = frozenset({"file", "policy", "x-amz-signature", "awsaccesskeyid", "signature"})
_IGNORED = "x-ignore-"
"""Fields that begin with this are for others and need no condition."""


def checkPolicy(
    policyBase64: str | None, fields: Mapping[str, str], bucket: str, now: float
) -> SizeLimits:
    """
    Hold a form against its policy.

    @param policyBase64: The field C{policy}; L{None} if the form has none.
    @param fields: Values by lower-case name, with the C{key} under which the file will be stored:
        what C{${filename}} stands for has to be put in before, or a file's name could lead out of
        what the policy allows.
    @param bucket: The one that the form was sent to.
    @param now: Seconds since the epoch.
    @return: Which sizes the file may have.
    @raise S3Error: C{AccessDenied} if the policy is not there, is over or does not allow the form,
        C{InvalidPolicyDocument} if it cannot be read.
    """
    if not policyBase64:
        raise S3Error("AccessDenied")
    policy = parsePolicy(policyBase64)
    if now > policy.expiration:
        raise _refuse("Policy expired.")
    values = {**fields, "bucket": bucket}
    covered = set()
    for condition in policy.comparisons:
        if not _holds(condition, values.get(condition.field, "")):
            raise _refuse(f"Policy Condition failed: {_show(condition)}")
        covered.add(condition.field)
    extra = [name for name in values if name not in covered and not _needsNone(name)]
    if extra:
        raise _refuse(f"Extra input fields: {', '.join(extra)}")
    return policy.sizes


def _needsNone(name: str) -> bool:
    return name in _EXEMPT or name.startswith(_IGNORED)


def _holds(condition: Comparison, value: str) -> bool:
    if condition.operator == "eq":
        return value == condition.value
    if condition.field == "content-type":
        # A list of types: each of them has to begin so.
        return all(part.strip().startswith(condition.value) for part in value.split(","))
    return value.startswith(condition.value)


def _show(condition: Comparison) -> str:
    return json.dumps([condition.operator, f"${condition.field}", condition.value])


def _refuse(detail: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {detail}")
