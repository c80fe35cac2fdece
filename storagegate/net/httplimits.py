"""The limits of one HTTP listener."""

from attrs import frozen


@frozen(kw_only=True)
class HTTPLimits:
    """
    How much of everything a listener takes. Sizes are bytes, times are seconds.

    Times are looked at once a second, so each may last up to a second longer.

    @ivar headSize: Request line and header fields together. Presigned URLs and the metadata of S3
        stay far below.
    @ivar headFields: Header fields of a request; browsers send about twenty.
    @ivar pathSize: The path alone: the longest S3 key, percent-encoded, needs 3 KiB.
    @ivar trailerSize: The fields after a chunked body.
    @ivar headersTimeout: From the first byte of a request to the end of its head. Trickling does
        not extend it.
    @ivar requestTimeout: How long a request may go without progress of its body or its response.
    @ivar progressSize: Fewer bytes than this of a body of known length are no progress, so that
        nobody holds a connection with a byte a minute.
    @ivar keepAlive: Whether a connection may have more than one request.
    @ivar keepAliveTimeout: How long a connection may idle between requests.
    @ivar pipelinedRequests: How many requests may wait behind the one that is being answered
        before reading pauses; also how many are served before other connections get their turn.
    @ivar bodyBuffer: How much of a body is held for a handler that is not reading.
    @ivar bodyReadSize: How much one read takes while a large body is coming.
    @ivar bodyReads: What one read of each request under way may take together; a read is never
        smaller than C{bodyBuffer}.
    @ivar drainedBody: How much of a body that nobody wants is read, so that the client gets to
        see the answer.
    @ivar lingerTimeout: How long a connection that we have closed may take to go away.
    @ivar foreignBodySize: The body of a request for a stock Twisted resource, which is held in
        memory before the resource sees it.
    @ivar maxConnections: Open connections; one costs about 10 KiB.
    @ivar maxRequests: Requests that are being answered at one time. More get a 503.
    """

    headSize: int = 16 * 1024
    headFields: int = 100
    pathSize: int = 8 * 1024
    trailerSize: int = 8 * 1024
    headersTimeout: float = 60.0
    requestTimeout: float = 300.0
    progressSize: int = 4 * 1024
    keepAlive: bool = True
    keepAliveTimeout: float = 5.0
    pipelinedRequests: int = 16
    bodyBuffer: int = 64 * 1024
    bodyReadSize: int = 256 * 1024
    bodyReads: int = 4 * 1024 * 1024
    drainedBody: int = 64 * 1024
    lingerTimeout: float = 2.0
    foreignBodySize: int = 10 * 1024 * 1024
    maxConnections: int = 4096
    maxRequests: int = 1024
