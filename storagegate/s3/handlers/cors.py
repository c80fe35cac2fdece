"""The CORS rules of a bucket: reading and setting them, and preflight requests."""

from collections.abc import Iterable, Mapping, Sequence

from storagegate.objects.cors import CORSRule, findRule
from storagegate.objects.documents.cors import readCORS, writeCORS
from storagegate.objects.errors import DomainError
from storagegate.objects.operations import DeleteBucketCors, GetBucketCors, PutBucketCors
from storagegate.objects.service import ObjectService
from storagegate.s3.errors import S3Error
from storagegate.s3.request import Pairs, S3Request
from storagegate.s3.xml.reader import readDocument
from storagegate.s3.xml.writer import writeDocument

_VARY = b"Origin, Access-Control-Request-Headers, Access-Control-Request-Method"


def _joined(names: Iterable[str]) -> bytes:
    return ", ".join(names).encode("latin-1")


def ruleFields(rule: CORSRule, origin: str, requested: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """
    Return the response header fields for a request that a rule allows.

    @param origin: The origin of the request.
    @param requested: The header field names of a preflight request.
    """
    # Only pages of a named origin may send credentials: browsers refuse them with "*".
    isOpen = "*" in rule.origins
    found = [
        (b"Access-Control-Allow-Origin", b"*" if isOpen else origin.encode("latin-1")),
        (b"Access-Control-Allow-Methods", _joined(rule.methods)),
    ]
    if requested:
        found.append((b"Access-Control-Allow-Headers", _joined(requested)))
    if rule.exposed:
        found.append((b"Access-Control-Expose-Headers", _joined(rule.exposed)))
    if rule.maxAge is not None:
        found.append((b"Access-Control-Max-Age", b"%d" % rule.maxAge))
    if not isOpen:
        found.append((b"Access-Control-Allow-Credentials", b"true"))
    found.append((b"Vary", _VARY))
    return found


def parseRequested(value: bytes) -> list[str]:
    """Parse C{Access-Control-Request-Headers} to distinct lower-case names."""
    names = (name.strip().lower() for name in value.decode("latin-1").split(","))
    return [name for name in dict.fromkeys(names) if name]


async def getBucketCors(call: S3Request) -> None:
    """Respond with the rules."""
    rules = await call.perform(GetBucketCors(call.bucket))
    call.respondXML(writeDocument(writeCORS(rules)))


async def putBucketCors(call: S3Request) -> None:
    """Set the rules."""
    await call.services.objects.bucket(call, call.bucket)
    rules = readCORS(readDocument(await call.readDocument(), "CORSConfiguration"))
    await call.perform(PutBucketCors(call.bucket, rules))
    call.respond(200)


async def deleteBucketCors(call: S3Request) -> None:
    """Remove the rules."""
    await call.perform(DeleteBucketCors(call.bucket))
    call.respond(204)


async def _rulesOf(objects: ObjectService, bucket: str) -> tuple[CORSRule, ...]:
    # No access decision: browsers do not sign preflight requests.
    return (await objects.settings.find(await objects.find(bucket))).cors


async def crossOriginFields(
    objects: ObjectService, method: bytes, bucket: str, headers: Mapping[bytes, bytes]
) -> Pairs:
    """
    Find the CORS header fields of a response, even of an error.

    @param bucket: The bucket, which may not exist.
    @param headers: The headers of the request, including C{Origin}.
    @return: Empty if no rule of the bucket matches.
    """
    try:
        rules = await _rulesOf(objects, bucket)
    except DomainError:
        return ()
    origin = headers[b"origin"].decode("latin-1")
    # As in S3, the fields of a preflight request count in any other request, too.
    name = headers.get(b"access-control-request-method", method).decode("latin-1").strip()
    requested = parseRequested(headers.get(b"access-control-request-headers", b""))
    rule = findRule(rules, origin, name, requested)
    if rule is None and requested:
        # The request itself is allowed, but not the header fields.
        rule, requested = findRule(rules, origin, name), []
    return () if rule is None else ruleFields(rule, origin, requested)


def _refuse(message: str, method: str, level: str) -> S3Error:
    fields = {"Method": method, "ResourceType": level}
    return S3Error("AccessForbidden", f"CORSResponse: {message}", fields=fields)


async def preflight(
    objects: ObjectService, bucket: str | None, hasKey: bool, headers: Mapping[bytes, bytes]
) -> Pairs:
    """
    Decide on a preflight request: C{OPTIONS} from a browser, without credentials.

    @param bucket: The bucket, which may not exist; L{None} if the target names none.
    @param headers: The headers of the request.
    @return: The header fields of the response.
    @raise S3Error: C{BadRequest}, C{AccessForbidden}.
    """
    origin = headers.get(b"origin", b"").decode("latin-1").strip()
    if not origin:
        raise S3Error("BadRequest", "Insufficient information. Origin request header needed.")
    method = headers.get(b"access-control-request-method", b"").decode("latin-1").strip()
    if not method:
        raise S3Error("BadRequest", "Invalid Access-Control-Request-Method: null")
    level = "OBJECT" if hasKey else "BUCKET"
    try:
        rules = () if bucket is None else await _rulesOf(objects, bucket)
    except DomainError:
        raise _refuse("Bucket not found", method, level) from None
    if not rules:
        raise _refuse("CORS is not enabled for this bucket.", method, level)
    requested = parseRequested(headers.get(b"access-control-request-headers", b""))
    rule = findRule(rules, origin, method, requested)
    if rule is None:
        message = (
            "This CORS request is not allowed. This is usually because the evalution of Origin, "
            "request method / Access-Control-Request-Method or Access-Control-Request-Headers are "
            "not whitelisted by the resource's CORS spec."
        )
        raise _refuse(message, method, level)
    return ruleFields(rule, origin, requested)
