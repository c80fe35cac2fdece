"""
The S3 actions that policies name, and the actions that each operation needs.

The names are Amazon's ("Actions, resources, and condition keys for Amazon S3"). An action concerns
either a bucket or an object, so a policy must name the matching kind of resource.
"""

from collections.abc import Mapping
from typing import Literal

Kind = Literal["bucket", "object"]

_OBJECT_ACTIONS = """
    AbortMultipartUpload BypassGovernanceRetention DeleteObject DeleteObjectAnnotation
    DeleteObjectTagging DeleteObjectVersion DeleteObjectVersionTagging GetObject GetObjectAcl
    GetObjectAnnotation GetObjectAttributes GetObjectLegalHold GetObjectRetention GetObjectTagging
    GetObjectTorrent GetObjectVersion GetObjectVersionAcl GetObjectVersionAttributes
    GetObjectVersionForReplication GetObjectVersionTagging GetObjectVersionTorrent
    InitiateReplication ListMultipartUploadParts ListObjectAnnotations
    ObjectOwnerOverrideToBucketOwner PutObject PutObjectAcl PutObjectAnnotation PutObjectLegalHold
    PutObjectRetention PutObjectTagging PutObjectVersionAcl PutObjectVersionTagging ReplicateDelete
    ReplicateObject ReplicateTags RestoreObject UpdateObjectEncryption
"""

_BUCKET_ACTIONS = """
    CreateBucket CreateBucketMetadataTableConfiguration DeleteBucket
    DeleteBucketMetadataTableConfiguration DeleteBucketPolicy DeleteBucketWebsite
    GetAccelerateConfiguration GetAnalyticsConfiguration GetBucketAbac GetBucketAcl GetBucketCORS
    GetBucketLocation GetBucketLogging GetBucketMetadataTableConfiguration GetBucketNotification
    GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy
    GetBucketPolicyStatus GetBucketPublicAccessBlock GetBucketRequestPayment GetBucketTagging
    GetBucketVersioning GetBucketWebsite GetEncryptionConfiguration
    GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration
    GetMetricsConfiguration GetReplicationConfiguration ListBucket ListBucketMultipartUploads
    ListBucketVersions ListTagsForResource PutAccelerateConfiguration PutAnalyticsConfiguration
    PutBucketAbac PutBucketAcl PutBucketCORS PutBucketLogging PutBucketNotification
    PutBucketObjectLockConfiguration PutBucketOwnershipControls PutBucketPolicy
    PutBucketPublicAccessBlock PutBucketRequestPayment PutBucketTagging PutBucketVersioning
    PutBucketWebsite PutEncryptionConfiguration PutIntelligentTieringConfiguration
    PutInventoryConfiguration PutLifecycleConfiguration PutMetricsConfiguration
    PutReplicationConfiguration TagResource UntagResource
    UpdateBucketMetadataAnnotationTableConfiguration
    UpdateBucketMetadataInventoryTableConfiguration UpdateBucketMetadataJournalTableConfiguration
"""

ACTIONS: Mapping[str, Kind] = {
    **{f"s3:{name}": "object" for name in _OBJECT_ACTIONS.split()},
    **{f"s3:{name}": "bucket" for name in _BUCKET_ACTIONS.split()},
}
"""Every action that a bucket policy may name, with the kind of its resource."""

LIST_BUCKETS = "s3:ListAllMyBuckets"
"""The only action of an operation without a bucket: no bucket policy can name it."""

OPERATION_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "AbortMultipartUpload": ("s3:AbortMultipartUpload",),
    # Operations of other servers and of directory buckets are refused, but only after
    # authorisation.
    "AppendObject": ("s3:PutObject",),
    "CompleteMultipartUpload": ("s3:PutObject",),
    "CopyObject": ("s3:PutObject",),
    "CreateBucket": ("s3:CreateBucket",),
    "CreateBucketMetadataConfiguration": ("s3:CreateBucketMetadataTableConfiguration",),
    "CreateBucketMetadataTableConfiguration": ("s3:CreateBucketMetadataTableConfiguration",),
    "CreateMultipartUpload": ("s3:PutObject",),
    "CreateSession": ("s3:ListBucket",),
    "DeleteBucket": ("s3:DeleteBucket",),
    "DeleteBucketAnalyticsConfiguration": ("s3:PutAnalyticsConfiguration",),
    "DeleteBucketCors": ("s3:PutBucketCORS",),
    "DeleteBucketEncryption": ("s3:PutEncryptionConfiguration",),
    "DeleteBucketIntelligentTieringConfiguration": ("s3:PutIntelligentTieringConfiguration",),
    "DeleteBucketInventoryConfiguration": ("s3:PutInventoryConfiguration",),
    "DeleteBucketLifecycle": ("s3:PutLifecycleConfiguration",),
    "DeleteBucketMetadataConfiguration": ("s3:DeleteBucketMetadataTableConfiguration",),
    "DeleteBucketMetadataTableConfiguration": ("s3:DeleteBucketMetadataTableConfiguration",),
    "DeleteBucketMetricsConfiguration": ("s3:PutMetricsConfiguration",),
    "DeleteBucketOwnershipControls": ("s3:PutBucketOwnershipControls",),
    "DeleteBucketPolicy": ("s3:DeleteBucketPolicy",),
    "DeleteBucketReplication": ("s3:PutReplicationConfiguration",),
    "DeleteBucketTagging": ("s3:PutBucketTagging",),
    "DeleteBucketWebsite": ("s3:DeleteBucketWebsite",),
    "DeleteObject": ("s3:DeleteObject",),
    "DeleteObjectAnnotation": ("s3:DeleteObjectAnnotation",),
    "DeleteObjectTagging": ("s3:DeleteObjectTagging",),
    # Each key is authorised separately; the bucket needs no action.
    "DeleteObjects": (),
    "DeletePublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "GetBucketAbac": ("s3:GetBucketAbac",),
    "GetBucketAccelerateConfiguration": ("s3:GetAccelerateConfiguration",),
    "GetBucketAcl": ("s3:GetBucketAcl",),
    "GetBucketAnalyticsConfiguration": ("s3:GetAnalyticsConfiguration",),
    "GetBucketCors": ("s3:GetBucketCORS",),
    "GetBucketEncryption": ("s3:GetEncryptionConfiguration",),
    "GetBucketIntelligentTieringConfiguration": ("s3:GetIntelligentTieringConfiguration",),
    "GetBucketInventoryConfiguration": ("s3:GetInventoryConfiguration",),
    "GetBucketLifecycleConfiguration": ("s3:GetLifecycleConfiguration",),
    "GetBucketLocation": ("s3:GetBucketLocation",),
    "GetBucketLogging": ("s3:GetBucketLogging",),
    "GetBucketMetadataConfiguration": ("s3:GetBucketMetadataTableConfiguration",),
    "GetBucketMetadataTableConfiguration": ("s3:GetBucketMetadataTableConfiguration",),
    "GetBucketMetricsConfiguration": ("s3:GetMetricsConfiguration",),
    "GetBucketNotificationConfiguration": ("s3:GetBucketNotification",),
    "GetBucketOwnershipControls": ("s3:GetBucketOwnershipControls",),
    "GetBucketPolicy": ("s3:GetBucketPolicy",),
    "GetBucketPolicyStatus": ("s3:GetBucketPolicyStatus",),
    "GetBucketReplication": ("s3:GetReplicationConfiguration",),
    "GetBucketRequestPayment": ("s3:GetBucketRequestPayment",),
    "GetBucketTagging": ("s3:GetBucketTagging",),
    "GetBucketVersioning": ("s3:GetBucketVersioning",),
    "GetBucketWebsite": ("s3:GetBucketWebsite",),
    "GetObject": ("s3:GetObject",),
    "GetObjectAcl": ("s3:GetObjectAcl",),
    "GetObjectAttributes": ("s3:GetObject", "s3:GetObjectAttributes"),
    "GetObjectLegalHold": ("s3:GetObjectLegalHold",),
    "GetObjectLockConfiguration": ("s3:GetBucketObjectLockConfiguration",),
    "GetObjectRetention": ("s3:GetObjectRetention",),
    "GetObjectTagging": ("s3:GetObjectTagging",),
    "GetPublicAccessBlock": ("s3:GetBucketPublicAccessBlock",),
    "HeadBucket": ("s3:ListBucket",),
    "HeadObject": ("s3:GetObject",),
    "ListBucketAnalyticsConfigurations": ("s3:GetAnalyticsConfiguration",),
    "ListBucketIntelligentTieringConfigurations": ("s3:GetIntelligentTieringConfiguration",),
    "ListBucketInventoryConfigurations": ("s3:GetInventoryConfiguration",),
    "ListBucketMetricsConfigurations": ("s3:GetMetricsConfiguration",),
    "ListBuckets": (LIST_BUCKETS,),
    "ListMultipartUploads": ("s3:ListBucketMultipartUploads",),
    "ListObjectAnnotations": ("s3:ListObjectAnnotations",),
    "ListObjectVersions": ("s3:ListBucketVersions",),
    "ListObjects": ("s3:ListBucket",),
    "ListObjectsV2": ("s3:ListBucket",),
    "ListParts": ("s3:ListMultipartUploadParts",),
    "PostObject": ("s3:PutObject",),
    "PutBucketAbac": ("s3:PutBucketAbac",),
    "PutBucketAccelerateConfiguration": ("s3:PutAccelerateConfiguration",),
    "PutBucketAcl": ("s3:PutBucketAcl",),
    "PutBucketAnalyticsConfiguration": ("s3:PutAnalyticsConfiguration",),
    "PutBucketCors": ("s3:PutBucketCORS",),
    "PutBucketEncryption": ("s3:PutEncryptionConfiguration",),
    "PutBucketIntelligentTieringConfiguration": ("s3:PutIntelligentTieringConfiguration",),
    "PutBucketInventoryConfiguration": ("s3:PutInventoryConfiguration",),
    "PutBucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "PutBucketLogging": ("s3:PutBucketLogging",),
    "PutBucketMetricsConfiguration": ("s3:PutMetricsConfiguration",),
    "PutBucketNotificationConfiguration": ("s3:PutBucketNotification",),
    "PutBucketOwnershipControls": ("s3:PutBucketOwnershipControls",),
    "PutBucketPolicy": ("s3:PutBucketPolicy",),
    "PutBucketReplication": ("s3:PutReplicationConfiguration",),
    "PutBucketRequestPayment": ("s3:PutBucketRequestPayment",),
    "PutBucketTagging": ("s3:PutBucketTagging",),
    "PutBucketVersioning": ("s3:PutBucketVersioning",),
    "PutBucketWebsite": ("s3:PutBucketWebsite",),
    "PutObject": ("s3:PutObject",),
    "PutObjectAcl": ("s3:PutObjectAcl",),
    "PutObjectAnnotation": ("s3:PutObjectAnnotation",),
    "PutObjectLegalHold": ("s3:PutObjectLegalHold",),
    "PutObjectLockConfiguration": ("s3:PutBucketObjectLockConfiguration",),
    "PutObjectRetention": ("s3:PutObjectRetention",),
    "PutObjectTagging": ("s3:PutObjectTagging",),
    "PutPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    # For directory buckets; a rename is a write of one key and a removal of the other.
    "RenameObject": ("s3:PutObject", "s3:DeleteObject"),
    "RestoreObject": ("s3:RestoreObject",),
    "SelectObjectContent": ("s3:GetObject",),
    "UpdateBucketMetadataAnnotationTableConfiguration": (
        "s3:UpdateBucketMetadataAnnotationTableConfiguration",
    ),
    "UpdateBucketMetadataInventoryTableConfiguration": (
        "s3:UpdateBucketMetadataInventoryTableConfiguration",
    ),
    "UpdateBucketMetadataJournalTableConfiguration": (
        "s3:UpdateBucketMetadataJournalTableConfiguration",
    ),
    "UpdateObjectEncryption": ("s3:UpdateObjectEncryption",),
    "UploadPart": ("s3:PutObject",),
    "UploadPartCopy": ("s3:PutObject",),
}
"""The actions that each operation needs on its target; all are required."""

VERSION_ACTIONS: Mapping[str, str] = {
    "s3:DeleteObject": "s3:DeleteObjectVersion",
    "s3:DeleteObjectTagging": "s3:DeleteObjectVersionTagging",
    "s3:GetObject": "s3:GetObjectVersion",
    "s3:GetObjectAcl": "s3:GetObjectVersionAcl",
    "s3:GetObjectAttributes": "s3:GetObjectVersionAttributes",
    "s3:GetObjectTagging": "s3:GetObjectVersionTagging",
    "s3:PutObjectAcl": "s3:PutObjectVersionAcl",
    "s3:PutObjectTagging": "s3:PutObjectVersionTagging",
}
"""The action that replaces another action if the request names a version."""

COPY_SOURCE = "s3:GetObject"
"""The action that a copy needs on its source."""

HEADER_ACTIONS: Mapping[bytes, str] = {
    b"x-amz-acl": "s3:PutObjectAcl",
    b"x-amz-grant-full-control": "s3:PutObjectAcl",
    b"x-amz-grant-read": "s3:PutObjectAcl",
    b"x-amz-grant-read-acp": "s3:PutObjectAcl",
    b"x-amz-grant-write": "s3:PutObjectAcl",
    b"x-amz-grant-write-acp": "s3:PutObjectAcl",
    b"x-amz-tagging": "s3:PutObjectTagging",
    b"x-amz-object-lock-legal-hold": "s3:PutObjectLegalHold",
    b"x-amz-object-lock-mode": "s3:PutObjectRetention",
    b"x-amz-object-lock-retain-until-date": "s3:PutObjectRetention",
}
"""The action that a header of an object write needs besides the action of the operation."""

WRITES = frozenset({"PutObject", "CopyObject", "PostObject", "CreateMultipartUpload"})
"""The operations that apply the headers of L{HEADER_ACTIONS}."""

BYPASS = "s3:BypassGovernanceRetention"
"""The action that C{x-amz-bypass-governance-retention} needs."""

POLICY_ACTIONS = frozenset({"s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"})
"""
The actions that no policy can deny to the unlimited keys of the bucket's account, or allow to
another account: who can change the policy has all other rights.
"""

_OF_WRITER = frozenset(
    {
        "s3:DeleteObjectTagging",
        "s3:GetObject",
        "s3:GetObjectAcl",
        "s3:GetObjectAttributes",
        "s3:GetObjectTagging",
        "s3:PutObjectAcl",
        "s3:PutObjectTagging",
    }
)

WRITER_ACTIONS = _OF_WRITER | {VERSION_ACTIONS[action] for action in _OF_WRITER}
"""The actions on the content, tags and ACL of an object, on which the object's account decides."""


INITIATOR_ACTIONS = frozenset({"s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"})
"""The actions that the account that began an upload may perform, unless a policy denies them."""


def actionsOf(operation: str, versionId: str | None = None) -> tuple[str, ...]:
    """
    Return the actions that an operation needs on its target.

    @param operation: Amazon's name.
    @param versionId: The version that the request names; L{None} for none.
    @raise KeyError: The operation is unknown.
    """
    actions = OPERATION_ACTIONS[operation]
    if versionId is None:
        return actions
    return tuple(VERSION_ACTIONS.get(action, action) for action in actions)
