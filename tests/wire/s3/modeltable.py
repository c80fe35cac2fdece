"""
What the daemon does with each header, parameter and element of Amazon's model of S3.

A row names one or more of them, the operations for which it speaks (none: all that are built), a
sample, and the answer to it. In a sample C{bucket}, C{etag}, C{modified} and C{owner} in braces
stand for those of the bucket's object. A row is

- I{obeyed}: the sample is an impossible or a telling one, and the answer shows that it was read;
- I{harmless}: the sample changes nothing, for the reason that stands there;
- I{refused}: the sample asks for what is not built.
"""

from base64 import b64encode
from collections.abc import Iterator

from attrs import frozen


@frozen
class Row:
    """
    What is done with some names.

    @ivar kind: C{header}, C{query} or C{element}.
    @ivar names: Of headers and parameters; of elements, paths.
    @ivar operations: Those for which it speaks; empty for all that are built and have the name.
    @ivar status: Of the answer to the sample.
    @ivar code: Of the error.
    @ivar shows: A part of the head or body of the answer; with C{stored}, of the head of a read
        that follows.
    @ivar lacks: What is no part of the answer.
    @ivar reason: Why it is harmless.
    """

    kind: str
    names: tuple[str, ...]
    verdict: str
    sample: str
    operations: tuple[str, ...] = ()
    status: int = 200
    code: str = ""
    shows: str = ""
    lacks: str = ""
    stored: bool = False
    reason: str = ""


def _row(kind: str, names: str, verdict: str, sample: str, operations: str, **more: object) -> Row:
    return Row(
        kind,
        tuple(names.split()),
        verdict,
        sample,
        tuple(operations.split()),
        **more,  # type: ignore[arg-type]
    )


def _obeyed(kind: str, names: str, sample: str, operations: str = "", **more: object) -> Row:
    return _row(kind, names, "obeyed", sample, operations, **more)


def _harmless(kind: str, names: str, sample: str, reason: str, operations: str = "") -> Row:
    return _row(kind, names, "harmless", sample, operations, reason=reason)


def _refused(
    kind: str,
    names: str,
    sample: str,
    operations: str = "",
    status: int = 501,
    code: str = "NotImplemented",
) -> Row:
    return _row(kind, names, "refused", sample, operations, status=status, code=code)


_INVALID = {"status": 400, "code": "InvalidArgument"}
_CODE = "PreconditionFailed"
_REQUEST = "InvalidRequest"
_TAG = "<Tag><Key>a</Key><Value/></Tag>"
_FAILED = {"status": 412, "code": _CODE}
_EPOCH = "Thu, 01 Jan 1970 00:00:01 GMT"
_STRANGER = "a" * 64
_READS = "GetObject HeadObject"
_LISTS = "ListObjects ListObjectsV2 ListObjectVersions ListMultipartUploads"
_WRITES = "PutObject CopyObject CompleteMultipartUpload"


_BUILT = (("crc32", 4), ("crc32c", 4), ("crc64nvme", 8), ("sha1", 20), ("sha256", 32))
_NOT_BUILT = ("md5", "sha512", "xxhash64", "xxhash3", "xxhash128")
_CHECKSUMS = (*(name for name, _ in _BUILT), *_NOT_BUILT)


def _checksumRows() -> Iterator[Row]:
    """Give the rows of checksums: a wrong value, and algorithms that are not built."""
    for name, size in _BUILT:
        wrong = b64encode(b"\xff" * size).decode()
        yield _obeyed("header", f"x-amz-checksum-{name}", wrong, status=400, code="BadDigest")
        part = f"<Checksum{name.upper()}>{wrong}</Checksum{name.upper()}>"
        path = f"CompleteMultipartUpload/Part/Checksum{name.upper()}"
        yield _obeyed("element", path, _part(part), status=400, code="InvalidPart")
    for name in _NOT_BUILT:
        yield _refused("header", f"x-amz-checksum-{name}", "AAAA", "", 400, "InvalidRequest")
        part = f"<Checksum{name.upper()}>AAAA</Checksum{name.upper()}>"
        path = f"CompleteMultipartUpload/Part/Checksum{name.upper()}"
        yield _refused("element", path, _part(part), "", 400, "InvalidPart")


def _part(more: str = "", number: str = "1", etag: str = "{etag}") -> str:
    fields = f"<PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{more}"
    return f"<CompleteMultipartUpload><Part>{fields}</Part></CompleteMultipartUpload>"


def _delete(more: str = "", settings: str = "") -> str:
    return f"<Delete><Object><Key>k-one</Key>{more}</Object>{settings}</Delete>"


def _cors(tag: str, text: str) -> str:
    found = {"AllowedOrigin": "*", "AllowedMethod": "GET", tag: text}
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in found.items())
    return f"<CORSConfiguration><CORSRule>{inner}</CORSRule></CORSConfiguration>"


def _lifecycle(path: str, content: str) -> str:
    top, *tags = path.split("/")
    for tag in reversed(tags):
        content = f"<{tag}>{content}</{tag}>"
    found = {"Status": "Enabled", "Filter": "", "Expiration": "<Days>1</Days>", top: content}
    if top == "Prefix":
        del found["Filter"]
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in found.items())
    return f"<LifecycleConfiguration><Rule>{inner}</Rule></LifecycleConfiguration>"


def _versioning(content: str) -> str:
    return f"<VersioningConfiguration>{content}</VersioningConfiguration>"


def _default(content: str) -> str:
    enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>"
    rule = f"<Rule><DefaultRetention>{content}</DefaultRetention></Rule>"
    return f"<ObjectLockConfiguration>{enabled}{rule}</ObjectLockConfiguration>"


def _create(content: str) -> str:
    return f"<CreateBucketConfiguration>{content}</CreateBucketConfiguration>"


def _nested(path: str) -> str:
    tags = path.split("/")
    starts, ends = (f"<{tag}>" for tag in tags), (f"</{tag}>" for tag in reversed(tags))
    return "".join([*starts, "x", *ends])


def _acl(
    grantee: str = "<ID>{owner}</ID>",
    permission: str = "FULL_CONTROL",
    owner: str = "<ID>{owner}</ID>",
    kind: str = "CanonicalUser",
) -> str:
    space = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    named = f'<Grantee {space} xsi:type="{kind}">{grantee}</Grantee>'
    grant = f"<Grant>{named}<Permission>{permission}</Permission></Grant>"
    return (
        f"<AccessControlPolicy><Owner>{owner}</Owner>"
        f"<AccessControlList>{grant}</AccessControlList></AccessControlPolicy>"
    )


_OBJECT_LISTS = "CopyObject CreateMultipartUpload PutObject"
_GRANTS = "x-amz-grant-full-control x-amz-grant-read x-amz-grant-read-acp x-amz-grant-write-acp"

_RULE = "ServerSideEncryptionConfiguration/Rule"

_GRANT_WRITE = "x-amz-grant-write"

_HEADERS = (
    _obeyed(
        "header",
        "Cache-Control Content-Disposition Content-Encoding Content-Language",
        "seven",
        "",
        shows="seven",
        stored=True,
    ),
    _obeyed("header", "Content-Type Expires", "text/seven", shows="text/seven", stored=True),
    _obeyed("header", "x-amz-meta-", "seven", shows="x-amz-meta-: seven", stored=True),
    _obeyed("header", "x-amz-storage-class", "STANDARD_IA", shows="STANDARD_IA", stored=True),
    _obeyed("header", "Content-Length", "99999999999", status=400, code="EntityTooLarge"),
    _obeyed("header", "Content-MD5", "none", status=400, code="InvalidDigest"),
    _obeyed("header", "If-Match", '"other"', **_FAILED),
    _obeyed("header", "If-None-Match", "*", _WRITES, **_FAILED),
    _obeyed("header", "If-None-Match", "*", _READS, status=304),
    _obeyed("header", "If-Modified-Since", "{modified}", status=304),
    _obeyed("header", "If-Unmodified-Since", _EPOCH, **_FAILED),
    _obeyed("header", "Range", "bytes=99-", status=416, code="InvalidRange"),
    _obeyed("header", _GRANTS, f"id={_STRANGER}", f"CreateBucket {_OBJECT_LISTS}", **_INVALID),
    _obeyed("header", _GRANT_WRITE, f"id={_STRANGER}", "CreateBucket", **_INVALID),
    _obeyed("header", "x-amz-acl", "none", f"CreateBucket {_OBJECT_LISTS}", **_INVALID),
    # Beside a document, which the samples have.
    _obeyed(
        "header",
        f"x-amz-acl {_GRANTS} {_GRANT_WRITE}",
        "private",
        "PutBucketAcl PutObjectAcl",
        status=400,
        code="InvalidRequest",
    ),
    _harmless(
        "header",
        "x-amz-confirm-remove-self-bucket-access",
        "true",
        "the unlimited keys of the account can always change the policy",
    ),
    _refused("header", "x-amz-bucket-namespace", "account-regional"),
    _obeyed("header", "x-amz-bucket-object-lock-enabled", "yes", **_INVALID),
    _harmless("header", "x-amz-bucket-object-lock-token", "any", "no lock asks for a token"),
    _obeyed("header", "x-amz-object-ownership", "Nothing", **_INVALID),
    _harmless("header", "x-amz-bypass-governance-retention", "true", "the samples are not locked"),
    _obeyed("header", "x-amz-checksum-algorithm", "SHA512", status=400, code="InvalidRequest"),
    _obeyed("header", "x-amz-checksum-mode", "ENABLED", shows="x-amz-checksum-crc32: "),
    _obeyed("header", "x-amz-checksum-type", "NONE", status=400, code="InvalidRequest"),
    _obeyed("header", "x-amz-copy-source", "nothing", **_INVALID),
    _obeyed("header", "x-amz-copy-source-if-match", '"other"', **_FAILED),
    _obeyed("header", "x-amz-copy-source-if-none-match", "*", **_FAILED),
    _obeyed("header", "x-amz-copy-source-if-modified-since", "{modified}", **_FAILED),
    _obeyed("header", "x-amz-copy-source-if-unmodified-since", _EPOCH, **_FAILED),
    _obeyed("header", "x-amz-copy-source-range", "bytes=5-99", **_INVALID),
    _obeyed(
        "header",
        "x-amz-copy-source-server-side-encryption-customer-algorithm "
        "x-amz-copy-source-server-side-encryption-customer-key "
        "x-amz-copy-source-server-side-encryption-customer-key-MD5",
        "AES256",
        **_INVALID,
    ),
    _obeyed("header", "x-amz-expected-bucket-owner", _STRANGER, status=403, code="AccessDenied"),
    _refused("header", "x-amz-if-match-initiated-time", _EPOCH),
    _obeyed("header", "x-amz-if-match-last-modified-time", _EPOCH, **_FAILED),
    _obeyed("header", "x-amz-if-match-size", "7", **_FAILED),
    _obeyed("header", "x-amz-max-parts x-amz-part-number-marker", "x", **_INVALID),
    _obeyed("header", "x-amz-object-attributes", "Other", **_INVALID),
    _obeyed("header", "x-amz-metadata-directive", "NEITHER", **_INVALID),
    _harmless("header", "x-amz-mfa", "serial 123456", "no bucket asks for a second factor"),
    _obeyed("header", "x-amz-mp-object-size", "x", status=400, code="InvalidRequest"),
    _harmless("header", "x-amz-object-annotation-directive", "EXCLUDE", "there are no annotations"),
    _refused("header", "x-amz-object-lock-event-hold", "ON"),
    _refused(
        "header",
        "x-amz-object-lock-event-hold-duration-days x-amz-object-lock-event-hold-duration-years",
        "1",
    ),
    _obeyed("header", "x-amz-object-lock-legal-hold", "ON", status=400, code="InvalidRequest"),
    _obeyed("header", "x-amz-object-lock-mode", "GOVERNANCE", **_INVALID),
    _obeyed("header", "x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z", **_INVALID),
    _harmless(
        "header",
        "x-amz-optional-object-attributes",
        "RestoreStatus",
        "no object is in an archive, so none was restored",
    ),
    _harmless("header", "x-amz-request-payer", "requester", "requests cost nothing"),
    _obeyed("header", "x-amz-sdk-checksum-algorithm", "SHA1", status=400, code="InvalidRequest"),
    _obeyed(
        "header",
        "x-amz-server-side-encryption x-amz-server-side-encryption-aws-kms-key-id "
        "x-amz-server-side-encryption-bucket-key-enabled x-amz-server-side-encryption-context",
        "seven",
        **_INVALID,
    ),
    # Each alone: the other two are missing.
    _obeyed(
        "header",
        "x-amz-server-side-encryption-customer-algorithm "
        "x-amz-server-side-encryption-customer-key "
        "x-amz-server-side-encryption-customer-key-MD5",
        "AES256",
        **_INVALID,
    ),
    _obeyed("header", "x-amz-source-expected-bucket-owner", _STRANGER, status=403),
    _obeyed("header", "x-amz-tagging", "a=b", shows="x-amz-tagging-count: 1", stored=True),
    _obeyed("header", "x-amz-tagging-directive", "NEITHER", **_INVALID),
    _obeyed("header", "x-amz-transition-default-minimum-object-size", "7", **_INVALID),
    _refused("header", "x-amz-website-redirect-location", "/elsewhere"),
    _refused("header", "x-amz-write-offset-bytes", "6"),
)

_PARAMETERS = (
    _obeyed("query", "bucket-region", "eu-west-1", lacks="<Bucket>"),
    _obeyed("query", "continuation-token", "x", "ListBuckets ListObjectsV2", **_INVALID),
    _harmless(
        "query",
        "continuation-token",
        "x",
        "such a list is empty",
        "ListBucketAnalyticsConfigurations ListBucketIntelligentTieringConfigurations "
        "ListBucketInventoryConfigurations ListBucketMetricsConfigurations",
    ),
    _obeyed("query", "delimiter", "-", shows="<CommonPrefixes>"),
    _obeyed("query", "encoding-type", "other", **_INVALID),
    _obeyed("query", "fetch-owner", "true", shows="<Owner>"),
    _obeyed("query", "id", "seven", status=404, code="NoSuchConfiguration"),
    _obeyed("query", "key-marker marker start-after", "zzz", lacks="<Key>"),
    _obeyed("query", "max-buckets", "0", **_INVALID),
    _obeyed("query", "max-keys max-parts max-uploads part-number-marker", "x", **_INVALID),
    _obeyed("query", "partNumber", "x", **_INVALID),
    _obeyed("query", "prefix", "zzz", "ListBuckets", lacks="<Bucket>"),
    _obeyed("query", "prefix", "zzz", _LISTS, lacks="<Key>"),
    _obeyed(
        "query",
        "response-cache-control response-content-disposition response-content-encoding "
        "response-content-language response-content-type response-expires",
        "text/seven",
        shows=": text/seven",
    ),
    _obeyed("query", "upload-id-marker", f"{'f' * 48}&key-marker=k-up", lacks="<UploadId>"),
    _obeyed("query", "uploadId", "none", status=404, code="NoSuchUpload"),
    _obeyed("query", "version-id-marker", "null", **_INVALID),
    _obeyed("query", "versionId", "other", **_INVALID),
)

_ELEMENTS = (
    _obeyed(
        "element",
        "CompleteMultipartUpload/Part/ETag",
        _part(etag="none"),
        status=400,
        code="InvalidPart",
    ),
    _obeyed(
        "element",
        "CompleteMultipartUpload/Part/PartNumber",
        _part(number="2"),
        status=400,
        code="InvalidPart",
    ),
    _obeyed(
        "element",
        "CreateBucketConfiguration/LocationConstraint",
        _create("<LocationConstraint>eu-west-1</LocationConstraint>"),
        status=400,
        code="IllegalLocationConstraintException",
    ),
    *(
        _refused(
            "element",
            f"CreateBucketConfiguration/{path}",
            _create(_nested(path)),
        )
        for path in (
            "Location/Type",
            "Location/Name",
            "Bucket/Type",
            "Bucket/DataRedundancy",
        )
    ),
    *(
        _obeyed("element", f"{path}/Tag/{tag}", document, status=400, code="InvalidTag")
        for tag, content in (
            ("Key", "<Tag><Key>a!</Key><Value/></Tag>"),
            ("Value", "<Tag><Key>a</Key><Value>b!</Value></Tag>"),
        )
        for path, document in (
            ("CreateBucketConfiguration/Tags", _create(f"<Tags>{content}</Tags>")),
            ("Tagging/TagSet", f"<Tagging><TagSet>{content}</TagSet></Tagging>"),
        )
    ),
    _obeyed("element", "Delete/Object/Key", _delete(), shows="<Deleted><Key>k-one</Key>"),
    *(
        _obeyed("element", f"Delete/Object/{tag}", _delete(f"<{tag}>7</{tag}>"), shows=code)
        for tag, code in (("VersionId", "NoSuchVersion"), ("ETag", _CODE), ("Size", _CODE))
    ),
    _obeyed(
        "element",
        "Delete/Object/LastModifiedTime",
        _delete(f"<LastModifiedTime>{_EPOCH}</LastModifiedTime>"),
        shows=_CODE,
    ),
    _obeyed(
        "element",
        "VersioningConfiguration/Status",
        _versioning("<Status>On</Status>"),
        status=400,
        code="MalformedXML",
    ),
    _refused(
        "element",
        "VersioningConfiguration/MfaDelete",
        _versioning("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>"),
    ),
    _obeyed("element", "Delete/Quiet", _delete("", "<Quiet>true</Quiet>"), lacks="<Deleted>"),
    *(
        _obeyed(
            "element",
            f"AccessControlPolicy/AccessControlList/Grant/{path}",
            document,
            status=400,
            code=code,
        )
        for path, document, code in (
            (
                "Grantee/EmailAddress",
                _acl("<EmailAddress>a@b</EmailAddress>", kind="AmazonCustomerByEmail"),
                "UnresolvableGrantByEmailAddress",
            ),
            ("Grantee/ID", _acl(f"<ID>{_STRANGER}</ID>"), "InvalidArgument"),
            ("Grantee/URI", _acl("<URI>http://acs/All</URI>", kind="Group"), "InvalidArgument"),
            ("Grantee/xsi:type", _acl(kind="Robot"), "MalformedACLError"),
            ("Permission", _acl(permission="SEE"), "MalformedACLError"),
        )
    ),
    _obeyed(
        "element",
        "OwnershipControls/Rule/ObjectOwnership",
        _nested("OwnershipControls/Rule/ObjectOwnership"),
        status=400,
        code="MalformedXML",
    ),
    *(
        _obeyed(
            "element", f"CORSConfiguration/CORSRule/{tag}", _cors(tag, text), status=400, code=code
        )
        for tag, text, code in (
            ("ID", "i" * 256, "InvalidRequest"),
            ("AllowedOrigin", "*.*", "InvalidRequest"),
            ("AllowedMethod", "PATCH", "InvalidRequest"),
            ("AllowedHeader", "a b", "InvalidRequest"),
            ("ExposeHeader", "x-*", "InvalidRequest"),
            ("MaxAgeSeconds", "soon", "MalformedXML"),
        )
    ),
    *(
        _obeyed("element", path, _nested(path), status=400, code="MalformedXML")
        for path in (
            "ObjectLockConfiguration/ObjectLockEnabled",
            "Retention/Mode",
            "LegalHold/Status",
            "Retention/RetainUntilDate",
            f"{_RULE}/ApplyServerSideEncryptionByDefault/SSEAlgorithm",
            f"{_RULE}/ApplyServerSideEncryptionByDefault/KMSMasterKeyID",
            f"{_RULE}/BlockedEncryptionTypes/EncryptionType",
            f"{_RULE}/BucketKeyEnabled",
        )
    ),
    *(
        _obeyed(
            "element",
            f"ObjectLockConfiguration/Rule/DefaultRetention/{tag}",
            _default(document),
            status=400,
            code=code,
        )
        for tag, document, code in (
            ("Mode", "<Mode>HOLD</Mode><Days>1</Days>", "MalformedXML"),
            ("Days", "<Mode>GOVERNANCE</Mode><Days>0</Days>", "InvalidArgument"),
            ("Years", "<Mode>GOVERNANCE</Mode><Years>101</Years>", "InvalidArgument"),
        )
    ),
    _refused("element", "Retention/EventHold", "<Retention><EventHold>ON</EventHold></Retention>"),
    _refused(
        "element",
        "Retention/EventHoldDuration/Days Retention/EventHoldDuration/Years",
        _nested("Retention/EventHoldDuration/Days"),
    ),
    _refused(
        "element",
        "ObjectLockConfiguration/Rule/DefaultRetention/DefaultEventHold/Days "
        "ObjectLockConfiguration/Rule/DefaultRetention/DefaultEventHold/Years",
        _default("<DefaultEventHold><Days>1</Days></DefaultEventHold>"),
    ),
    *(
        _obeyed(
            "element",
            f"LifecycleConfiguration/Rule/{path}",
            _lifecycle(path.removesuffix(f"/{tag}") if tag else path, text),
            status=400,
            code=code,
        )
        for path, tag, text, code in (
            ("ID", "", "i" * 256, "InvalidArgument"),
            ("Status", "", "On", "MalformedXML"),
            ("Prefix", "", "p" * 1025, "InvalidRequest"),
            ("Expiration/Days", "", "0", "InvalidArgument"),
            ("Expiration/Date", "", "2030-01-01T00:00:01Z", "InvalidArgument"),
            ("Expiration/ExpiredObjectDeleteMarker", "", "perhaps", "MalformedXML"),
            ("NoncurrentVersionExpiration/NoncurrentDays", "", "0", "InvalidArgument"),
            ("NoncurrentVersionExpiration/NewerNoncurrentVersions", "", "101", "InvalidArgument"),
            ("AbortIncompleteMultipartUpload/DaysAfterInitiation", "", "0", "InvalidArgument"),
            ("Filter/Prefix", "", "p" * 1025, "InvalidRequest"),
            ("Filter/ObjectSizeGreaterThan", "", "-1", "InvalidRequest"),
            ("Filter/ObjectSizeLessThan", "", "0", "InvalidRequest"),
            ("Filter/Tag/Key", "Key", "<Key>a!</Key><Value/>", "InvalidTag"),
            ("Filter/Tag/Value", "Value", "<Key>a</Key><Value>b!</Value>", "InvalidTag"),
            ("Filter/And/Prefix", "Prefix", f"<Prefix>{'p' * 1025}</Prefix>{_TAG}", _REQUEST),
            (
                "Filter/And/ObjectSizeGreaterThan",
                "ObjectSizeGreaterThan",
                f"<ObjectSizeGreaterThan>-1</ObjectSizeGreaterThan>{_TAG}",
                _REQUEST,
            ),
            (
                "Filter/And/ObjectSizeLessThan",
                "ObjectSizeLessThan",
                f"<ObjectSizeLessThan>0</ObjectSizeLessThan>{_TAG}",
                _REQUEST,
            ),
            (
                "Filter/And/Tag/Key",
                "Tag/Key",
                "<Prefix/><Tag><Key>a!</Key><Value/></Tag>",
                "InvalidTag",
            ),
            (
                "Filter/And/Tag/Value",
                "Tag/Value",
                "<Prefix/><Tag><Key>a</Key><Value>b!</Value></Tag>",
                "InvalidTag",
            ),
        )
    ),
    *(
        _refused("element", f"LifecycleConfiguration/Rule/{path}", _lifecycle(path, "1"))
        for path in (
            *(f"Transition/{name}" for name in ("Date", "Days", "StorageClass")),
            "NoncurrentVersionTransition/NewerNoncurrentVersions",
            "NoncurrentVersionTransition/NoncurrentDays",
            "NoncurrentVersionTransition/StorageClass",
        )
    ),
    *(
        _obeyed(
            "element",
            f"PublicAccessBlockConfiguration/{name}",
            _nested(f"PublicAccessBlockConfiguration/{name}"),
            status=400,
            code="MalformedXML",
        )
        for name in (
            "BlockPublicAcls",
            "BlockPublicPolicy",
            "IgnorePublicAcls",
            "RestrictPublicBuckets",
        )
    ),
    _harmless(
        "element",
        "AccessControlPolicy/AccessControlList/Grant/Grantee/DisplayName",
        _acl("<ID>{owner}</ID><DisplayName>x</DisplayName>"),
        "the id names the account, whose name is the server's",
    ),
    _harmless(
        "element",
        "AccessControlPolicy/Owner/DisplayName",
        _acl(owner="<ID>{owner}</ID><DisplayName>x</DisplayName>"),
        "the id names the account, whose name is the server's",
    ),
    _obeyed(
        "element",
        "AccessControlPolicy/Owner/ID",
        _acl(owner=f"<ID>{_STRANGER}</ID>"),
        status=403,
        code="AccessDenied",
    ),
)


TABLE = (*_HEADERS, *_PARAMETERS, *_ELEMENTS, *_checksumRows())
"""The rows of all operations that are built."""

_FORWARDED = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Range",
    "Content-Type",
    "ETag",
    "Expires",
    "Last-Modified",
    "accept-ranges",
    *(f"x-amz-checksum-{name}" for name in _CHECKSUMS),
    "x-amz-delete-marker",
    "x-amz-expiration",
    "x-amz-missing-meta",
    "x-amz-mp-parts-count",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-replication-status",
    "x-amz-request-charged",
    "x-amz-restore",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key-MD5",
    "x-amz-storage-class",
    "x-amz-tagging-count",
    "x-amz-version-id",
)

REFUSED_WITH_OPERATION = frozenset(
    (
        "x-amz-client-token",
        "x-amz-create-session-mode",
        "x-amz-fwd-error-code",
        "x-amz-fwd-error-message",
        "x-amz-fwd-status",
        *(f"x-amz-fwd-header-{name}" for name in _FORWARDED),
        "x-amz-object-if-match",
        "x-amz-rename-source",
        "x-amz-rename-source-if-match",
        "x-amz-rename-source-if-modified-since",
        "x-amz-rename-source-if-none-match",
        "x-amz-rename-source-if-unmodified-since",
        "x-amz-request-route",
        "x-amz-request-token",
        "x-amz-skip-destination-validation",
        "annotation-prefix",
        "annotationName",
        "max-annotation-results",
        "max-directory-buckets",
        # The roots of documents.
        "AbacStatus",
        "AccelerateConfiguration",
        "AnalyticsConfiguration",
        "AnnotationTableConfiguration",
        "BucketLoggingStatus",
        "IntelligentTieringConfiguration",
        "InventoryConfiguration",
        "InventoryTableConfiguration",
        "JournalTableConfiguration",
        "MetadataConfiguration",
        "MetadataTableConfiguration",
        "MetricsConfiguration",
        "NotificationConfiguration",
        "ObjectEncryption",
        "ReplicationConfiguration",
        "RequestPaymentConfiguration",
        "RestoreRequest",
        "SelectObjectContentRequest",
        "WebsiteConfiguration",
    )
)
"""Names that only operations have which are refused whole: no document of theirs is read."""
