"""What instances answer."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import CODES, ServiceError
from storagegate.upstream.attempt import ResponseError, readItem, readResult


class AnswerTests(SynchronousTestCase):
    """Results, items and errors."""

    def error(self, status: int | None, value: Any) -> tuple[Any, ...]:
        """Read an error; give all that it has."""
        body = json.dumps(value).encode()
        if status is None:
            error: Any = self.assertRaises(ServiceError, readItem, body)
        else:
            error = self.assertRaises(ServiceError, readResult, status, body)
        return (error.code, error.message, error.details, error.statusCode, error.grpcStatus)

    def test_result(self) -> None:
        """A result is what stands below data, whatever it is."""
        for value in (None, 0, "a", [], {"error": "none"}):
            body = json.dumps({"data": value}).encode()
            self.assertEqual((readResult(200, body), readItem(body)), (value, value))

    def test_codes(self) -> None:
        """Each code of ours has its status on every wire again, in streams too."""
        for code, (status, grpcCode) in CODES.items():
            value = {"error": code, "message": "m", "details": [1]}
            for told in (status, None):
                self.assertEqual(self.error(told, value), (code, "m", [1], status, grpcCode))

    def test_grpcCodes(self) -> None:
        """So have those that come of gRPC."""
        for code, status, grpcCode in (
            ("FAILED_PRECONDITION", 400, 9),
            ("ABORTED", 409, 10),
            ("UNIMPLEMENTED", 501, 12),
        ):
            value = {"error": code, "message": ""}
            for told in (status, None):
                self.assertEqual(self.error(told, value), (code, "", None, status, grpcCode))

    def test_ownCodes(self) -> None:
        """A service's own code has the status of its response; in a stream it is unknown."""
        value = {"error": "SOLD_OUT", "message": "m"}
        self.assertEqual(self.error(409, value), ("SOLD_OUT", "m", None, 409, 6))
        self.assertEqual(self.error(None, value), ("SOLD_OUT", "m", None, 500, 13))

    def test_ownStatus(self) -> None:
        """A code of ours with another status has the gRPC code of that."""
        value = {"error": "NOT_FOUND", "message": "m"}
        self.assertEqual(self.error(403, value), ("NOT_FOUND", "m", None, 403, 7))

    @given(st.integers(100, 599), st.binary(max_size=50))
    def test_anything(self, status: int, body: bytes) -> None:
        """Whatever comes is an answer, or is known to be none."""
        for read in (lambda: readResult(status, body), lambda: readItem(body)):
            try:
                read()
            except (ServiceError, ResponseError):
                pass

    def test_none(self) -> None:
        """What is neither a result nor an error is no answer."""
        for status, value in (
            (200, {}),
            (200, [1]),
            (400, {"error": 1, "message": "m"}),
            (400, {"error": "A", "message": 1}),
            (302, {"error": "A", "message": "m"}),
            (201, {"data": 1}),
            (404, {"data": 1}),
        ):
            body = json.dumps(value).encode()
            self.assertRaises(ResponseError, readResult, status, body)
