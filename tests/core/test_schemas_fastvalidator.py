"""Values that are seen to fit their schema without the validator of JSON Schema."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.schemas import compileSchema, fastValidator

TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
NAMES = ("a", "b", "c")

SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(
            st.sampled_from(NAMES), st.fixed_dictionaries({"type": st.sampled_from(TYPES)})
        ),
    },
    optional={"required": st.lists(st.sampled_from(NAMES), unique=True), "title": st.just("it")},
)

PARTS = st.one_of(
    st.text(max_size=2),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=2),
    st.lists(st.integers(), max_size=1),
    st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
)
VALUES = st.one_of(st.dictionaries(st.sampled_from((*NAMES, "d")), PARTS), PARTS)


class PlainFitTests(SynchronousTestCase):
    """What is sure to fit."""

    def fit(self, schema: dict[str, Any]) -> Any:
        """Give what sees whether values fit."""
        fits = fastValidator(schema)
        assert fits is not None
        return fits

    @given(SCHEMAS, VALUES)
    def test_agrees(self, schema: dict[str, Any], value: Any) -> None:
        """What is said to fit, the validator says of too."""
        fits = fastValidator(schema)
        if fits is not None and fits(value):
            compileSchema(schema, "it")(value)

    def test_usual(self) -> None:
        """The usual values of a plain schema are seen to fit, and only those."""
        properties = {"id": {"type": "string", "title": "Id"}, "n": {"type": "number"}}
        fits = self.fit({"type": "object", "properties": properties, "required": ["id"]})
        for value in ({"id": ""}, {"id": "a", "n": 1}, {"id": "a", "n": 1.5}, {"id": "", "x": []}):
            self.assertTrue(fits(value), value)
        for value in ({}, {"n": 1}, {"id": 1}, {"id": "", "n": True}, {"id": "", "n": None}, []):
            self.assertFalse(fits(value), value)

    def test_others(self) -> None:
        """A schema that says more than types is for the validator alone."""
        text = {"type": "string"}
        for schema in (
            {"properties": {"a": text}},
            {"type": "array"},
            {"type": ["object", "null"]},
            {"type": "object", "additionalProperties": False},
            {"type": "object", "minProperties": 1},
            {"type": "object", "required": ["a"]},
            {"type": "object", "properties": {"a": {**text, "minLength": 1}}},
            {"type": "object", "properties": {"a": {**text, "contentEncoding": "base64"}}},
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
            {"type": "object", "properties": {"a": {}, "b": text}},
            {"type": "object", "properties": {"a": False}},
        ):
            self.assertIsNone(fastValidator(schema), schema)

    def test_errors(self) -> None:
        """What does not fit has the validator's own error."""
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        self.assertFalse(self.fit(schema)({"a": "x"}))
        # A whole number may be written with a point: that is the validator's to know.
        self.assertFalse(self.fit(schema)({"a": 1.0}))
        validate = compileSchema(schema, "it")
        validate({"a": 1.0})
        error = self.assertRaises(ServiceError, validate, {"a": "x"})
        self.assertEqual(error.details, [{"path": "a", "message": "must be integer"}])
