"""The HTTP statuses of errors of the domain in the console's API."""

from collections.abc import Mapping

from storagegate.core.errors import ServiceError
from storagegate.objects import errors

STATUSES: Mapping[type[errors.DomainError], int] = {
    errors.AccessControlListNotSupported: 400,
    errors.AccessDenied: 403,
    errors.AmbiguousGrantByEmailAddress: 400,
    errors.BadDigest: 400,
    errors.BucketAlreadyExists: 409,
    errors.BucketAlreadyOwnedByYou: 409,
    errors.BucketOccupied: 409,
    errors.EntityTooLarge: 400,
    errors.EntityTooSmall: 400,
    errors.ForeignRegion: 400,
    errors.BodyLengthMismatch: 400,
    errors.InternalError: 500,
    errors.InvalidArgument: 400,
    errors.InvalidBucketAclWithObjectOwnership: 400,
    errors.InvalidBucketName: 400,
    errors.InvalidBucketState: 409,
    errors.InvalidDigest: 400,
    errors.InvalidKey: 400,
    errors.PartMismatch: 400,
    errors.InvalidPartOrder: 400,
    errors.InvalidRegion: 400,
    errors.InvalidRequest: 400,
    errors.InvalidStorageClass: 400,
    errors.InvalidTag: 400,
    errors.KeyTooLong: 400,
    errors.PolicyNotFound: 404,
    errors.CORSNotFound: 404,
    errors.EncryptionNotFound: 404,
    errors.LifecycleNotFound: 404,
    errors.LockNotFound: 404,
    errors.BucketLockNotFound: 404,
    errors.OwnershipNotFound: 404,
    errors.PublicAccessBlockNotFound: 404,
    errors.TagsNotFound: 404,
    errors.MasterKeyDisabled: 400,
    errors.MasterKeyExists: 409,
    errors.MasterKeyNotFound: 400,
    errors.MasterKeysUnavailable: 503,
    errors.MalformedDocument: 400,
    errors.MalformedList: 400,
    errors.MalformedPolicy: 400,
    errors.MalformedPolicyDocument: 400,
    errors.NoSuchEntity: 404,
    errors.EntityAlreadyExists: 409,
    errors.DeleteConflict: 409,
    errors.LimitExceeded: 409,
    errors.UnmodifiableEntity: 400,
    errors.InvalidToken: 400,
    errors.ExpiredToken: 400,
    errors.InvalidIdentityToken: 400,
    errors.ExpiredWebIdentity: 400,
    errors.IssuerUnreachable: 424,
    errors.PackedPolicyTooLarge: 400,
    errors.UnauthenticatedCall: 403,
    errors.ValidationError: 400,
    errors.InvalidInput: 400,
    errors.MetadataTooLarge: 400,
    errors.BucketNotFound: 404,
    errors.ObjectNotFound: 404,
    errors.UploadNotFound: 404,
    errors.VersionNotFound: 404,
    errors.UnsupportedFeature: 501,
    errors.OperationAborted: 409,
    errors.PayloadHashMismatch: 400,
    errors.ConditionFailed: 412,
    errors.SlowDown: 503,
    errors.OutOfSpace: 507,
    errors.WritesUnavailable: 503,
    errors.TooManyTags: 400,
    errors.UnresolvableGrantByEmailAddress: 400,
    errors.VersionIsDeleteMarker: 405,
    errors.WrongMasterKey: 500,
}
"""The status of each error."""


def asServiceError(error: BaseException) -> ServiceError | None:
    """Return an error of the domain or the store as the client gets it; L{None} for a fault."""
    found = errors.asDomainError(error)
    status = STATUSES[type(found)]
    if status >= 500:
        return None
    policies = (errors.MalformedPolicy, errors.MalformedPolicyDocument)
    place = found.place if isinstance(found, policies) else {}
    return ServiceError(found.code, found.message, status, dict(place) or None)
