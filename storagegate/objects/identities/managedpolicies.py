"""
Amazon's own managed policies, which every account can attach.

The documents are Amazon's. Actions of services that this program does not have are kept.
"""

from collections.abc import Mapping

from storagegate.objects.identities.entities import ManagedPolicy, PolicyVersion

_OWNER = "aws"
"""The name in the place of the account in the ARNs of Amazon's policies."""

_CREATED_MS = 1_423_248_060_000

_DOCUMENTS = {
    "AmazonS3FullAccess": (
        "ANPAIFIR6V6BVTRAHWINE",
        "Provides full access to all buckets.",
        """{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["s3:*", "s3-object-lambda:*"],
            "Resource": "*"
        }
    ]
}""",
    ),
    "AmazonS3ReadOnlyAccess": (
        "ANPAIZTJ4DXE7G6AGAE6M",
        "Provides read only access to all buckets.",
        """{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "s3:Get*",
                "s3:List*",
                "s3:Describe*",
                "s3-object-lambda:Get*",
                "s3-object-lambda:List*"
            ],
            "Resource": "*"
        }
    ]
}""",
    ),
    "IAMReadOnlyAccess": (
        "ANPAJKSO7NDY4T57MWDSQ",
        "Provides read only access to users, groups, roles and policies.",
        """{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "iam:GenerateCredentialReport",
                "iam:GenerateServiceLastAccessedDetails",
                "iam:Get*",
                "iam:List*",
                "iam:SimulateCustomPolicy",
                "iam:SimulatePrincipalPolicy"
            ],
            "Resource": "*"
        }
    ]
}""",
    ),
}

AMAZON_POLICIES: Mapping[str, ManagedPolicy] = {
    f"arn:aws:iam::{_OWNER}:policy/{name}": ManagedPolicy(
        name=name,
        id=id,
        createdMs=_CREATED_MS,
        updatedMs=_CREATED_MS,
        description=description,
        versions={"v1": PolicyVersion(document=document, createdMs=_CREATED_MS)},
    )
    for name, (id, description, document) in _DOCUMENTS.items()
}
"""The policies by ARN."""
