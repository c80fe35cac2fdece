"""
The errors of the domain: one class for each reason to refuse, and the mapping of store errors.

Each front end has a table from these classes to its own codes and statuses: S3 in
C{s3/errors.py}, the Storage service in C{services/objects.py}, the console in C{console/errors.py}.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from storagegate.core.heldbytes import TooMuchHeld
from storagegate.storage import errors as store
from storagegate.storage.records import ObjectRecord


class DomainError(Exception):
    """
    A refused operation.

    @cvar code: The name of the reason, which clients match.
    @cvar text: The default message.
    @ivar message: The message for the user.
    @ivar details: What the error concerns, such as C{{"bucket": "photos"}}, in order.
    """

    code: ClassVar[str] = "InternalError"
    text: ClassVar[str] = "We encountered an internal error. Please try again."

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "code" not in cls.__dict__:
            cls.code = cls.__name__

    def __init__(self, message: str | None = None, **details: str) -> None:
        """@param message: Replaces the default message."""
        self.message = self.text if message is None else message
        self.details: Mapping[str, str] = details
        super().__init__(f"{self.code}: {self.message}")


class InternalError(DomainError):
    """A fault of the server or its store, whose details stay in its log."""


class Refusal(Struct, frozen=True):
    """
    The rule that decided on a request, mostly by refusing it. Operators see it, clients do not.

    @ivar rule: One sentence.
    @ivar statement: The number of the deciding statement in the bucket's policy, from 1; 0 for
        another rule.
    """

    rule: str
    statement: int = 0


class AccessDenied(DomainError):
    """
    The caller has no right to do this.

    @ivar explain: Finds the rule that refused, by evaluating the rules once more; L{None} if the
        message names the rule.
    """

    text = "Access Denied"

    def __init__(
        self,
        message: str | None = None,
        explain: Callable[[], Refusal] | None = None,
        **details: str,
    ) -> None:
        super().__init__(message, **details)
        self.explain = explain


class AccessControlListNotSupported(DomainError):
    """The ownership of the bucket excludes ACLs."""

    text = "The bucket does not allow ACLs"


class AmbiguousGrantByEmailAddress(DomainError):
    """Several accounts have the email address of a grant."""

    text = "The e-mail address you provided is associated with more than one account."


class UnresolvableGrantByEmailAddress(DomainError):
    """No account has the email address of a grant."""

    text = "The e-mail address you provided does not match any account on record."


class BadDigest(DomainError):
    """A body or an object does not have the declared checksum."""

    text = "The Content-MD5 you specified did not match what we received."


class PayloadHashMismatch(DomainError):
    """A body does not have the signed hash."""

    code = "XAmzContentSHA256Mismatch"
    text = "The provided 'x-amz-content-sha256' header does not match what was computed."


class TooManyTags(DomainError):
    """A bucket or an object would get too many tags."""

    code = "BadRequest"


class BucketAlreadyExists(DomainError):
    """Another account owns a bucket of this name."""

    text = (
        "The requested bucket name is not available. The bucket namespace is shared by all users "
        "of the system. Please select a different name and try again."
    )


class BucketAlreadyOwnedByYou(DomainError):
    """The account already owns a bucket of this name."""

    text = "Your previous request to create the named bucket succeeded and you already own it."


class BucketOccupied(DomainError):
    """A bucket with objects cannot be deleted."""

    code = "BucketNotEmpty"
    text = "The bucket you tried to delete is not empty"


class EntityTooLarge(DomainError):
    """A body or an object is too large."""

    text = "Your proposed upload exceeds the maximum allowed size"


class EntityTooSmall(DomainError):
    """A part other than the last is too small."""

    text = "Your proposed upload is smaller than the minimum allowed size"


class ForeignRegion(DomainError):
    """A new bucket names the region of another server."""

    code = "IllegalLocationConstraintException"
    text = (
        "The specified location-constraint is incompatible for the region specific endpoint this "
        "request was sent to."
    )


class InvalidRegion(DomainError):
    """A new bucket names an invalid region."""

    code = "InvalidLocationConstraint"
    text = "The specified location-constraint is not valid"


class BodyLengthMismatch(DomainError):
    """A body is shorter or longer than declared."""

    code = "IncompleteBody"
    text = "You did not provide the number of bytes specified by the Content-Length HTTP header"


class OutOfSpace(DomainError):
    """The store has no space."""

    code = "InsufficientStorage"
    text = "There is not enough space to store the object."


class WritesUnavailable(DomainError):
    """The store accepts no writes."""

    code = "ServiceUnavailable"
    text = "Service is unable to handle request."


class SlowDown(DomainError):
    """The store is busy: a retry may succeed."""

    text = "Please reduce your request rate."


class InvalidArgument(DomainError):
    """
    An argument is invalid. Its details are C{name} and C{value}.
    """

    text = "Invalid Argument"


class InvalidBucketAclWithObjectOwnership(DomainError):
    """The ACL of a bucket contradicts its ownership."""

    text = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"


class InvalidBucketName(DomainError):
    """No bucket can have this name."""

    text = "The specified bucket is not valid."


class InvalidBucketState(DomainError):
    """The settings of the bucket exclude the operation."""

    text = "The request is not valid for the current state of the bucket."


class InvalidDigest(DomainError):
    """C{Content-MD5} is not a digest. Its detail is C{contentMD5}."""

    text = "The Content-MD5 you specified was invalid."


class InvalidKey(DomainError):
    """A key is not UTF-8."""

    code = "InvalidURI"
    text = "Couldn't parse the specified URI."


class KeyTooLong(DomainError):
    """A key has too many bytes."""

    code = "KeyTooLongError"
    text = "Your key is too long"


class PartMismatch(DomainError):
    """A completion names a part that does not exist or differs."""

    code = "InvalidPart"
    text = (
        "One or more of the specified parts could not be found.  The part may not have been "
        "uploaded, or the specified entity tag may not match the part's entity tag."
    )


class InvalidPartOrder(DomainError):
    """A completion names its parts in another order than by number."""

    text = "The list of parts was not in ascending order. Parts must be ordered by part number."


class InvalidRequest(DomainError):
    """The arguments contradict each other or the object."""

    text = "Invalid Request"


class InvalidStorageClass(DomainError):
    """The store has no such storage class."""

    text = "The storage class you specified is not valid"


class InvalidTag(DomainError):
    """A tag is invalid."""

    text = "The tag provided was not a valid tag."


class MalformedDocument(DomainError):
    """A document of a setting has another form."""

    code = "MalformedXML"
    text = (
        "The XML you provided was not well-formed or did not validate against our published schema"
    )


class MalformedList(DomainError):
    """The document of an ACL has another form."""

    code = "MalformedACLError"
    text = (
        "The ACL that you provided was not well formed or did not validate against our published "
        "schema"
    )


class PolicyNotFound(DomainError):
    """The bucket has no policy."""

    code = "NoSuchBucketPolicy"
    text = "The bucket policy does not exist"


class CORSNotFound(DomainError):
    """The bucket has no CORS rules."""

    code = "NoSuchCORSConfiguration"
    text = "The CORS configuration does not exist"


class LifecycleNotFound(DomainError):
    """The bucket has no lifecycle rules."""

    code = "NoSuchLifecycleConfiguration"
    text = "The lifecycle configuration does not exist"


class LockNotFound(DomainError):
    """The version has no retention or no legal hold."""

    code = "NoSuchObjectLockConfiguration"
    text = "The specified object does not have a ObjectLock configuration"


class BucketLockNotFound(DomainError):
    """The bucket has no object lock."""

    code = "ObjectLockConfigurationNotFoundError"
    text = "Object Lock configuration does not exist for this bucket"


class OwnershipNotFound(DomainError):
    """The bucket has no object ownership."""

    code = "OwnershipControlsNotFoundError"
    text = "The bucket ownership controls were not found"


class PublicAccessBlockNotFound(DomainError):
    """The bucket has no public access block."""

    code = "NoSuchPublicAccessBlockConfiguration"
    text = "The public access block configuration was not found"


class TagsNotFound(DomainError):
    """The bucket has no tags."""

    code = "NoSuchTagSet"
    text = "The TagSet does not exist"


class MalformedPolicy(DomainError):
    """
    A policy is invalid; the message names the problem.

    @ivar place: The number of the C{statement}, from 1, and the name of its C{element}; empty if
        the error is outside the statements.
    """

    text = "This policy contains invalid Json"

    def __init__(
        self, message: str | None = None, place: Mapping[str, int | str] | None = None
    ) -> None:
        super().__init__(message)
        self.place: Mapping[str, int | str] = place or {}


class MalformedPolicyDocument(DomainError):
    """
    A policy of a user, a group or a role is invalid; the message names the problem.

    @ivar place: See L{MalformedPolicy}.
    """

    text = "The policy is not in the valid JSON format."

    def __init__(
        self, message: str | None = None, place: Mapping[str, int | str] | None = None
    ) -> None:
        super().__init__(message)
        self.place: Mapping[str, int | str] = place or {}


class NoSuchEntity(DomainError):
    """The user, group, role, policy or key does not exist."""

    text = "The request was rejected because it referenced a resource entity that does not exist."


class EntityAlreadyExists(DomainError):
    """The account has an entity of this name, which may differ by case."""

    text = "The request was rejected because it attempted to create a resource that already exists."


class DeleteConflict(DomainError):
    """An entity that others need cannot be deleted."""

    text = "The request was rejected because the entity has subordinate entities."


class LimitExceeded(DomainError):
    """An account or an entity would get too many or too large entities."""

    text = "The request was rejected because it attempted to exceed a limit."


class UnmodifiableEntity(DomainError):
    """The user is the key of an operator, which is not kept as a user."""

    text = "The entity cannot be modified."


class ValidationError(DomainError):
    """A parameter of a call on users is missing or invalid."""

    text = "The request is not valid."


class InvalidInput(DomainError):
    """A value of a simulation is invalid."""

    text = "The request was rejected because an invalid input was provided."


class PackedPolicyTooLarge(DomainError):
    """The policy and the tags of a new session are too large."""

    text = "The session policy and the session tags are too large."


class InvalidIdentityToken(DomainError):
    """The token of a web identity is not valid here."""

    text = "The web identity token could not be validated."


class ExpiredWebIdentity(DomainError):
    """The token of a web identity has expired."""

    code = "ExpiredTokenException"
    text = "The web identity token has expired."


class IssuerUnreachable(DomainError):
    """The keys of an issuer cannot be fetched."""

    code = "IDPCommunicationError"
    text = "The keys of the identity provider could not be fetched. Please try again."


class UnauthenticatedCall(DomainError):
    """A call that needs credentials has none."""

    code = "MissingAuthenticationToken"
    text = "Request is missing Authentication Token"


class InvalidToken(DomainError):
    """The token of a temporary key is not valid, or its session has ended early."""

    text = "The provided token is malformed or otherwise invalid."


class ExpiredToken(DomainError):
    """The session of a temporary key has expired."""

    text = "The provided token has expired."


class MetadataTooLarge(DomainError):
    """An object would get too much metadata."""

    text = "Your metadata headers exceed the maximum allowed metadata size"


class BucketNotFound(DomainError):
    """The bucket does not exist."""

    code = "NoSuchBucket"
    text = "The specified bucket does not exist"


class ObjectNotFound(DomainError):
    """
    The object does not exist.

    @ivar marker: The delete marker that is the current version of the key, if any.
    """

    code = "NoSuchKey"
    text = "The specified key does not exist."
    marker: ObjectRecord | None = None


class UploadNotFound(DomainError):
    """The upload does not exist, or has ended."""

    code = "NoSuchUpload"
    text = (
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have "
        "been aborted or completed."
    )


class VersionNotFound(DomainError):
    """The version does not exist."""

    code = "NoSuchVersion"
    text = "The specified version does not exist."


class VersionIsDeleteMarker(DomainError):
    """
    The version is a delete marker, which can only be deleted.

    @ivar marker: The delete marker.
    """

    code = "MethodNotAllowed"
    text = "The specified method is not allowed against this resource."

    def __init__(self, marker: ObjectRecord, operation: str) -> None:
        """@param operation: Amazon's name of the refused operation."""
        super().__init__(None, operation=operation)
        self.marker = marker


class UnsupportedFeature(DomainError):
    """The argument requests a feature that is not implemented."""

    code = "NotImplemented"
    text = "A header you provided implies functionality that is not implemented"


class OperationAborted(DomainError):
    """The object changed at the same time: a retry may succeed."""

    text = (
        "A conflicting conditional operation is currently in progress against this resource. "
        "Please try again."
    )


class ConditionFailed(DomainError):
    """A condition of the caller does not hold."""

    code = "PreconditionFailed"
    text = "At least one of the pre-conditions you specified did not hold"


class EncryptionNotFound(DomainError):
    """The bucket has no default encryption."""

    code = "ServerSideEncryptionConfigurationNotFoundError"
    text = "The server side encryption configuration was not found"


class MasterKeysUnavailable(DomainError):
    """The provider of master keys cannot be reached, or has no keys: a retry may succeed."""

    code = "ServiceUnavailable"
    text = "The master keys are not available now."


class MasterKeyNotFound(DomainError):
    """There is no master key of this name."""

    code = "KMS.NotFoundException"
    text = "The master key does not exist."


class MasterKeyDisabled(DomainError):
    """The master key is disabled."""

    code = "KMS.DisabledException"
    text = "The master key is disabled."


class MasterKeyExists(DomainError):
    """A master key of this name exists."""

    text = "The master key exists."


class WrongMasterKey(InternalError):
    """A wrapped key belongs to another master key or another object, or is damaged."""


_KINDS: Mapping[type[BaseException], type[DomainError]] = {
    TooMuchHeld: SlowDown,
    store.NoSuchBucket: BucketNotFound,
    store.BucketNotEmpty: BucketOccupied,
    store.BucketLocked: InvalidBucketState,
    store.BucketNotLocked: InvalidRequest,
    store.BucketNotVersioned: InvalidBucketState,
    store.InvalidVersionId: InvalidArgument,
    store.NoSuchKey: ObjectNotFound,
    store.NoSuchUpload: UploadNotFound,
    store.ObjectLocked: AccessDenied,
    store.InvalidPart: PartMismatch,
    store.PreconditionFailed: ConditionFailed,
    store.BucketChanged: SlowDown,
    store.ConcurrentChange: OperationAborted,
    store.StoreFull: OutOfSpace,
    store.StoreReadOnly: WritesUnavailable,
    store.StoreBusy: SlowDown,
}

# Messages that are more specific than those of the classes.
_MESSAGES: Mapping[type[BaseException], str] = {
    store.BucketNotLocked: "Bucket is missing Object Lock Configuration",
    store.BucketNotVersioned: (
        "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"
    ),
    store.ObjectLocked: "Access Denied because object protected by object lock.",
}


def asDomainError(error: BaseException) -> DomainError:
    """
    Return any exception as an error of the domain.

    An unknown exception, such as a damaged blob, becomes L{InternalError}: its own message does not
    leave the server.
    """
    if isinstance(error, DomainError):
        return error
    for kind in type(error).__mro__:
        if kind in _KINDS:
            return _KINDS[kind](_MESSAGES.get(kind))
    return InternalError()
