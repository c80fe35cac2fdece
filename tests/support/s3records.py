"""Records of S3 requests, as observers receive them."""

from msgspec.structs import replace

from storagegate.s3.observers import S3RequestRecord

TRACE = "0af7651916cd43dd8448eb211c80319c"


def makeRecord(**changes: object) -> S3RequestRecord:
    """
    Make the record of a request without a connection.

    @param changes: Fields that differ from the defaults.
    """
    record = S3RequestRecord(
        began=0.0,
        requestId=b"1",
        traceId=TRACE.encode(),
        tracing=None,
        method=b"GET",
        path=b"/photos/k",
        queryString=b"",
        agent=b"aws-cli/2 \xff",
        clientHost="192.0.2.7",
        isSecure=False,
    )
    return replace(record, **changes)
