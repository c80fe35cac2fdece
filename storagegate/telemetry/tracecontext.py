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
"""Characters of a C{tracestate}: what section 3.3.1.5 requires to propagate at least."""

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_NO_TRACE = "0" * 32

# It is sent as a header field: it must not contain what ends one.
_STATE = re.compile(rf"[ -~]{{1,{MAX_STATE_LENGTH}}}")

# Section 3.2.2.3 requires randomness, not secrecy, which costs a system call for each id. A
# generator of its own: a user may seed Python's.
_random = Random()

# Unused ids, generated this many at a time: 0.1 microseconds each.
_IDS = 64
_cut = Struct("32s" * _IDS).unpack
_ids: list[bytes] = []
_tracings: list[Tracing] = []


def parseTraceparent(text: str, state: str = "") -> Tracing | None:
    """
    Parse the trace of a caller (section 3.2.2).

    @param text: A C{traceparent}.
    @param state: The C{tracestate} beside it; one that cannot be propagated is left out.
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
    """Generate the id of a trace: 32 hexadecimal digits. May run in any thread."""
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
    @param state: The same for C{tracestate}.
    @param traceId: The id of a trace without a span: C{X-Trace-ID}.
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
    Return the trace that an HTTP request names, C{None} if it names none.

    @param fields: Its header fields, their names in lower case.
    @param correlation: The field with the id of a trace without a span.
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
    Return the trace of an HTTP request, see L{namedTracing}, or a new one.

    @param fields: The header fields, by name in lower case.
    @param correlation: The field that has the id of a trace, in lower case.
    """
    if b"traceparent" in fields or correlation in fields:
        return namedTracing(fields, correlation) or newTracing()
    return newTracing()


def newSpanId() -> str:
    """Generate the id of a span: 16 hexadecimal digits, not all of them 0."""
    return f"{_random.getrandbits(64) or 1:016x}"


def formatTraceparent(tracing: Tracing) -> str:
    """
    Return the C{traceparent} of an outgoing call.

    Its parent is this call's own span, else the caller's span, else one that is not recorded.

    @param tracing: The trace of the call from which the outgoing one is made.
    """
    span = tracing.ownId or tracing.spanId or newSpanId()
    return f"00-{tracing.traceId}-{span}-{'01' if tracing.sampled else '00'}"


def forwardedTracing(tracing: Tracing) -> Tracing:
    """
    Begin the span of an attempt to forward a call.

    @param tracing: That of the received call, whose span is the parent.
    @return: The forwarded call carries its L{formatTraceparent} and its C{state}.
    """
    parent = tracing.ownId or tracing.spanId
    return Tracing(tracing.traceId, parent, tracing.sampled, tracing.state, newSpanId())
