"""Presigned URLs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote, urlsplit

from storagegate.objects.issuedkeys import KeyPair
from storagegate.s3.auth.sigv4 import (
    ALGORITHM,
    SignatureScope,
    SignedRequest,
    canonicalRequest,
    deriveSigningKey,
)


def presign(
    pair: KeyPair, region: str, url: str, query: Mapping[str, str], now: float, seconds: int
) -> str:
    """
    Return a presigned URL for GET.

    @param pair: The key that signs.
    @param url: The escaped URL, without a query.
    @param query: Further parameters.
    @param now: Seconds since the epoch.
    @param seconds: The time of validity, in seconds.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    credential = (pair.accessKey, stamp[:8], region, "s3")
    scope = SignatureScope.of(credential, (b"host",))
    signed = {
        **query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{pair.accessKey}/{scope.text}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": "host",
    }
    text = "&".join(f"{name}={quote(signed[name], safe='')}" for name in sorted(signed))
    parts = urlsplit(url)
    headers = {b"host": parts.netloc.encode()}
    request = SignedRequest(b"GET", parts.path.encode(), text.encode(), headers)
    canonical = canonicalRequest(request, scope, "UNSIGNED-PAYLOAD")
    signing = deriveSigningKey(pair.secretKey, *credential[1:])
    digest = sha256(canonical).hexdigest()
    signature = signing.sign(f"{ALGORITHM}\n{stamp}\n{scope.text}\n{digest}".encode())
    return f"{url}?{text}&X-Amz-Signature={signature}"
