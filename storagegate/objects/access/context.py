"""
The values of the condition keys of bucket policies.

Each key has one function that reads it from the L{AccessContext}. The value is the one that the
operation acts on, not the text that was sent: escapes are decoded, case and white space are
canonical, a list contains each item once, and an omitted parameter has its default. Only C{Null}
tests whether a parameter was sent. A key that does not apply to an operation is L{None}, which a
policy can distinguish from an empty text.
"""

from collections.abc import Callable, Mapping, Sequence
from time import gmtime, strftime
from typing import Any, Protocol

from attrs import frozen
from msgspec import Struct, field

from storagegate.core.addresses import readAddress
from storagegate.core.options import parseDecimal
from storagegate.objects.access.actions import HEADER_ACTIONS, WRITES
from storagegate.objects.dates import isoTimestamp, parseUntil
from storagegate.objects.encryption.requests import describeEncryption
from storagegate.objects.pagination import PAGE_LIMIT
from storagegate.objects.principals import Identity, Signing
from storagegate.storage.records import ObjectEncryption, ObjectLock

_UNTIL = b"x-amz-object-lock-retain-until-date"
_GRANTS = frozenset(name for name in HEADER_ACTIONS if name.startswith(b"x-amz-grant-"))
_INTEGER = 2**31 - 1

_NOTHING: Mapping[str, str] = {}
_NO_HEADERS: Mapping[bytes, bytes] = {}


def describeLock(lock: ObjectLock) -> dict[bytes, bytes]:
    """Return the parts of a lock under the names that the language of policies has for them."""
    found = {}
    if lock.mode:
        found[b"x-amz-object-lock-mode"] = lock.mode.encode("ascii")
        found[_UNTIL] = isoTimestamp(lock.untilMs).encode("ascii")
    if lock.legalHold is not None:
        found[b"x-amz-object-lock-legal-hold"] = b"ON" if lock.legalHold else b"OFF"
    return found


class Caller(Protocol):
    """
    A request from a front end, as the domain needs it. Attributes that policies rarely use are
    computed on access.
    """

    @property
    def identity(self) -> Identity:
        """The identity of the request."""

    @property
    def operationName(self) -> str:
        """Amazon's name of the operation."""

    @property
    def now(self) -> float:
        """Seconds since the epoch."""

    @property
    def address(self) -> str:
        """The address of the client, resolved through trusted proxies."""

    @property
    def secure(self) -> bool:
        """Whether the connection is TLS."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """
        What the request names, under the names that the language of policies has for it: those of
        S3's header fields, in lower case.
        """

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of a list, under the names that the language of policies has for them."""

    @property
    def signing(self) -> Signing | None:
        """The signature; L{None} for plain keys and anonymous requests."""

    @property
    def tlsVersion(self) -> str | None:
        """C{"1.2"}, C{"1.3"}; L{None} without TLS."""

    @property
    def requestTags(self) -> Mapping[str, str]:
        """The tags that the request gives to its object."""

    @property
    def copySource(self) -> str | None:
        """The source of a copy, as C{/bucket/key}; L{None} for none."""


class PlainCaller(Struct, frozen=True):
    """A L{Caller} with fixed attributes."""

    identity: Identity
    operationName: str
    now: float = 0.0
    address: str = ""
    secure: bool = False
    headers: Mapping[bytes, bytes] = _NO_HEADERS
    query: Mapping[str, str] = _NOTHING
    signing: Signing | None = None
    tlsVersion: str | None = None
    requestTags: Mapping[str, str] = _NOTHING
    copySource: str | None = None


class DescribedCaller:
    """A L{Caller} whose request names other attributes than it sent."""

    def __init__(
        self,
        caller: Caller,
        headers: Mapping[bytes, bytes],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """@param tags: The tags of the object; L{None} for those that the request names."""
        self._caller = caller
        self.headers = headers
        self._tags = tags

    @property
    def requestTags(self) -> Mapping[str, str]:
        """The tags that the request gives to its object."""
        return self._caller.requestTags if self._tags is None else self._tags

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)


def withEncryption(caller: Caller, encryption: ObjectEncryption | None) -> Caller:
    """
    Return a L{Caller} whose request names the encryption of its upload. Only the request that
    creates an upload can name a kind, and policies that require one also apply to its parts.

    @param encryption: L{None} for plain bytes.
    """
    if encryption is None:
        return caller
    headers = {**caller.headers, **describeEncryption(encryption)}
    described: Any = DescribedCaller(caller, headers)
    return described  # type: ignore[no-any-return]


_CONDITIONS = frozenset({b"if-match", b"if-none-match"})


def withCondition(caller: Caller, etags: Sequence[str]) -> Caller:
    """
    Return a L{Caller} whose request names the condition on one of its objects. A deletion of many
    has them in its document, and ignores its header fields.

    @param etags: The ETags of C{If-Match}; empty for no condition.
    """
    if not etags and _CONDITIONS.isdisjoint(caller.headers):
        return caller
    headers = {name: each for name, each in caller.headers.items() if name not in _CONDITIONS}
    if etags:
        headers[b"if-match"] = ", ".join(etags).encode()
    described: Any = DescribedCaller(caller, headers)
    return described  # type: ignore[no-any-return]


def withTags(caller: Caller, tags: Mapping[str, str]) -> Caller:
    """Return a L{Caller} whose request gives tags to an identity or a session."""
    if not tags:
        return caller
    described: Any = DescribedCaller(caller, caller.headers, tags)
    return described  # type: ignore[no-any-return]


class AccessContext(Struct, frozen=True, eq=False):
    """
    The context in which policies evaluate a request for an action on a bucket or an object.

    @ivar key: The object's key as text; empty for a bucket.
    @ivar owner: The account of the bucket.
    @ivar operation: Amazon's name; a copy reads its source as C{GetObject} does.
    @ivar versionId: The version that the request names; L{None} for none.
    @ivar existingTags: The tags of the stored object.
    @ivar values: The values of condition keys that were already read, by name; or, in a simulation,
        L{SimulatedValues}.
    """

    identity: Identity
    request: Caller
    bucket: str
    key: str
    owner: str
    operation: str
    versionId: str | None = None
    existingTags: Mapping[str, str] = _NOTHING
    values: dict[str, Any] = field(default_factory=dict)


Value = str | tuple[str, ...] | None
"""One value, several values of a multi-valued key, or none."""


@frozen
class ConditionKey:
    """
    A condition key.

    @ivar name: The name in Amazon's spelling.
    @ivar read: Returns the value of a request.
    @ivar isMultiple: Whether the key is multi-valued; variables cannot refer to such a key.
    @ivar isClaim: Whether the key is a claim, which may have several values.
    @ivar canonical: Converts a policy value to the form that L{read} returns for a request.
    @ivar sent: Returns the value as sent, for C{Null}; L{None} for the same as L{read}.
    """

    name: str
    read: Callable[[AccessContext], Value]
    isMultiple: bool = False
    isClaim: bool = False
    canonical: Callable[[str], str] = str
    sent: Callable[[AccessContext], Value] | None = None


_ALWAYS_KNOWN = frozenset(
    {
        "aws:currenttime",
        "aws:epochtime",
        "aws:principalaccount",
        "aws:resourceaccount",
        "s3:resourceaccount",
    }
)
_OF_PRINCIPAL = frozenset({"aws:principalarn", "aws:principaltype", "aws:userid", "aws:username"})


class SimulatedValues(dict[str, Any]):
    """
    The values of condition keys in a simulation, as L{AccessContext.values}: given values, and
    otherwise those of the identity, the owner and the clock. There is no request to read others
    from.

    @ivar missing: The names of the keys that were read and have no value.
    """

    context: "AccessContext"

    def __init__(self, given: Mapping[str, Any], *, isNamed: bool) -> None:
        """
        @param given: The given values, by the names of L{nameOf}.
        @param isNamed: Whether the identity has a name.
        """
        super().__init__()
        self.missing: set[str] = set()
        self._given = given
        self._isNamed = isNamed

    @staticmethod
    def nameOf(name: str) -> str:
        """Return the name of a key in lower case, except for the key of an object's tag."""
        kind, slash, tag = name.lower().partition("/")
        return kind + slash + (tag if kind in _IN_ANY_CASE else name.partition("/")[2])

    def __missing__(self, name: str) -> Any:
        compared = self.nameOf(name)
        value = self._given.get(compared)
        if value is None and self._isOfIdentity(compared):
            key = findKey(name)
            value = None if key is None else key.read(self.context)
        if value is None:
            self.missing.add(name)
        self[name] = value
        return value

    def _isOfIdentity(self, name: str) -> bool:
        if name in _ALWAYS_KNOWN:
            return True
        isOfPrincipal = name in _OF_PRINCIPAL or name.startswith("aws:principaltag/")
        if not (self._isNamed and isOfPrincipal):
            return False
        if name != "aws:userid":
            return True
        # The id of a role is part of those of its sessions; a caller that was only named has none.
        rights = self.context.identity.rights
        return rights is not None and rights.user is not None and bool(rights.user.id)


def valueOf(key: ConditionKey, context: "AccessContext") -> Value:
    """Return the value of a condition key, which is read once."""
    try:
        found: Value = context.values[key.name]
    except KeyError:
        found = context.values[key.name] = key.read(context)
    return found


def sentValue(key: ConditionKey, context: "AccessContext") -> Value:
    """Return the value of a condition key as it was sent, for C{Null}."""
    if isinstance(context.values, SimulatedValues):
        return valueOf(key, context)
    return (key.sent or key.read)(context)


def principalArn(identity: Identity) -> str | None:
    """Return the ARN of an identity; L{None} for an anonymous request."""
    if identity.isAnonymous:
        return None
    if _actsAsRoot(identity):
        return f"arn:aws:iam::{identity.account}:root"
    role = None if identity.rights is None else identity.rights.role
    if role is not None:
        arn: str = role.arn(identity.account)
        return arn
    return f"arn:aws:iam::{identity.account}:user/{identity.principal}"


def _actsAsRoot(identity: Identity) -> bool:
    """Return whether an identity is the root pair or a service key of it."""
    return identity.isRoot or (identity.rights is not None and identity.rights.isRoot)


def _principalType(context: AccessContext) -> str:
    identity = context.identity
    if identity.isAnonymous:
        return "Anonymous"
    if identity.rights is not None and identity.rights.role is not None:
        return "AssumedRole"
    return "Account" if _actsAsRoot(identity) else "User"


def _userName(context: AccessContext) -> str | None:
    identity = context.identity
    if identity.isAnonymous or _actsAsRoot(identity):
        return None
    rights = identity.rights
    if rights is not None and rights.role is not None:
        return None
    user = None if rights is None else rights.user
    return identity.principal if user is None else user.name


def _userId(context: AccessContext) -> str:
    return userId(context.identity)


def userId(identity: Identity) -> str:
    """Return the unique id of an identity, as policies compare it."""
    if identity.isAnonymous:
        return "anonymous"
    if _actsAsRoot(identity):
        return identity.account
    rights = identity.rights
    if rights is not None and rights.role is not None and rights.session is not None:
        return f"{rights.role.id}:{rights.session.name}"
    user = None if rights is None else rights.user
    return identity.principal if user is None else user.id


def _account(context: AccessContext) -> str | None:
    return None if context.identity.isAnonymous else context.identity.account


def _currentTime(context: AccessContext) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(context.request.now))


def _header(name: bytes) -> Callable[[AccessContext], str | None]:
    def read(context: AccessContext) -> str | None:
        value = context.request.headers.get(name)
        return None if value is None else value.decode("utf-8", "replace").strip()

    return read


_LISTS = frozenset({"ListObjects", "ListObjectsV2", "ListObjectVersions"})
_PREFIX_LISTS = _LISTS | {"ListMultipartUploads"}


def _parameter(name: str) -> ConditionKey:
    """Make the key of a list parameter, which is empty if it was omitted."""

    def sent(context: AccessContext) -> str | None:
        isList = context.operation in _PREFIX_LISTS
        return context.request.query.get(name) if isList else None

    def read(context: AccessContext) -> str | None:
        return (sent(context) or "") if context.operation in _PREFIX_LISTS else None

    return ConditionKey(f"s3:{name}", read, sent=sent)


def _sentMaxKeys(context: AccessContext) -> str | None:
    return context.request.query.get("max-keys") if context.operation in _LISTS else None


def _maxKeys(context: AccessContext) -> str | None:
    if context.operation not in _LISTS:
        return None
    text = context.request.query.get("max-keys")
    if text is None:
        return str(PAGE_LIMIT)
    try:
        return str(min(parseDecimal(text, _INTEGER), PAGE_LIMIT))
    except ValueError:
        # The operation refuses the parameter, too.
        return None


def _signatureAge(context: AccessContext) -> str | None:
    signing = context.request.signing
    if signing is None or signing.seconds is None:
        return None
    return str(max(0, int((context.request.now - signing.seconds) * 1000)))


_CREATING = frozenset({"PutObject", "CopyObject", "PostObject", "CompleteMultipartUpload"})
_PREPARING = frozenset({"CreateMultipartUpload", "UploadPart", "UploadPartCopy"})


def _creation(context: AccessContext) -> str | None:
    if context.operation in _CREATING:
        return "true"
    return "false" if context.operation in _PREPARING else None


def _remainingDays(context: AccessContext) -> str | None:
    value = _header(_UNTIL)(context)
    if value is None:
        return None
    try:
        until = parseUntil(value) / 1000
    except ValueError:
        return None
    return str(max(0, int((until - context.request.now) // 86400)))


def _sourceAddress(context: AccessContext) -> str | None:
    address = context.request.address
    try:
        return str(readAddress(address))
    except ValueError:
        # A UNIX socket has no address.
        return address or None


_COPYING = frozenset({"CopyObject", "UploadPartCopy"})


def _copySource(context: AccessContext) -> str | None:
    # The operations that store other bytes ignore the header.
    return context.request.copySource if context.request.operationName in _COPYING else None


def _withSlash(text: str) -> str:
    """Return a copy source with a leading slash, which Amazon's guide omits."""
    return text if text.startswith("/") else f"/{text}"


def _canonicalHash(text: str) -> str:
    return text.lower() if len(text) == 64 else text


def _grantees(text: str) -> str:
    """Return a list of grantees as C{id=...,uri=...}: unique, sorted, without quotes."""
    found = set()
    for each in text.split(","):
        kind, equals, grantee = each.strip().partition("=")
        grantee = grantee.strip()
        if len(grantee) > 1 and grantee[0] == grantee[-1] == '"':
            grantee = grantee[1:-1]
        found.add(f"{kind.strip().lower()}{equals}{grantee}")
    return ",".join(sorted(found))


def _canonicalDate(text: str) -> str:
    try:
        return isoTimestamp(parseUntil(text))
    except ValueError:
        return text


def _retainUntil(context: AccessContext) -> str | None:
    value = _header(_UNTIL)(context)
    return None if value is None else _canonicalDate(value)


def _etags(text: str) -> str:
    """Return a list of entity tags without quotes, each once; C{*} replaces all others."""
    tags = {each.strip().removeprefix("W/").strip('"') for each in text.split(",")}
    return "*" if "*" in tags else ",".join(sorted(tags))


def _fixed(canonical: Callable[[str], str]) -> Callable[[str], str]:
    """Leave policy patterns with wildcards or variables unchanged."""
    return lambda text: text if set("*?$") & set(text) else canonical(text)


def _rewritten(name: str, canonical: Callable[[str], str]) -> ConditionKey:
    """Make the key of a header whose value the operation accepts in several forms."""
    sent = _header(name.encode())

    def read(context: AccessContext) -> str | None:
        value = sent(context)
        return None if value is None else canonical(value)

    return ConditionKey(f"s3:{name}", read, canonical=_fixed(canonical))


def _defaulted(
    name: str,
    default: Callable[[AccessContext], str | None],
    canonical: Callable[[str], str] = str,
) -> ConditionKey:
    """Make the key of a header with a default, which applies if the header was omitted."""
    sent = _header(name.encode())

    def read(context: AccessContext) -> str | None:
        value = sent(context)
        return default(context) if value is None else canonical(value)

    return ConditionKey(f"s3:{name}", read, canonical=_fixed(canonical), sent=sent)


def _defaultList(context: AccessContext) -> str | None:
    isOther = context.operation not in WRITES or not _GRANTS.isdisjoint(context.request.headers)
    return None if isOther else "private"


def _defaultClass(context: AccessContext) -> str | None:
    if context.operation not in WRITES:
        return None
    # Some copies inherit the class of their source; access is decided again when it is known.
    isTaken = context.operation == "CopyObject" and _directive(context) != "REPLACE"
    return None if isTaken else "STANDARD"


def _directive(context: AccessContext) -> str | None:
    value = _header(b"x-amz-metadata-directive")(context)
    if value is not None:
        return value.upper()
    return "COPY" if context.operation == "CopyObject" else None


_HEADER_KEYS = (
    "x-amz-object-ownership",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-website-redirect-location",
)


def _tagKeys(context: AccessContext) -> tuple[str, ...]:
    """Return the keys of the tags that the request adds or removes."""
    removed: tuple[str, ...] = context.values.get("aws:TagKeys", ())
    return removed or tuple(context.request.requestTags)


def _signingPart(name: str) -> Callable[[AccessContext], str | None]:
    def read(context: AccessContext) -> str | None:
        signing = context.request.signing
        return None if signing is None else getattr(signing, name)

    return read


_KEYS = (
    ConditionKey("aws:CurrentTime", _currentTime),
    ConditionKey("aws:EpochTime", lambda context: str(int(context.request.now))),
    ConditionKey("aws:PrincipalAccount", _account),
    ConditionKey("aws:PrincipalArn", lambda context: principalArn(context.identity)),
    ConditionKey("aws:PrincipalType", _principalType),
    ConditionKey("aws:Referer", _header(b"referer")),
    ConditionKey("aws:ResourceAccount", lambda context: context.owner),
    ConditionKey(
        "aws:SecureTransport", lambda context: "true" if context.request.secure else "false"
    ),
    ConditionKey("aws:SourceIp", _sourceAddress),
    ConditionKey("aws:TagKeys", _tagKeys, isMultiple=True),
    ConditionKey("aws:UserAgent", _header(b"user-agent")),
    ConditionKey("aws:userid", _userId),
    ConditionKey("aws:username", _userName),
    ConditionKey("s3:authType", _signingPart("kind")),
    _parameter("delimiter"),
    # A bucket has a policy only after its creation, when no request names a region.
    ConditionKey("s3:LocationConstraint", lambda context: None),
    ConditionKey("s3:max-keys", _maxKeys, sent=_sentMaxKeys),
    ConditionKey("s3:object-lock-legal-hold", _header(b"x-amz-object-lock-legal-hold")),
    ConditionKey("s3:object-lock-mode", _header(b"x-amz-object-lock-mode")),
    ConditionKey("s3:object-lock-remaining-retention-days", _remainingDays),
    ConditionKey(
        "s3:object-lock-retain-until-date", _retainUntil, canonical=_fixed(_canonicalDate)
    ),
    ConditionKey("s3:ObjectCreationOperation", _creation),
    _parameter("prefix"),
    ConditionKey(
        "s3:RequestObjectTagKeys",
        lambda context: tuple(context.request.requestTags),
        isMultiple=True,
    ),
    ConditionKey("s3:ResourceAccount", lambda context: context.owner),
    ConditionKey("s3:signatureAge", _signatureAge),
    ConditionKey("s3:signatureversion", _signingPart("version")),
    ConditionKey("sts:ExternalId", lambda context: context.values.get("sts:ExternalId")),
    ConditionKey("sts:RoleSessionName", lambda context: context.values.get("sts:RoleSessionName")),
    ConditionKey(
        "sts:TransitiveTagKeys",
        lambda context: context.values.get("sts:TransitiveTagKeys"),
        isMultiple=True,
    ),
    ConditionKey("s3:TlsVersion", lambda context: context.request.tlsVersion),
    ConditionKey("s3:VersionId", lambda context: context.versionId),
    ConditionKey("s3:x-amz-copy-source", _copySource, canonical=_withSlash),
    _defaulted("x-amz-acl", _defaultList),
    _defaulted("x-amz-content-sha256", lambda context: "UNSIGNED-PAYLOAD", _canonicalHash),
    _defaulted("x-amz-metadata-directive", _directive, str.upper),
    _defaulted("x-amz-storage-class", _defaultClass),
    *(_rewritten(name.decode(), _grantees) for name in sorted(_GRANTS)),
    _rewritten("if-match", _etags),
    _rewritten("if-none-match", _etags),
    *(ConditionKey(f"s3:{name}", _header(name.encode())) for name in _HEADER_KEYS),
)

CONDITION_KEYS: Mapping[str, ConditionKey] = {key.name.lower(): key for key in _KEYS}
"""All keys except tag keys, by lower-case name: policies may use any case."""


def _principalTags(context: AccessContext) -> Mapping[str, str]:
    rights = context.identity.rights
    return _NOTHING if rights is None else rights.tags


_TAGS: Mapping[str, Callable[[AccessContext], Mapping[str, str]]] = {
    "s3:existingobjecttag/": lambda context: context.existingTags,
    "aws:principaltag/": _principalTags,
    "aws:requesttag/": lambda context: context.request.requestTags,
    "s3:requestobjecttag/": lambda context: context.request.requestTags,
}

# The tags of an identity differ by more than case, unlike those of an object.
_IN_ANY_CASE = frozenset({"aws:principaltag", "aws:requesttag"})


def findKey(name: str) -> ConditionKey | None:
    """
    Look up a condition key.

    @param name: The name in any case, except for the tag key in C{s3:ExistingObjectTag/KEY} and
        C{s3:RequestObjectTag/KEY}.
    """
    known = CONDITION_KEYS.get(name.lower())
    if known is not None:
        return known
    kind, slash, tag = name.partition("/")
    tags = _TAGS.get(kind.lower() + slash)
    if tags is None or not tag:
        return _claimKey(name)
    if kind.lower() not in _IN_ANY_CASE:
        return ConditionKey(name, lambda context: tags(context).get(tag))
    lower = tag.lower()

    def read(context: AccessContext) -> str | None:
        found = tags(context)
        if tag in found:
            return found[tag]
        return next((value for key, value in found.items() if key.lower() == lower), None)

    return ConditionKey(name, read)


def _claimKey(name: str) -> ConditionKey | None:
    """Make the key of a claim: C{jwt:CLAIM}, or C{ISSUER:CLAIM} with the URL of the issuer."""
    issuer, _, claim = name.partition(":")
    if issuer.lower() != "jwt":
        issuer, _, claim = name.rpartition(":")
        # No other prefix of a key has a dot, a slash or a port.
        if not {".", "/", ":"} & set(issuer):
            return None
    if not claim:
        return None

    def read(context: AccessContext) -> Value:
        rights = context.identity.rights
        session = None if rights is None else rights.session
        if session is None or not session.issuer:
            return None
        if issuer.lower() not in ("jwt", session.issuer.lower()):
            return None
        found = session.claims.get(claim)
        return tuple(found) if isinstance(found, list) else found

    return ConditionKey(name, read, isClaim=True)
