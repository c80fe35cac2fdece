"""The managed policies that every account has: Amazon's, with their names, ids and documents."""

import json
from collections.abc import Mapping
from typing import Any

from storagegate.objects.identities.entities import ManagedPolicy, PolicyVersion


def _policy(
    name: str, number: str, description: str, created: int, statements: list[dict[str, Any]]
) -> ManagedPolicy:
    document = json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=4)
    return ManagedPolicy(
        name=name,
        id=number,
        createdMs=created,
        updatedMs=created,
        description=description,
        versions={"v1": PolicyVersion(document=document, createdMs=created)},
    )


def _allow(*actions: str) -> list[dict[str, Any]]:
    return [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]


_CREATED_MS = 1_423_219_237_000
"""2015-02-06, as Amazon has it."""

_POLICIES = (
    _policy(
        "AmazonS3FullAccess",
        "ANPAIFIR6V6BVTRAHWINE",
        "Provides full access to all buckets.",
        _CREATED_MS,
        _allow("s3:*"),
    ),
    _policy(
        "AmazonS3ReadOnlyAccess",
        "ANPAIZTJ4DXE7G6AGAE6M",
        "Provides read only access to all buckets.",
        _CREATED_MS,
        _allow("s3:Get*", "s3:List*"),
    ),
    _policy(
        "IAMReadOnlyAccess",
        "ANPAJKSO7NDY4T57MWDSQ",
        "Provides read only access to users, groups, roles and policies.",
        _CREATED_MS,
        _allow(
            "iam:Get*",
            "iam:List*",
            "iam:SimulateCustomPolicy",
            "iam:SimulatePrincipalPolicy",
        ),
    ),
)

AWS_POLICIES: Mapping[str, ManagedPolicy] = {policy.arn("aws"): policy for policy in _POLICIES}
"""The policies by ARN."""
