"""
Which trace a call belongs to: the C{traceparent} and C{tracestate} of W3C Trace Context.

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
"""Characters of a C{tracestate}: what section 3.3.1.5 asks everybody to hand on at least."""

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_NO_TRACE = "0" * 32

# It goes out again as a header field: nothing in it may end one.
_STATE = re.compile(rf"[ -~]{{1,{MAX_STATE_LENGTH}}}")

# Section 3.2.2.3 asks for randomness, not for secrecy, which costs a system call a call. Its own
# generator: a user may seed Python's.
_random = Random()

# Ids that wait for their traces, made this many at a time: a tenth of a microsecond each.
_IDS = 64
_cut = Struct("32s" * _IDS).unpack
_ids: list[bytes] = []


def parseTraceparent(text: str, state: str = "") -> Tracing | None:
    """
    Read a caller's trace; C{None} if the text is none (section 3.2.2).

    @param state: The C{tracestate} beside it; one that cannot be handed on is left out.
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
    """Make the id of a trace: 32 hexadecimal digits; in any thread."""
    while True:
        try:
            return _ids.pop()
        except IndexError:
            _ids.extend(_cut(_random.randbytes(16 * _IDS).hex().encode()))


def newTracing() -> Tracing:
    """Begin a trace of our own."""
    return Tracing(newTraceId().decode("ascii"))


def receiveTracing(traceparent: Any, state: Any = None, traceId: Any = None) -> Tracing:
    """
    Give the trace that a caller names, or a new one.

    @param traceparent: What stands where a C{traceparent} may stand; anything that is none counts
        for nothing.
    @param state: The same for C{tracestate}.
    @param traceId: What names a trace and no span in it: C{X-Trace-ID}.
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
    Give the trace that a request of HTTP names, C{None} where it names none.

    @param fields: Its header fields, their names in lower case.
    @param correlation: The field that names a trace and no span in it.
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
    """Give the trace that a request of HTTP names as L{namedTracing} has it, or a new one."""
    return namedTracing(fields, correlation) or newTracing()


def newSpanId() -> str:
    """Make the id of a span: 16 hexadecimal digits, not all of them 0."""
    return f"{_random.getrandbits(64) or 1:016x}"


def formatTraceparent(tracing: Tracing) -> str:
    """
    Give what a call that goes out carries.

    It is a child of this call's own span; where there is none, of the caller's, and where there is
    no caller's, of one that nobody records.
    """
    span = tracing.ownId or tracing.spanId or newSpanId()
    return f"00-{tracing.traceId}-{span}-{'01' if tracing.sampled else '00'}"


def forwardedTracing(tracing: Tracing) -> Tracing:
    """
    Begin the span of a call that is forwarded to somebody else, once for each attempt.

    @return: Its parent is the span of the call that came in; L{formatTraceparent} of it is what
        the forwarded call carries, beside its C{state}.
    """
    parent = tracing.ownId or tracing.spanId
    return Tracing(tracing.traceId, parent, tracing.sampled, tracing.state, newSpanId())
