"""
Settings of buckets and objects that are not kept yet.

Clients read them unasked, so a read answers what Amazon answers where the setting was never made.
A write answers 501: a setting must not be taken and forgotten.
"""

from storagegate.s3.operation import Access, FixedAnswer, Level, Operation
from storagegate.s3.xmlwriter import document


def _answer(root: str, content: str = "") -> FixedAnswer:
    return FixedAnswer(document(root, content))


def _absent(code: str, message: str | None = None) -> FixedAnswer:
    return FixedAnswer(code=code, message=message)


_NO_LIST = "<IsTruncated>false</IsTruncated>"
_NO_LOCK = _absent("InvalidRequest", "Bucket is missing Object Lock Configuration")
_NOT_IMPLEMENTED = _absent("NotImplemented")

# Selector, Amazon's name of the read, its answer. The documents and errors are those that S3 was
# seen to send for a new bucket, except where a client relies on an older default: encryption,
# ownershipControls and publicAccessBlock answer as for a bucket that was made before 2023.
_BUCKET_READS = (
    ("abac", "GetBucketAbac", _answer("AbacStatus", "<Status>Disabled</Status>")),
    ("accelerate", "GetBucketAccelerateConfiguration", _answer("AccelerateConfiguration")),
    (
        "analytics",
        "ListBucketAnalyticsConfigurations",
        _answer("ListBucketAnalyticsConfigurationsResult", _NO_LIST),
    ),
    ("analytics&id", "GetBucketAnalyticsConfiguration", _absent("NoSuchConfiguration")),
    ("cors", "GetBucketCors", _absent("NoSuchCORSConfiguration")),
    (
        "encryption",
        "GetBucketEncryption",
        _absent("ServerSideEncryptionConfigurationNotFoundError"),
    ),
    (
        "intelligent-tiering",
        "ListBucketIntelligentTieringConfigurations",
        _answer("ListIntelligentTieringConfigurationsResult", _NO_LIST),
    ),
    (
        "intelligent-tiering&id",
        "GetBucketIntelligentTieringConfiguration",
        _absent("NoSuchConfiguration"),
    ),
    (
        "inventory",
        "ListBucketInventoryConfigurations",
        _answer("ListInventoryConfigurationsResult", _NO_LIST),
    ),
    ("inventory&id", "GetBucketInventoryConfiguration", _absent("NoSuchConfiguration")),
    ("lifecycle", "GetBucketLifecycleConfiguration", _absent("NoSuchLifecycleConfiguration")),
    ("logging", "GetBucketLogging", _answer("BucketLoggingStatus")),
    (
        "metadataConfiguration",
        "GetBucketMetadataConfiguration",
        _absent("MetadataConfigurationNotFound"),
    ),
    (
        "metadataTable",
        "GetBucketMetadataTableConfiguration",
        _absent("MetadataConfigurationNotFound"),
    ),
    (
        "metrics",
        "ListBucketMetricsConfigurations",
        _answer("ListMetricsConfigurationsResult", _NO_LIST),
    ),
    ("metrics&id", "GetBucketMetricsConfiguration", _absent("NoSuchConfiguration")),
    ("notification", "GetBucketNotificationConfiguration", _answer("NotificationConfiguration")),
    ("object-lock", "GetObjectLockConfiguration", _absent("ObjectLockConfigurationNotFoundError")),
    ("ownershipControls", "GetBucketOwnershipControls", _absent("OwnershipControlsNotFoundError")),
    ("policy", "GetBucketPolicy", _absent("NoSuchBucketPolicy")),
    ("policyStatus", "GetBucketPolicyStatus", _absent("NoSuchBucketPolicy")),
    (
        "publicAccessBlock",
        "GetPublicAccessBlock",
        _absent("NoSuchPublicAccessBlockConfiguration"),
    ),
    ("replication", "GetBucketReplication", _absent("ReplicationConfigurationNotFoundError")),
    (
        "requestPayment",
        "GetBucketRequestPayment",
        _answer("RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>"),
    ),
    ("tagging", "GetBucketTagging", _absent("NoSuchTagSet")),
    ("versioning", "GetBucketVersioning", _answer("VersioningConfiguration")),
    ("website", "GetBucketWebsite", _absent("NoSuchWebsiteConfiguration")),
)

_OBJECT_READS = (
    ("annotation", "ListObjectAnnotations", _NOT_IMPLEMENTED),
    ("legal-hold", "GetObjectLegalHold", _NO_LOCK),
    ("retention", "GetObjectRetention", _NO_LOCK),
    ("tagging", "GetObjectTagging", _answer("Tagging", "<TagSet></TagSet>")),
)

_BUCKET_CHANGES = (
    (b"PUT", "abac", "PutBucketAbac"),
    (b"PUT", "accelerate", "PutBucketAccelerateConfiguration"),
    (b"PUT", "acl", "PutBucketAcl"),
    (b"PUT", "analytics", "PutBucketAnalyticsConfiguration"),
    (b"DELETE", "analytics", "DeleteBucketAnalyticsConfiguration"),
    (b"PUT", "cors", "PutBucketCors"),
    (b"DELETE", "cors", "DeleteBucketCors"),
    (b"PUT", "encryption", "PutBucketEncryption"),
    (b"DELETE", "encryption", "DeleteBucketEncryption"),
    (b"PUT", "intelligent-tiering", "PutBucketIntelligentTieringConfiguration"),
    (b"DELETE", "intelligent-tiering", "DeleteBucketIntelligentTieringConfiguration"),
    (b"PUT", "inventory", "PutBucketInventoryConfiguration"),
    (b"DELETE", "inventory", "DeleteBucketInventoryConfiguration"),
    (b"PUT", "lifecycle", "PutBucketLifecycleConfiguration"),
    (b"DELETE", "lifecycle", "DeleteBucketLifecycle"),
    (b"PUT", "logging", "PutBucketLogging"),
    (b"PUT", "metadataAnnotationTable", "UpdateBucketMetadataAnnotationTableConfiguration"),
    (b"POST", "metadataConfiguration", "CreateBucketMetadataConfiguration"),
    (b"DELETE", "metadataConfiguration", "DeleteBucketMetadataConfiguration"),
    (b"PUT", "metadataInventoryTable", "UpdateBucketMetadataInventoryTableConfiguration"),
    (b"PUT", "metadataJournalTable", "UpdateBucketMetadataJournalTableConfiguration"),
    (b"POST", "metadataTable", "CreateBucketMetadataTableConfiguration"),
    (b"DELETE", "metadataTable", "DeleteBucketMetadataTableConfiguration"),
    (b"PUT", "metrics", "PutBucketMetricsConfiguration"),
    (b"DELETE", "metrics", "DeleteBucketMetricsConfiguration"),
    (b"PUT", "notification", "PutBucketNotificationConfiguration"),
    (b"PUT", "object-lock", "PutObjectLockConfiguration"),
    (b"PUT", "ownershipControls", "PutBucketOwnershipControls"),
    (b"DELETE", "ownershipControls", "DeleteBucketOwnershipControls"),
    (b"PUT", "policy", "PutBucketPolicy"),
    (b"DELETE", "policy", "DeleteBucketPolicy"),
    (b"PUT", "publicAccessBlock", "PutPublicAccessBlock"),
    (b"DELETE", "publicAccessBlock", "DeletePublicAccessBlock"),
    (b"PUT", "replication", "PutBucketReplication"),
    (b"DELETE", "replication", "DeleteBucketReplication"),
    (b"PUT", "requestPayment", "PutBucketRequestPayment"),
    (b"PUT", "tagging", "PutBucketTagging"),
    (b"DELETE", "tagging", "DeleteBucketTagging"),
    (b"PUT", "versioning", "PutBucketVersioning"),
    (b"PUT", "website", "PutBucketWebsite"),
    (b"DELETE", "website", "DeleteBucketWebsite"),
)

_OBJECT_CHANGES = (
    (b"PUT", "acl", "PutObjectAcl"),
    (b"PUT", "annotation", "PutObjectAnnotation"),
    (b"DELETE", "annotation", "DeleteObjectAnnotation"),
    (b"PUT", "encryption", "UpdateObjectEncryption"),
    (b"PUT", "legal-hold", "PutObjectLegalHold"),
    (b"PUT", "renameObject", "RenameObject"),
    (b"POST", "restore", "RestoreObject"),
    (b"PUT", "retention", "PutObjectRetention"),
    (b"POST", "select", "SelectObjectContent"),
    (b"PUT", "tagging", "PutObjectTagging"),
    (b"DELETE", "tagging", "DeleteObjectTagging"),
)

SETTING_ROWS = (
    *(
        Operation(name, b"GET", Level.BUCKET, Access.READ, selector, answer=answer)
        for selector, name, answer in _BUCKET_READS
    ),
    *(
        Operation(name, b"GET", Level.OBJECT, Access.READ, selector, answer=answer)
        for selector, name, answer in _OBJECT_READS
    ),
    *(
        Operation(name, method, Level.BUCKET, Access.ADMIN, selector, answer=_NOT_IMPLEMENTED)
        for method, selector, name in _BUCKET_CHANGES
    ),
    *(
        Operation(name, method, Level.OBJECT, Access.WRITE, selector, answer=_NOT_IMPLEMENTED)
        for method, selector, name in _OBJECT_CHANGES
    ),
)
"""The rows of the table of operations that concern settings."""
