"""The details of errors on the wire: google.rpc.Status, and back."""

from typing import Any

from google.protobuf import any_pb2, struct_pb2, timestamp_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import assume, given
from hypothesis import strategies as st

from storagegate.core.errors import GrpcError
from storagegate.rpc.codec import codecOf
from storagegate.rpc.status import (
    MAX_DETAILS,
    MESSAGE_LENGTH,
    DetailError,
    decodeDetails,
    encodeDetails,
    statusMessage,
)
from tests.rpc.conversionprotos import POOL
from tests.support.log import LogCase

URL = "type.googleapis.com/"

# What a Struct keeps as it is: whole numbers up to 2**53 among the others.
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


def read(details: Any, message: str = "no") -> Any:
    """Encode details, and read them with the generated classes."""
    wire = encodeDetails(GrpcError("INVALID_ARGUMENT", message, details))
    assert wire is not None
    return status_pb2.Status.FromString(wire)


def turned(details: Any) -> Any:
    """Encode details and decode them again."""
    wire = encodeDetails(GrpcError("INVALID_ARGUMENT", "no", details))
    return None if wire is None else decodeDetails(wire)


def unpacked(packed: any_pb2.Any, kind: Any) -> Any:
    """Give what was packed as a message of a class."""
    message = kind()
    assert packed.Unpack(message), packed.type_url
    return message


class EncodeTests(LogCase):
    """What other people's clients find in the trailer."""

    def test_none(self) -> None:
        """Without details there is no trailer."""
        self.assertIsNone(encodeDetails(GrpcError(5, "no")))
        self.assertIsNone(encodeDetails(GrpcError(5, "no", [])))

    def test_head(self) -> None:
        """Code and message are those of the error, or clients refuse the trailer."""
        status = read({"a": "b"}, "größer")
        self.assertEqual((status.code, status.message), (3, "größer"))

    def test_violations(self) -> None:
        """A list of violations is one BadRequest."""
        status = read(
            [{"path": "user.email", "message": "no email"}, {"path": "", "message": "empty"}]
        )
        [packed] = status.details
        self.assertEqual(packed.type_url, URL + "google.rpc.BadRequest")
        violations = unpacked(packed, error_details_pb2.BadRequest).field_violations
        self.assertEqual(
            [(each.field, each.description) for each in violations],
            [("user.email", "no email"), ("", "empty")],
        )

    def test_retry(self) -> None:
        """A time to wait is RetryInfo."""
        [packed] = read({"retryAfterMs": 61_500}).details
        delay = unpacked(packed, error_details_pb2.RetryInfo).retry_delay
        self.assertEqual((delay.seconds, delay.nanos), (61, 500_000_000))

    def test_retryAndMore(self) -> None:
        """What stands beside it is a Struct."""
        info, rest = read({"limit": "5", "retryAfterMs": 0}).details
        delay = unpacked(info, error_details_pb2.RetryInfo).retry_delay
        self.assertEqual((delay.seconds, delay.nanos), (0, 0))
        self.assertEqual(dict(unpacked(rest, struct_pb2.Struct)), {"limit": "5"})

    def test_noRetry(self) -> None:
        """What is no time to wait stays what it is."""
        for value in ("5", True, -1, 1e20, None):
            [packed] = read({"retryAfterMs": value}).details
            self.assertEqual(packed.type_url, URL + "google.protobuf.Struct")

    def test_struct(self) -> None:
        """Any other mapping is a Struct, whatever its keys are called."""
        [packed] = read({"path": "a", "message": "b", "snake_case": [1, {"x": None}]}).details
        struct = unpacked(packed, struct_pb2.Struct)
        self.assertEqual(struct["path"], "a")
        self.assertEqual(next(iter(struct["snake_case"])), 1)

    def test_messages(self) -> None:
        """A message is packed as it is, and one that is packed is not packed again."""
        info = error_details_pb2.ErrorInfo(reason="R", domain="d")
        packed = any_pb2.Any()
        packed.Pack(info)
        for details in (info, packed, [info]):
            [found] = read(details).details
            self.assertEqual(unpacked(found, error_details_pb2.ErrorInfo), info)

    def test_messageLikeViolation(self) -> None:
        """A Struct with the keys of a violation is still a message."""
        struct = struct_pb2.Struct()
        struct.update({"path": "a", "message": "b"})
        [packed] = read([struct]).details
        self.assertEqual(unpacked(packed, struct_pb2.Struct), struct)

    def test_mixed(self) -> None:
        """A list may mix them; violations are gathered where the first one stands."""
        status = read(
            [
                error_details_pb2.ErrorInfo(reason="R"),
                {"path": "a", "message": "1"},
                {"other": True},
                {"path": "b", "message": "2"},
            ]
        )
        self.assertEqual(
            [packed.type_url.rpartition(".")[2] for packed in status.details],
            ["ErrorInfo", "BadRequest", "Struct"],
        )
        violations = unpacked(status.details[1], error_details_pb2.BadRequest).field_violations
        self.assertEqual([each.field for each in violations], ["a", "b"])

    def test_typed(self) -> None:
        """A mapping that names a message is that message, in the names of handlers."""
        for url in ("google.rpc.ErrorInfo", URL + "google.rpc.ErrorInfo"):
            [packed] = read({"@type": url, "reason": "R", "metadata": {"a_b": "c"}}).details
            info = unpacked(packed, error_details_pb2.ErrorInfo)
            self.assertEqual((info.reason, dict(info.metadata)), ("R", {"a_b": "c"}))
        [packed] = read({"@type": "example.com/no.such.Thing", "value": b"1"}).details
        self.assertEqual((packed.type_url, packed.value), ("example.com/no.such.Thing", b"1"))

    def test_unspeakable(self) -> None:
        """What has no form is left out and logged, without its text; the rest is there."""
        deep: Any = "secret"
        for _ in range(5000):
            deep = [deep]
        for wrong in (
            {"a": object()},
            {1: "secret"},
            {"a": "secret\ud800"},
            float("nan"),
            error_details_pb2,
            {"a": deep},
            10**5000,
        ):
            before = len(self.logged())
            status = read([wrong, {"a": "b"}])
            self.assertEqual(len(status.details), 1)
            new = self.logged()[before:]
            self.assertEqual(len(new), 1)
            self.assertNotIn("secret", new[0])
        self.assertEqual(list(read({"a": object()}).details), [])

    def test_bytes(self) -> None:
        """Bytes in a mapping without a type are text in base64."""
        [packed] = read({"a": [b"\xff\xfe", {"b": bytearray(b"x")}]}).details
        self.assertEqual(
            codecOf(struct_pb2.Struct).toDict(unpacked(packed, struct_pb2.Struct)),
            {"a": ["//4=", {"b": "eA=="}]},
        )

    def test_longIntegers(self) -> None:
        """Integers that a Struct would round are decimal text, so that no digit is lost."""
        details = {"id": 2**53 + 1, "ids": [-(2**53) - 1, {"c": 2**64}, 2**53]}
        exact = {
            "id": "9007199254740993",
            "ids": ["-9007199254740993", {"c": "18446744073709551616"}, 2**53],
        }
        self.assertEqual(turned(details), exact)
        self.assertEqual(turned({"retryAfterMs": 5, **details}), [{"retryAfterMs": 5}, exact])
        for detail, text in ((10**20, "1" + "0" * 20), (b"\xff", "/w==")):
            [packed] = read(detail).details
            self.assertEqual(unpacked(packed, struct_pb2.Value).string_value, text)
        self.assertEqual(self.logged(), [])

    def test_unfitting(self) -> None:
        """A detail that does not fit the type that it names is an error, with its path."""
        for detail, text in (
            (
                {"@type": "google.rpc.ErrorInfo", "reasons": "R"},
                "ErrorInfo: reasons: is not a field",
            ),
            ({"@type": "google.rpc.ErrorInfo", "reason": 1}, "ErrorInfo: reason: is a string"),
            ({"@type": "no.such.Thing", "a": 1}, "no.such.Thing: "),
            ({"@type": "a/x", "b": 1}, "x: "),
        ):
            error = self.assertRaises(DetailError, read, [detail])
            self.assertIn(text, str(error))
            self.assertIn("does not fit", str(error))

    def test_ownTypes(self) -> None:
        """The types of the service's file are found, and read by a client that has loaded them."""
        detail = {"@type": "old.Plain", "text": "x", "[old.extra]": 5}
        wire = encodeDetails(GrpcError(3, "no", detail), POOL)
        assert wire is not None
        expected = {**detail, "@type": URL + "old.Plain"}
        self.assertEqual(decodeDetails(wire, POOL), expected)
        unread = {"@type": URL + "old.Plain", "value": b"\x0a\x01x\xa0\x06\x05"}
        self.assertEqual(decodeDetails(wire), unread)
        wrong = {"@type": "old.Plain", "txt": "x"}
        error = self.assertRaises(DetailError, encodeDetails, GrpcError(3, "no", wrong), POOL)
        self.assertEqual(
            str(error), "a detail does not fit old.Plain: txt: is not a field of old.Plain"
        )

    def test_bound(self) -> None:
        """A trailer of the greatest size goes out; one byte more, and the details stay behind."""
        text = "x" * MAX_DETAILS
        over = len(encodeWith(text[: MAX_DETAILS // 2])) - MAX_DETAILS // 2
        exact = text[: MAX_DETAILS - over]
        self.assertEqual(len(encodeWith(exact)), MAX_DETAILS)
        self.assertEqual(self.logged(), [])
        status = read({"a": exact + "x"})
        self.assertEqual((status.code, status.message, len(status.details)), (3, "no", 0))
        self.assertEqual(len(self.logged()), 1)
        self.assertIn("INVALID_ARGUMENT", self.logged()[0])

    def test_messageOnce(self) -> None:
        """The message is that of the status beside it, also where it had to be changed."""
        for text in ("x\ud800", "x" * 5000, "größer " * 500, "\U0001f600" * 1000):
            sent = statusMessage(text)
            self.assertEqual(read({"a": "b"}, text).message, sent)
            self.assertLessEqual(len(sent.encode()), MESSAGE_LENGTH)
            self.assertGreater(len(sent.encode()), min(len(text), MESSAGE_LENGTH) - 4)
        self.assertEqual(statusMessage("größer\n\0"), "größer\n\0")
        self.assertEqual(statusMessage("x\ud800"), "x?")


def encodeWith(text: str) -> bytes:
    """Encode a Struct with a text."""
    wire = encodeDetails(GrpcError(3, "no", {"a": text}))
    assert wire is not None
    return wire


class DecodeTests(LogCase):
    """What callers get of a trailer."""

    def test_turned(self) -> None:
        """Details come back as they went."""
        for details in (
            [{"path": "a.b", "message": "c"}],
            [{"path": "a", "message": "1"}, {"path": "b", "message": "2"}],
            {"retryAfterMs": 1500},
            {"retryAfterMs": 0.5},
            {"a": [1, 2.5, None, True, {"b_c": "d"}], "n": -7},
            {},
            {"path": "a", "message": "b"},
            {"@type": None},
            {"@type": ""},
            {"@type": "a/", "b": 1},
            "text",
            17,
            False,
            {"@type": URL + "google.rpc.ErrorInfo", "reason": "R", "domain": "d"},
            {"@type": URL + "no.such.Thing", "value": b"\x08\x01"},
            [[{"path": "a", "message": "1"}], {"retryAfterMs": 5}, {"b": "c"}],
            ["a", {"b": 1}],
        ):
            self.assertEqual(turned(details), details)
        self.assertEqual(
            turned({"retryAfterMs": 5, "limit": 2}), [{"retryAfterMs": 5}, {"limit": 2}]
        )

    @given(st.dictionaries(KEYS, PLAIN, max_size=4))
    def test_anyMapping(self, details: dict[str, Any]) -> None:
        """So does every mapping of JSON's values that names no type of message."""
        assume(not isinstance(details.get("@type"), str))
        self.assertEqual(turned(details), details)

    def test_wholeNumbers(self) -> None:
        """Whole numbers come back whole."""
        self.assertEqual(
            repr(turned({"a": [1, 2**53 - 1, 1.5]})), "{'a': [1, 9007199254740991, 1.5]}"
        )
        self.assertEqual(repr(turned({"retryAfterMs": 5.0})), "{'retryAfterMs': 5}")

    def test_wellKnown(self) -> None:
        """A message of a well-known type is told in its own form."""
        self.assertEqual(
            turned(timestamp_pb2.Timestamp(seconds=1)),
            {"@type": URL + "google.protobuf.Timestamp", "value": "1970-01-01T00:00:01Z"},
        )

    def test_nothing(self) -> None:
        """A status without details says none."""
        self.assertIsNone(decodeDetails(b""))
        self.assertIsNone(decodeDetails(status_pb2.Status(code=5).SerializeToString()))

    def test_garbage(self) -> None:
        """What is no status says nothing, and what is no message of its type comes as bytes."""
        self.assertIsNone(decodeDetails(b"\xff\xff\xff"))
        for name in ("google.rpc.BadRequest", "google.protobuf.Struct", "google.rpc.RetryInfo"):
            packed = any_pb2.Any(type_url=URL + name, value=b"\xff\xff")
            wire = status_pb2.Status(code=3, details=[packed]).SerializeToString()
            self.assertEqual(decodeDetails(wire), {"@type": URL + name, "value": b"\xff\xff"})
        # An enum's unknown number, a time that is none, no name at all.
        for packed in (
            any_pb2.Any(
                type_url=URL + "google.protobuf.Timestamp", value=b"\x08" + b"\xff" * 9 + b"\x01"
            ),
            any_pb2.Any(type_url="", value=b"x"),
            any_pb2.Any(type_url=URL + "a b", value=b"x"),
        ):
            wire = status_pb2.Status(code=3, details=[packed]).SerializeToString()
            self.assertIsInstance(decodeDetails(wire), dict)

    @given(st.binary(max_size=64))
    def test_anyBytes(self, wire: bytes) -> None:
        """No bytes are an error."""
        decodeDetails(wire)

    @given(
        st.sampled_from(
            [
                "google.rpc.BadRequest",
                "google.rpc.RetryInfo",
                "google.rpc.ErrorInfo",
                "google.protobuf.Struct",
                "google.protobuf.Value",
                "google.protobuf.Any",
                "google.protobuf.Timestamp",
                "google.protobuf.Duration",
                "google.protobuf.FieldMask",
                "google.protobuf.FileDescriptorProto",
            ]
        ),
        st.binary(max_size=32),
    )
    def test_anyDetail(self, name: str, value: bytes) -> None:
        """Nor are any within a message that we know."""
        packed = any_pb2.Any(type_url=URL + name, value=value)
        decodeDetails(status_pb2.Status(code=3, details=[packed]).SerializeToString())
