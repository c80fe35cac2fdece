"""
The trace of a call: C{traceparent} and C{tracestate} of W3C Trace Context.

U{https://www.w3.org/TR/trace-context/#traceparent-header}: C{version-traceid-parentid-flags}, all
in lower-case hexadecimal digits.
"""

import re
from collections.abc import Mapping
from random import Random
from struct import Struct
from typing import Any

from storagegate.core.context import Tracing

MAX_STATE_LENGTH = 512
"""Maximum number of characters of a C{tracestate}: the minimum that section 3.3.1.5 requires to
propagate."""

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_NO_TRACE = "0" * 32

# The state is sent as a header field, so it must not contain a line end.
_STATE = re.compile(rf"[ -~]{{1,{MAX_STATE_LENGTH}}}")

# Section 3.2.2.3 requires randomness but not secrecy, which would cost a system call for each ID.
# The generator is separate, as a user may seed Python's.
_random = Random()

# IDs are generated in batches of this size: 0.1 microseconds each.
_IDS = 64
_cut = Struct("32s" * _IDS).unpack
_ids: list[bytes] = []
_tracings: list[Tracing] = []


def parseTraceparent(text: str, state: str = "") -> Tracing | None:
    """
    Parse the trace of a caller (section 3.2.2).

    @param text: A C{traceparent}.
    @param state: The accompanying C{tracestate}; one that cannot be propagated is dropped.
    @return: C{None} if the text is invalid.
    """
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (more and version == "00"):
        return None
    if not int(trace, 16) or not int(span, 16):
        return None
    if state and _STATE.fullmatch(state) is None:
        state = ""
    return Tracing(trace, span, bool(int(flags, 16) & 1), state)


def newTraceId() -> bytes:
    """Generate a trace ID: 32 hexadecimal digits. May run in any thread."""
    while True:
        try:
            return _ids.pop()
        except IndexError:
            _ids.extend(_cut(_random.randbytes(16 * _IDS).hex().encode()))


def newTracing() -> Tracing:
    """Begin a new trace. May run in any thread."""
    while True:
        try:
            return _tracings.pop()
        except IndexError:
            ids = _random.randbytes(16 * _IDS).hex(" ", 16).split()
            _tracings.extend([Tracing(traceId) for traceId in ids])


def receiveTracing(traceparent: Any, state: Any = None, traceId: Any = None) -> Tracing:
    """
    Return the trace that a caller names, or a new one.

    @param traceparent: The value of the C{traceparent} field; anything invalid is ignored.
    @param state: The value of the C{tracestate} field; anything invalid is ignored.
    @param traceId: A trace ID without a span: C{X-Trace-ID}.
    """
    if isinstance(traceparent, str):
        tracing = parseTraceparent(traceparent, state if isinstance(state, str) else "")
        if tracing is not None:
            return tracing
    isNamed = isinstance(traceId, str) and _TRACE_ID.fullmatch(traceId) and traceId != _NO_TRACE
    return Tracing(traceId.lower()) if isNamed else newTracing()


def namedTracing(
    fields: Mapping[bytes, bytes], correlation: bytes = b"x-trace-id"
) -> Tracing | None:
    """
    Return the trace that an HTTP request names, or C{None}.

    @param fields: The header fields, by name in lower case.
    @param correlation: The field with a trace ID without a span.
    """
    parent, traceId = fields.get(b"traceparent"), fields.get(correlation)
    if parent is None and traceId is None:
        return None
    state = fields.get(b"tracestate")
    return receiveTracing(
        None if parent is None else parent.decode("latin-1"),
        None if state is None else state.decode("latin-1"),
        None if traceId is None else traceId.decode("latin-1"),
    )


def tracingOfFields(fields: Mapping[bytes, bytes], correlation: bytes = b"x-trace-id") -> Tracing:
    """
    Return the trace that an HTTP request names (see L{namedTracing}), or a new one.

    @param fields: The header fields, by name in lower case.
    @param correlation: The field with a trace ID, in lower case.
    """
    if b"traceparent" in fields or correlation in fields:
        return namedTracing(fields, correlation) or newTracing()
    return newTracing()


def newSpanId() -> str:
    """Generate a span ID: 16 hexadecimal digits, not all 0."""
    return f"{_random.getrandbits(64) or 1:016x}"


def formatTraceparent(tracing: Tracing) -> str:
    """
    Return the C{traceparent} of an outgoing call.

    The parent is this call's own span, else the caller's span, else an unrecorded one.

    @param tracing: The trace of the call that makes the outgoing one.
    """
    span = tracing.ownId or tracing.spanId or newSpanId()
    return f"00-{tracing.traceId}-{span}-{'01' if tracing.sampled else '00'}"


def forwardedTracing(tracing: Tracing) -> Tracing:
    """
    Begin the span of an attempt to forward a call.

    @param tracing: The trace of the received call, whose span becomes the parent.
    @return: The trace of the attempt; the forwarded call carries its L{formatTraceparent} and its
        C{state}.
    """
    parent = tracing.ownId or tracing.spanId
    return Tracing(tracing.traceId, parent, tracing.sampled, tracing.state, newSpanId())
