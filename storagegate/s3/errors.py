"""
S3's errors: the table of codes, the exception, its document, and the errors of the domain.

Statuses and messages are Amazon's own ("Error responses" in the S3 API reference, and observed
responses where that page is vague): programs match the code, and some match the message.
"""

from collections.abc import Mapping, Sequence
from secrets import token_hex

from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.ranges import formatHttpDate
from storagegate.objects import errors
from storagegate.s3.xml.writer import document, element, escapeReadable
from storagegate.storage.records import ObjectRecord

# Status and message by code.
_LINES = {
    "AccessControlListNotSupported": "400 The bucket does not allow ACLs",
    "AccessDenied": "403 Access Denied",
    "AccessForbidden": "403 CORSResponse: This CORS request is not allowed.",
    "AmbiguousGrantByEmailAddress": (
        "400 The e-mail address you provided is associated with more than one account."
    ),
    "AuthorizationHeaderMalformed": "400 The authorization header that you provided is not valid.",
    "AuthorizationQueryParametersError": (
        "400 Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, "
        "X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    ),
    "BadDigest": "400 The Content-MD5 you specified did not match what we received.",
    "BadRequest": "400 An error occurred when parsing the HTTP request.",
    "BucketAlreadyExists": (
        "409 The requested bucket name is not available. The bucket namespace is shared by all "
        "users of the system. Please select a different name and try again."
    ),
    "BucketAlreadyOwnedByYou": (
        "409 Your previous request to create the named bucket succeeded and you already own it."
    ),
    "BucketNotEmpty": "409 The bucket you tried to delete is not empty",
    "DeleteConflict": ("409 The request was rejected because the entity has subordinate entities."),
    "EntityAlreadyExists": (
        "409 The request was rejected because it attempted to create a resource that already "
        "exists."
    ),
    "EntityTooLarge": "400 Your proposed upload exceeds the maximum allowed size",
    "EntityTooSmall": "400 Your proposed upload is smaller than the minimum allowed size",
    "ExpiredToken": "400 The provided token has expired.",
    "ExpiredTokenException": "400 The web identity token has expired.",
    "IDPCommunicationError": (
        "400 The keys of the identity provider could not be fetched. Please try again."
    ),
    "InvalidIdentityToken": "400 The web identity token could not be validated.",
    "ExpectationFailed": "417 The only expectation is 100-continue.",
    "IllegalLocationConstraintException": (
        "400 The specified location-constraint is incompatible for the region specific endpoint "
        "this request was sent to."
    ),
    "IncompleteBody": (
        "400 You did not provide the number of bytes specified by the Content-Length HTTP header"
    ),
    "IncompleteSignature": "400 The request signature does not conform to the standards.",
    "IncorrectNumberOfFilesInPostRequest": "400 POST requires exactly one file upload per request.",
    "InsufficientStorage": "507 There is not enough space to store the object.",
    "InternalError": "500 We encountered an internal error. Please try again.",
    "InvalidAction": "400 The action is not available at this endpoint, which serves S3.",
    "InvalidAccessKeyId": "403 The AWS Access Key Id you provided does not exist in our records.",
    "InvalidArgument": "400 Invalid Argument",
    "InvalidBucketAclWithObjectOwnership": (
        "400 Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"
    ),
    "InvalidBucketName": "400 The specified bucket is not valid.",
    "InvalidBucketOwnerAWSAccountID": (
        "400 The value of the expected bucket owner parameter must be an AWS account ID."
    ),
    "InvalidBucketState": ("409 The request is not valid for the current state of the bucket."),
    "InvalidClientTokenId": "403 The security token included in the request is invalid.",
    "InvalidDigest": "400 The Content-MD5 you specified was invalid.",
    "InvalidInput": "400 The request was rejected because an invalid input was provided.",
    "InvalidLocationConstraint": "400 The specified location-constraint is not valid",
    "InvalidPart": (
        "400 One or more of the specified parts could not be found.  The part may not have been "
        "uploaded, or the specified entity tag may not match the part's entity tag."
    ),
    "InvalidPartNumber": "416 The requested partnumber is not satisfiable",
    "InvalidPartOrder": (
        "400 The list of parts was not in ascending order. Parts must be ordered by part number."
    ),
    "InvalidPolicyDocument": (
        "400 The content of the form does not meet the conditions specified in the policy document."
    ),
    "InvalidRange": "416 The requested range is not satisfiable",
    "InvalidRequest": "400 Invalid Request",
    "InvalidStorageClass": "400 The storage class you specified is not valid",
    "InvalidTag": "400 The tag provided was not a valid tag.",
    "InvalidToken": "400 The provided token is malformed or otherwise invalid.",
    "InvalidURI": "400 Couldn't parse the specified URI.",
    "KeyTooLongError": "400 Your key is too long",
    "KMS.DisabledException": "400 The master key is disabled.",
    "KMS.NotFoundException": "400 The master key does not exist.",
    "LimitExceeded": "409 The request was rejected because it attempted to exceed a limit.",
    "MalformedACLError": (
        "400 The ACL that you provided was not well formed or did not validate against our "
        "published schema"
    ),
    "MalformedPolicy": "400 This policy contains invalid Json",
    "MalformedPolicyDocument": "400 The policy is not in the valid JSON format.",
    "MalformedPOSTRequest": (
        "400 The body of your POST request is not well-formed multipart/form-data."
    ),
    "MalformedXML": (
        "400 The XML you provided was not well-formed or did not validate against our published "
        "schema"
    ),
    "MaxMessageLengthExceeded": "400 Your request was too big.",
    "MaxPostPreDataLengthExceededError": (
        "400 Your POST request fields preceding the upload file were too large."
    ),
    "MetadataConfigurationNotFound": "404 The metadata configuration was not found",
    "MetadataTooLarge": "400 Your metadata headers exceed the maximum allowed metadata size",
    "MethodNotAllowed": "405 The specified method is not allowed against this resource.",
    "MissingRequestBodyError": "400 Request Body is empty",
    "MissingSecurityHeader": "400 Your request was missing a required header",
    "MissingAuthenticationToken": "403 Request is missing Authentication Token",
    "MissingContentLength": "411 You must provide the Content-Length HTTP header.",
    "NoSuchBucket": "404 The specified bucket does not exist",
    "NoSuchBucketPolicy": "404 The bucket policy does not exist",
    "NoSuchCORSConfiguration": "404 The CORS configuration does not exist",
    "NoSuchConfiguration": "404 The specified configuration does not exist.",
    "NoSuchEntity": (
        "404 The request was rejected because it referenced a resource entity that does not exist."
    ),
    "NoSuchKey": "404 The specified key does not exist.",
    "NoSuchLifecycleConfiguration": "404 The lifecycle configuration does not exist",
    "NoSuchObjectLockConfiguration": (
        "404 The specified object does not have a ObjectLock configuration"
    ),
    "NoSuchPublicAccessBlockConfiguration": (
        "404 The public access block configuration was not found"
    ),
    "NoSuchTagSet": "404 The TagSet does not exist",
    "NoSuchUpload": (
        "404 The specified upload does not exist. The upload ID may be invalid, or the upload may "
        "have been aborted or completed."
    ),
    "NoSuchVersion": "404 The specified version does not exist.",
    "NoSuchWebsiteConfiguration": "404 The specified bucket does not have a website configuration",
    "NotImplemented": "501 A header you provided implies functionality that is not implemented",
    "ObjectLockConfigurationNotFoundError": (
        "404 Object Lock configuration does not exist for this bucket"
    ),
    "OperationAborted": (
        "409 A conflicting conditional operation is currently in progress against this resource. "
        "Please try again."
    ),
    "OwnershipControlsNotFoundError": "404 The bucket ownership controls were not found",
    "PackedPolicyTooLarge": "400 The session policy and the session tags are too large.",
    "PreconditionFailed": "412 At least one of the pre-conditions you specified did not hold",
    "ReplicationConfigurationNotFoundError": "404 The replication configuration was not found",
    "RequestTimeTooSkewed": (
        "403 The difference between the request time and the current time is too large."
    ),
    "ServerSideEncryptionConfigurationNotFoundError": (
        "404 The server side encryption configuration was not found"
    ),
    "ServiceUnavailable": "503 Service is unable to handle request.",
    "RequestTimeout": "408 Your socket connection was not read from or written to in time.",
    "SignatureDoesNotMatch": (
        "403 The request signature we calculated does not match the signature you provided. Check "
        "your key and signing method."
    ),
    "SlowDown": "503 Please reduce your request rate.",
    "UnmodifiableEntity": "400 The entity cannot be modified.",
    "UnresolvableGrantByEmailAddress": (
        "400 The e-mail address you provided does not match any account on record."
    ),
    "ValidationError": "400 The request is not valid.",
    "XAmzContentSHA256Mismatch": (
        "400 The provided 'x-amz-content-sha256' header does not match what was computed."
    ),
}
_TABLE = {code: (int(line[:3]), line[4:]) for code, line in _LINES.items()}

CODES = frozenset(_TABLE)
"""The possible error codes."""


class S3Error(Exception):
    """
    An error response.

    @ivar code: Amazon's name of the error.
    @ivar message: The message for the user.
    @ivar status: The HTTP status.
    @ivar fields: Further elements of the document, in order (C{{"BucketName": "photos"}}).
    @ivar headers: Further header fields of the response.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        fields: Mapping[str, str] | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        status: int | None = None,
    ) -> None:
        """
        @param message: Replaces the table's message.
        @param status: Replaces the table's status: the plain-header scheme uses 401 where S3 has
            only 403.
        @raise KeyError: The code is unknown.
        """
        defaultStatus, defaultMessage = _TABLE[code]
        self.code = code
        self.message = defaultMessage if message is None else message
        self.status = defaultStatus if status is None else status
        self.fields: Mapping[str, str] = {} if fields is None else fields
        self.headers = tuple(headers)
        super().__init__(f"{code}: {self.message}")


def errorDocument(error: S3Error, resource: str, requestId: str) -> bytes:
    """
    Return an error as S3's XML. Unlike a listing, it is well-formed for any text in its fields.

    @param resource: The raw path of the request.
    """
    pieces = [element("Code", error.code), f"<Message>{escapeReadable(error.message)}</Message>"]
    pieces += [f"<{name}>{escapeReadable(text)}</{name}>" for name, text in error.fields.items()]
    pieces.append(f"<Resource>{escapeReadable(resource)}</Resource>")
    pieces.append(element("RequestId", requestId))
    return document("Error", "".join(pieces), namespace="")


# Error codes of requests that fail before S3 handles them, by HTTP status.
_REJECTIONS = {
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    417: "ExpectationFailed",
    501: "NotImplemented",
    503: "SlowDown",
}


def describeRejection(error: BadRequest) -> tuple[bytes, bytes]:
    """Return the content type and the document of the response to a malformed request."""
    refusal = S3Error(_REJECTIONS.get(error.code, "BadRequest"), error.text)
    return b"application/xml", errorDocument(refusal, "", token_hex(8).upper())


def invalidArgument(name: str, value: str, message: str | None = None) -> S3Error:
    """
    Make the error for an invalid parameter.

    @param name: The name of the parameter in S3's documentation.
    @param value: The raw value.
    @param message: The problem; L{None} for the default message.
    """
    return S3Error(
        "InvalidArgument", message, fields={"ArgumentName": name, "ArgumentValue": value}
    )


# The code of each error of the domain. For an unknown kind, S3 must not guess.
_CODES: Mapping[type[errors.DomainError], str] = {
    errors.AccessControlListNotSupported: "AccessControlListNotSupported",
    errors.AccessDenied: "AccessDenied",
    errors.AmbiguousGrantByEmailAddress: "AmbiguousGrantByEmailAddress",
    errors.BadDigest: "BadDigest",
    errors.BucketAlreadyExists: "BucketAlreadyExists",
    errors.BucketAlreadyOwnedByYou: "BucketAlreadyOwnedByYou",
    errors.BucketOccupied: "BucketNotEmpty",
    errors.EntityTooLarge: "EntityTooLarge",
    errors.EntityTooSmall: "EntityTooSmall",
    errors.ForeignRegion: "IllegalLocationConstraintException",
    errors.BodyLengthMismatch: "IncompleteBody",
    errors.InternalError: "InternalError",
    errors.InvalidArgument: "InvalidArgument",
    errors.InvalidBucketAclWithObjectOwnership: "InvalidBucketAclWithObjectOwnership",
    errors.InvalidBucketName: "InvalidBucketName",
    errors.InvalidBucketState: "InvalidBucketState",
    errors.InvalidDigest: "InvalidDigest",
    errors.InvalidKey: "InvalidURI",
    errors.PartMismatch: "InvalidPart",
    errors.InvalidPartOrder: "InvalidPartOrder",
    errors.InvalidRegion: "InvalidLocationConstraint",
    errors.InvalidRequest: "InvalidRequest",
    errors.InvalidStorageClass: "InvalidStorageClass",
    errors.InvalidTag: "InvalidTag",
    errors.KeyTooLong: "KeyTooLongError",
    errors.PolicyNotFound: "NoSuchBucketPolicy",
    errors.CORSNotFound: "NoSuchCORSConfiguration",
    errors.EncryptionNotFound: "ServerSideEncryptionConfigurationNotFoundError",
    errors.LifecycleNotFound: "NoSuchLifecycleConfiguration",
    errors.LockNotFound: "NoSuchObjectLockConfiguration",
    errors.BucketLockNotFound: "ObjectLockConfigurationNotFoundError",
    errors.OwnershipNotFound: "OwnershipControlsNotFoundError",
    errors.PublicAccessBlockNotFound: "NoSuchPublicAccessBlockConfiguration",
    errors.TagsNotFound: "NoSuchTagSet",
    errors.MasterKeyDisabled: "KMS.DisabledException",
    errors.MasterKeyExists: "InvalidRequest",
    errors.MasterKeyNotFound: "KMS.NotFoundException",
    errors.MasterKeysUnavailable: "ServiceUnavailable",
    errors.MalformedDocument: "MalformedXML",
    errors.MalformedList: "MalformedACLError",
    errors.MalformedPolicy: "MalformedPolicy",
    errors.MalformedPolicyDocument: "MalformedPolicyDocument",
    errors.NoSuchEntity: "NoSuchEntity",
    errors.EntityAlreadyExists: "EntityAlreadyExists",
    errors.DeleteConflict: "DeleteConflict",
    errors.LimitExceeded: "LimitExceeded",
    errors.UnmodifiableEntity: "UnmodifiableEntity",
    errors.ValidationError: "ValidationError",
    errors.InvalidInput: "InvalidInput",
    errors.InvalidToken: "InvalidToken",
    errors.InvalidIdentityToken: "InvalidIdentityToken",
    errors.ExpiredWebIdentity: "ExpiredTokenException",
    errors.IssuerUnreachable: "IDPCommunicationError",
    errors.PackedPolicyTooLarge: "PackedPolicyTooLarge",
    errors.UnauthenticatedCall: "MissingAuthenticationToken",
    errors.ExpiredToken: "ExpiredToken",
    errors.MetadataTooLarge: "MetadataTooLarge",
    errors.BucketNotFound: "NoSuchBucket",
    errors.ObjectNotFound: "NoSuchKey",
    errors.UploadNotFound: "NoSuchUpload",
    errors.VersionNotFound: "NoSuchVersion",
    errors.UnsupportedFeature: "NotImplemented",
    errors.OperationAborted: "OperationAborted",
    errors.PayloadHashMismatch: "XAmzContentSHA256Mismatch",
    errors.ConditionFailed: "PreconditionFailed",
    errors.SlowDown: "SlowDown",
    errors.OutOfSpace: "InsufficientStorage",
    errors.WritesUnavailable: "ServiceUnavailable",
    errors.TooManyTags: "BadRequest",
    errors.UnresolvableGrantByEmailAddress: "UnresolvableGrantByEmailAddress",
    errors.VersionIsDeleteMarker: "MethodNotAllowed",
    errors.WrongMasterKey: "InternalError",
}

# Elements of the document, by the details of errors.
_ELEMENTS = {
    "argument": "Header",
    "bucket": "BucketName",
    "calculatedDigest": "CalculatedDigest",
    "calculatedHash": "S3ComputedContentSHA256",
    "condition": "Condition",
    "contentMD5": "Content-MD5",
    "element": "Element",
    "email": "Email",
    "etag": "ETag",
    "expectedDigest": "ExpectedDigest",
    "expectedHash": "ClientComputedContentSHA256",
    "key": "Key",
    "maxSize": "MaxSizeAllowed",
    "minSize": "MinSizeAllowed",
    "name": "ArgumentName",
    "partNumber": "PartNumber",
    "proposedSize": "ProposedSize",
    "region": "LocationConstraint",
    "size": "Size",
    "tagKey": "TagKey",
    "tagValue": "TagValue",
    "uploadId": "UploadId",
    "value": "ArgumentValue",
    "versionId": "VersionId",
}

# S3's names of arguments and conditions of the domain.
_NAMES = {
    "absent": "If-None-Match",
    "accountId": "CanonicalUser/ID",
    "acl": "x-amz-acl",
    "continuationToken": "continuation-token",
    "group": "Group/URI",
    "retainUntil": "x-amz-object-lock-retain-until-date",
    "versionAfter": "version-id-marker",
}
_NAMED = frozenset({"argument", "condition", "name"})

# The method of operations on versions, by the verb of their names; GET for all others.
_METHODS = (("Put", "PUT"), ("Delete", "DELETE"), ("Head", "HEAD"))


def asS3Error(error: BaseException) -> S3Error:
    """
    Return any exception as an error of S3.

    An unknown exception, such as a damaged blob, becomes C{InternalError} with S3's own message.
    """
    if isinstance(error, S3Error):
        return error
    found = errors.asDomainError(error)
    if isinstance(found, errors.VersionIsDeleteMarker):
        return _ofMarker(found)
    fields = {
        _ELEMENTS[name]: _NAMES.get(text, text) if name in _NAMED else text
        for name, text in found.details.items()
    }
    headers: Sequence[tuple[bytes, bytes]] = ()
    if isinstance(found, errors.ObjectNotFound) and found.marker is not None:
        headers = _markerHeaders(found.marker)
    message = None if found.message == found.text else found.message
    return S3Error(_CODES[type(found)], message, fields=fields, headers=headers)


def _ofMarker(error: errors.VersionIsDeleteMarker) -> S3Error:
    operation, marker = error.details["operation"], error.marker
    method = next((m for verb, m in _METHODS if operation.startswith(verb)), "GET")
    modified = formatHttpDate(marker.modifiedMs // 1000)
    return S3Error(
        _CODES[type(error)],
        fields={"Method": method, "ResourceType": "DeleteMarker"},
        headers=[(b"Allow", b"DELETE"), (b"Last-Modified", modified), *_markerHeaders(marker)],
    )


def _markerHeaders(marker: ObjectRecord) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-amz-delete-marker", b"true"),
        (b"x-amz-version-id", marker.versionId.encode("ascii")),
    )
