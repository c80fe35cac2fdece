"""
Calls in Amazon's query protocol, in which SDKs call IAM and STS, and their errors::

    POST / HTTP/1.1
    Content-Type: application/x-www-form-urlencoded

    Action=AssumeRole&Version=2011-06-15&...

A call can also be a C{GET}, or a C{POST} without a body, with the same parameters in its query.
L{storagegate.s3.iam} serves all of them. A program that is configured with one endpoint for all
services calls them at the S3 listener, and its SDK reads no other document for an error than this::

    ErrorResponse = Error RequestId
    Error         = Type Code Message       ; Type is "Sender" or "Receiver"
"""

import re
from urllib.parse import parse_qs

from storagegate.auth.keyheaders import ACCESS_HEADER, SECRET_HEADER
from storagegate.net.http.message import ChannelRequest
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.writer import document, element, escapeReadable

_FORM = b"application/x-www-form-urlencoded"
_NAMESPACES = {
    "iam": "https://iam.amazonaws.com/doc/2010-05-08/",
    "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
}
_SCOPE = re.compile(rb"/(iam|sts)/aws4_request")


def serviceOf(request: ChannelRequest) -> str:
    """
    Return the service that a request to C{/} calls in the query protocol.

    @return: C{iam} or C{sts}; an unsigned call is for STS. Empty for a request of S3.
    """
    headers, query = request.headers, request.queryString
    isForm = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == _FORM
    isCall = b"Action=" in query or (isForm and request.method == b"POST")
    if not isCall or ACCESS_HEADER in headers or SECRET_HEADER in headers:
        return ""
    scope = headers.get(b"authorization", b"")
    if not scope:
        # Latin-1 has a character for each byte; the values of a call can be in any encoding.
        values = parse_qs(query.decode("latin-1"), encoding="latin-1")
        scope = values.get("X-Amz-Credential", [""])[0].encode("latin-1")
    if not scope:
        return "sts"
    found = _SCOPE.search(scope)
    if found is None:
        # A signature for S3; only a GET without a body can be a request of S3.
        return "sts" if request.method == b"POST" else ""
    return found[1].decode("ascii")


# The codes of IAM and STS for requests that fail to authenticate, by S3's.
_CODES = {
    "AuthorizationHeaderMalformed": "IncompleteSignature",
    "AuthorizationQueryParametersError": "IncompleteSignature",
    "InvalidAccessKeyId": "InvalidClientTokenId",
    "InvalidRequest": "IncompleteSignature",
    "InvalidToken": "InvalidClientTokenId",
    "RequestTimeTooSkewed": "SignatureDoesNotMatch",
}


def refusal(error: S3Error, service: str) -> S3Error:
    """
    Return the error for a call to IAM or STS.

    @param error: The error of the request as one of S3; an error of the server is kept.
    @param service: From L{serviceOf}.
    """
    if error.status >= 500:
        return error
    code = _CODES.get(error.code)
    if code is None:
        return error
    # An unknown key has no message of its own: these services do not tell it from a wrong token.
    return S3Error(code, None if code == "InvalidClientTokenId" else error.message)


def queryErrorDocument(error: S3Error, service: str, requestId: str) -> bytes:
    """
    Return ErrorResponse.

    @param service: From L{serviceOf}.
    """
    kind = element("Type", "Receiver" if error.status >= 500 else "Sender")
    message = f"<Message>{escapeReadable(error.message)}</Message>"
    content = f"<Error>{kind}{element('Code', error.code)}{message}</Error>"
    return document(
        "ErrorResponse", content + element("RequestId", requestId), namespace=_NAMESPACES[service]
    )
