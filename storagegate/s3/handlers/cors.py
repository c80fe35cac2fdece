"""The rules of cross-origin access to a bucket: reading, setting, and preflight requests."""

import msgspec

from storagegate.s3.cors import findRule, parseRequested, readCORS, writeCORS
from storagegate.s3.errors import S3Error
from storagegate.s3.request import Pairs, S3Request
from storagegate.s3.settings import CORS, BucketSettings


async def _find(call: S3Request) -> BucketSettings:
    """Look up the settings of the bucket; the request is decided on."""
    objects = call.services.objects
    return await objects.settings.find(await objects.bucket(call, call.bucket))


async def getBucketCors(call: S3Request) -> None:
    """Respond with the rules."""
    settings = await _find(call)
    if not settings.cors:
        raise S3Error("NoSuchCORSConfiguration", fields={"BucketName": call.bucket})
    call.respondXML(writeCORS(settings.cors))


async def putBucketCors(call: S3Request) -> None:
    """Set the rules."""
    await _find(call)
    rules = readCORS(await call.readDocument())
    document = msgspec.json.encode(rules)
    await call.services.objects.putSettings(call.bucket, {CORS: document})
    call.respond(200)


async def deleteBucketCors(call: S3Request) -> None:
    """Remove the rules; those that do not exist count as removed."""
    await _find(call)
    await call.services.objects.putSettings(call.bucket, {CORS: None})
    call.respond(204)
