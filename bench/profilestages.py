"""
To which stage of a request each function belongs.

The innermost function of a stack that a rule names decides; a function that no rule names, one of
the standard library, works for the one that called it. A later rule wins over an earlier one.
"""

from collections.abc import Sequence
from functools import cache

from attrs import frozen

OTHER = "other"
"""The stage of stacks that no rule names a function of."""

SAMPLER = "sampler"
"""What the profile itself costs: it counts for nothing."""


@frozen
class Rule:
    """
    Functions that belong to a stage.

    @ivar file: The end of their file's path, or of a folder's, which then ends in C{/}.
    @ivar names: What their qualified names are or end with; none for all functions of the file.
    """

    stage: str
    file: str
    names: tuple[str, ...] = ()

    def matches(self, file: str, name: str) -> bool:
        """Say whether a function is among them."""
        path = f"/{file}"
        isThere = f"/{self.file}" in path if self.file.endswith("/") else path.endswith(self.file)
        if not isThere:
            return False
        return not self.names or any(f".{name}".endswith(f".{each}") for each in self.names)


def _rules(stage: str, *files: str) -> list[Rule]:
    """Give a stage all functions of some files, or some of a file: C{"file name name"}."""
    found = []
    for each in files:
        file, *names = each.split()
        found.append(Rule(stage, file, tuple(names)))
    return found


RULES: Sequence[Rule] = [
    *_rules("reactor", "twisted/internet/", "twisted/python/", "asyncio/", "selectors.py"),
    *_rules("wait for events", "epollreactor.py doPoll _ContinuousPolling", "selectors.py select"),
    *_rules(
        "read", "twisted/internet/tcp.py doRead _dataReceived", "twisted/internet/udp.py doRead"
    ),
    *_rules("write", "twisted/internet/abstract.py", "twisted/internet/tcp.py write writeSomeData"),
    *_rules("write", "twisted/internet/udp.py write"),
    *_rules(
        "connection", "storagegate/net/", "storagegate/core/task.py", "storagegate/core/streams.py"
    ),
    *_rules("read", "storagegate/net/transport.py", "storagegate/net/scheduling.py"),
    *_rules("reactor", "storagegate/net/transport.py _poll _runCalls"),
    *_rules(
        "write",
        "storagegate/net/sendfile.py",
        "storagegate/net/transport.py write writeSequence doWrite writeSomeData _queue _sendQueue "
        "_flush _sendHeld sendFile _advanceFile _endFile writeAll",
    ),
    *_rules("head", "storagegate/net/http/parser.py", "storagegate/net/http/lines.py"),
    *_rules(
        "body",
        "storagegate/net/http/parser.py feed readAvailable read __anext__ __aiter__ complete "
        "discard isReceived blocksNext progress ArrivingBody.__init__ CompleteBody.__init__ "
        "SizedDecoder.__init__ ChunkedDecoder.__init__ _readSize _readData _readDataEnd "
        "_readTrailer",
        "storagegate/s3/checksums.py",
        "storagegate/s3/chunked.py",
        "storagegate/storage/blobs/",
    ),
    *_rules("head of the response", "storagegate/net/http/message.py"),
    *_rules(
        "connection",
        "storagegate/net/http/message.py ChannelRequest.__init__ onEnd onDisconnect "
        "connectionLost setPaused clientHost clientPort secure takeTransport",
    ),
    # S3
    *_rules("handler", "storagegate/s3/", "storagegate/storage/"),
    *_rules("body", "storagegate/s3/checksums.py", "storagegate/s3/chunked.py"),
    *_rules("body", "storagegate/storage/blobs/"),
    *_rules("route", "storagegate/s3/names.py", "storagegate/s3/operations.py"),
    *_rules("authenticate", "storagegate/s3/auth/", "storagegate/auth/"),
    *_rules("authenticate", "storagegate/s3/resource.py _authenticate"),
    *_rules(
        "authorise",
        "storagegate/s3/accounts.py",
        "storagegate/s3/request.py authorise checkOwner",
        "storagegate/s3/objects.py _own",
    ),
    *_rules("authenticate", "storagegate/s3/accounts.py find prove"),
    *_rules("look-up", "storagegate/storage/catalog/", "storagegate/storage/records.py"),
    *_rules("look-up", "storagegate/s3/objects.py object bucket listObjects checkWrite"),
    *_rules(
        "conditions",
        "storagegate/s3/conditions.py",
        "storagegate/s3/handlers/get.py _prepare",
        "storagegate/s3/objects.py checkVersion",
    ),
    *_rules(
        "head of the response",
        "storagegate/s3/request.py objectHeaders checksumHeaders override respond startResponse",
    ),
    *_rules("document", "storagegate/s3/xml/", "storagegate/s3/pagination.py"),
    *_rules("commit", "storagegate/storage/store.py", "storagegate/storage/catalog/writer.py"),
    *_rules("commit", "storagegate/storage/catalog/wal.py", "storagegate/storage/sqlite.py"),
    *_rules(
        "commit",
        "storagegate/storage/catalog/objects.py Put.of putObjects insert remove find evaluate "
        "objectValues segmentsText deleteObjects _findSQL _insertSQL "
        "_deleteSQL _chunks _cuts",
        "storagegate/storage/catalog/sqlite.py putObject deleteObjects createBucket",
    ),
    # The framework
    *_rules("handler", "storagegate/http/", "_app.py", "overheadservice.py"),
    *_rules("request", "storagegate/http/request.py", "storagegate/http/resource.py"),
    *_rules("response", "storagegate/http/response.py", "storagegate/http/conditional.py"),
    *_rules(
        "route",
        "storagegate/http/dispatch.py",
        "storagegate/http/matcher.py",
        "storagegate/http/patterns.py",
        "storagegate/http/router.py",
    ),
    *_rules("body", "storagegate/http/middleware/bodyparser.py"),
    # The gateway
    *_rules("transport", "storagegate/gateway/", "storagegate/net/websocket/"),
    *_rules("route", "storagegate/gateway/transports/http/listener.py"),
    *_rules("write", "storagegate/gateway/transports/udp/listener.py send _sendAll"),
    *_rules("read", "storagegate/gateway/transports/udp/listener.py _read"),
    *_rules("message", "storagegate/gateway/messages/", "storagegate/core/codecs.py"),
    *_rules("message", "storagegate/core/context.py"),
    *_rules("invoke", "storagegate/core/invoker.py", "storagegate/core/ratelimit.py"),
    *_rules("validate", "storagegate/core/schemas.py", "storagegate/core/typeschemas.py"),
    # gRPC
    *_rules("engine", "storagegate/rpc/engine/", "grpc/"),
    *_rules("dispatch", "storagegate/rpc/dispatch.py", "storagegate/rpc/call.py"),
    *_rules("message", "storagegate/rpc/codec.py", "storagegate/rpc/converters.py"),
    # What is told of requests
    *_rules(
        "metrics",
        "storagegate/telemetry/",
        "storagegate/s3/observers.py",
        "storagegate/gateway/metrics.py",
        "storagegate/gateway/monitoring.py",
        "storagegate/gateway/transports/metrics.py",
        "storagegate/s3/resource.py _startRecord",
    ),
    # Each signal of the timer wakes the reactor up.
    *_rules(SAMPLER, "twisted/internet/_signals.py", "profiler/sitecustomize.py"),
    *_rules(SAMPLER, "twisted/internet/process.py reapAllProcesses"),
]

ORDER = (
    *("wait for events", "reactor", "read", "connection", "head", "request", "body", "engine"),
    *("dispatch", "transport", "route", "authenticate", "authorise", "message", "validate"),
    *("invoke", "handler", "look-up", "conditions", "commit", "document", "response"),
    *("head of the response", "write", "metrics"),
)
"""The stages in the order of a trip."""


@cache
def _stageOfFunction(file: str, name: str) -> str:
    name = name.replace("<locals>.", "")
    for rule in reversed(RULES):
        if rule.matches(file, name):
            return rule.stage
    return ""


def stageOf(stack: Sequence[tuple[str, str]]) -> str:
    """
    Find the stage of a stack.

    @param stack: File and qualified name of each function, the innermost first.
    """
    stages = [_stageOfFunction(file, name) for file, name in stack if file]
    if SAMPLER in stages:
        return SAMPLER
    return next(filter(None, stages), OTHER)
