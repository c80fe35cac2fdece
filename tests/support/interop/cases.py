"""
The interoperability cases, and the format in which a client program reports their outcomes.

The cases of gRPC's public description that need no network
(U{https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md}). One step is omitted:
a server built on gRPC's C core does not know whether a request was compressed, so it cannot reject
a probe. Compression is checked on the wire instead, see L{tests.support.grpctap}.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

PROTO = Path(__file__).with_name("interop.proto")

CASES = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "client_compressed_unary",
    "server_compressed_unary",
    "client_compressed_streaming",
    "server_compressed_streaming",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
)

LARGE_REQUEST = 271828
LARGE_RESPONSE = 314159
REQUEST_SIZES = (27182, 8, 1828, 45904)
REQUEST_TOTAL = 74922
RESPONSE_SIZES = (31415, 9, 2653, 58979)

INITIAL_NAME = "x-grpc-test-echo-initial"
INITIAL_VALUE = "test_initial_metadata_value"
TRAILING_NAME = "x-grpc-test-echo-trailing-bin"
TRAILING_VALUE = b"\xab\xab\xab"

STATUS_MESSAGE = "test status message"
SPECIAL_MESSAGE = (
    "\t\ntest with whitespace\r\nand Unicode BMP \N{WHITE SMILING FACE} "
    "and non-BMP \N{SMILING FACE WITH HORNS}\t\n"
)

STEP_NAME = "x-step"
"""Metadata that identifies a call of a compressed case on the wire."""

CALL_SECONDS = 20.0
"""Timeout of a call that must succeed, far above the usual time, so that a hang ends."""


class CaseFailed(Exception):
    """A server did not behave as a case requires; the message explains the difference."""


class CannotExpress(Exception):
    """A client cannot express a case; the message names the missing feature."""


@frozen
class Outcome:
    """
    The outcome of a case.

    @ivar ok: Whether the server passed; C{None} if the client cannot express the case.
    @ivar why: The failure, or the feature that the client lacks.
    """

    case: str
    ok: bool | None
    why: str = ""

    def line(self) -> str:
        """Format it as a line of a client program."""
        return json.dumps(asdict(self))


def readOutcomes(output: str) -> Mapping[str, Outcome]:
    """Parse the output of a client program, one line per case; return the outcomes by case."""
    outcomes = (Outcome(**json.loads(line)) for line in output.splitlines() if line)
    return {outcome.case: outcome for outcome in outcomes}


def check(actual: Any, expected: Any, what: str) -> None:
    """
    Compare a server's behaviour with the expected one.

    @raise CaseFailed: If they differ.
    """
    if actual != expected:
        raise CaseFailed(f"{what}: {actual!r} instead of {expected!r}")


def checkPayload(message: Any, size: int) -> None:
    """Check the size of a message's payload, which is all zeros."""
    body = message.payload.body
    check(len(body), size, "size of a payload")
    check(body.strip(b"\0"), b"", "payload without its zeros")


def outcomeOf(case: str, error: Exception | None) -> Outcome:
    """Return the outcome of a case from its exception."""
    if error is None:
        return Outcome(case, True)
    if isinstance(error, CannotExpress):
        return Outcome(case, None, str(error))
    return Outcome(case, False, f"{type(error).__name__}: {error}")


def runCases(cases: Mapping[str, Callable[[], object]]) -> Iterable[Outcome]:
    """Run a blocking client's cases one after another, independently."""
    for name, case in cases.items():
        try:
            case()
        except Exception as error:
            yield outcomeOf(name, error)
        else:
            yield outcomeOf(name, None)
