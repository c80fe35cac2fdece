"""What a session can hold, and the options of sessions."""

import datetime
import decimal
import enum
import uuid
from typing import Any

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.http import session
from storagegate.http.sessions import (
    CONTENT_LIMIT,
    SessionError,
    checkContent,
    decodeParts,
    encodeContent,
    encodeParts,
)
from tests.support.selection import long

words = st.text(st.characters(exclude_categories=["Cs"]))

json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)

anything = st.recursive(
    json
    | st.floats()
    | st.binary()
    | st.text()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.sets(st.integers()),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.binary(), inner)
    ),
    max_leaves=5,
)


def check(content: dict[str, Any]) -> None:
    """Check a content as it is checked before it is kept."""
    checkContent(content, encodeContent(content))


def lists(value: Any) -> Any:
    """Make every tuple a list."""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    return [lists(item) for item in value] if isinstance(value, list | tuple) else value


class ContentTests(SynchronousTestCase):
    """What can be kept comes back; what cannot is refused with a place and a reason."""

    @long("takes seconds")
    @given(st.dictionaries(st.text(alphabet="abc"), json))
    def test_json(self, content: dict[str, Any]) -> None:
        """All that JSON has is taken and comes back."""
        check(content)
        self.assertEqual(
            decodeParts(*encodeParts({"cookie": 1, **content})), {"cookie": 1, **content}
        )

    @long("takes seconds")
    @given(st.dictionaries(st.text(alphabet="abc"), anything))
    def test_anything(self, content: dict[str, Any]) -> None:
        """Anything is refused, or comes back as it was but for tuples, which are lists then."""
        try:
            check(content)
        except SessionError as error:
            self.assertIn("req.session", str(error))
        else:
            self.assertEqual(
                decodeParts(encodeContent(content), b"1"), {**lists(content), "cookie": 1}
            )

    def refusal(self, value: Any) -> str:
        """Give what is said about a value."""
        return str(self.assertRaises(SessionError, check, {"a": [{"b": value}]}))

    def test_messages(self) -> None:
        """The message names the place and the type."""

        @frozen
        class Own:
            x: int

        place = 'req.session["a"][0]["b"]'
        for value, what in (
            (datetime.datetime.now(), "is a datetime"),
            (datetime.date.today(), "is a date"),
            (uuid.uuid4(), "is a UUID"),
            (decimal.Decimal(1), "is a Decimal"),
            (b"bytes", "is a bytes"),
            ({1, 2}, "is a set"),
            (Own(1), "is a Own"),
            (object(), "is a object"),
            (float("nan"), "is nan"),
            (float("-inf"), "is -inf"),
            ("\ud800", "is text that UTF-8 cannot encode"),
            ({1: 2}, "has the key 1"),
            ({"\ud800": 2}, "has a key that UTF-8 cannot encode"),
        ):
            self.assertTrue(self.refusal(value).startswith(f"{place} {what}"), self.refusal(value))

    def test_words(self) -> None:
        """Enumerations of text and numbers are their values."""

        class Role(enum.StrEnum):
            ADMIN = "admin"

        check({"role": Role.ADMIN, "tuple": (1, (2,))})

    def test_circle(self) -> None:
        """What holds itself, or is nested without end, is refused."""
        circle: list[Any] = []
        circle.append(circle)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for value in (circle, deep):
            self.assertIn("deep", str(self.assertRaises(SessionError, check, {"a": value})))
        while deep:
            # Python would free it by as many calls inside one another.
            deep = deep[0]

    def test_size(self) -> None:
        """A session is bounded."""
        check({"a": "x" * (CONTENT_LIMIT - 8)})
        error = self.assertRaises(SessionError, check, {"a": "x" * (CONTENT_LIMIT - 7)})
        self.assertIn(str(CONTENT_LIMIT), str(error))

    def test_reserved(self) -> None:
        """The key C{cookie} is taken."""
        self.assertIn("cookie", str(self.assertRaises(SessionError, check, {"cookie": 1})))


class OptionTests(SynchronousTestCase):
    """What is refused at set-up, by name."""

    def test_secret(self) -> None:
        """A secret is needed, and none may be empty."""
        self.assertRaises(TypeError, session)
        for secret in ("", b"", [], [""], ["x", ""], None, 5, [5]):
            error = self.assertRaises(OptionError, session, secret=secret)
            self.assertIn("secret", str(error))
        for good in ("x", b"x", ["x"], ("x", b"y")):
            session(secret=good)

    def test_unknown(self) -> None:
        """An option that there is not is an error that names it."""
        error: Exception = self.assertRaises(TypeError, session, secret="x", saveUninitialised=True)
        self.assertIn("saveUninitialised", str(error))
        error = self.assertRaises(OptionError, session, secret="x", cookie={"maxage": 5})
        self.assertIn("there is no option cookie.maxage", str(error))

    def test_values(self) -> None:
        """A value that is none is an error that names the option."""
        for name, values in {
            "name": ("", "a b", "a=b", "a;b", "\u00e4", None, 5, "x" * 5000),
            "resave": (None, 1, "yes"),
            "saveUninitialized": (None, 0),
            "rolling": ("no",),
            "unset": ("drop", None, True),
            "genid": ("x", 5),
            "absoluteMaxAge": ("1d", -1, True, float("inf"), 1e300),
            "cookie": ("x", [], 5),
            "store": (object(), "memory", {}),
        }.items():
            for value in values:
                error = self.assertRaises(OptionError, session, **{"secret": "x", name: value})
                self.assertRegex(str(error), f"the option {name} |the cookie|of a cookie")

    def test_cookie(self) -> None:
        """So are the parts of the cookie."""
        for name, values in {
            "maxAge": ("1d", -1, True, float("nan"), 1e300),
            "expires": ("tomorrow", True, datetime.datetime(2030, 1, 1)),
            "httpOnly": (None, 1),
            "secure": ("yes", None, 1),
            "sameSite": ("relaxed", 5),
            "path": ("", None, "a\r\nb", 5),
            "domain": ("", "a b", "a;b", 5),
        }.items():
            for value in values:
                error = self.assertRaises(OptionError, session, secret="x", cookie={name: value})
                self.assertIn(name, str(error))

    def test_contradictions(self) -> None:
        """Options that cannot be together are refused."""
        for cookie in (
            {"maxAge": 1, "expires": 1.0},
            {"sameSite": "none"},
            {"sameSite": "None", "secure": "auto"},
        ):
            self.assertRaises(OptionError, session, secret="x", cookie=cookie)
        session(secret="x", cookie={"sameSite": "None", "secure": True, "maxAge": None})
