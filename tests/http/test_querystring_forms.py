"""The names of form fields nest as users of multer know it, within bounds."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.querystring import FIELD_DEPTH_LIMIT, FieldTree, TooDeep


def tree(*fields: tuple[str, str]) -> object:
    """Build a tree."""
    result = FieldTree()
    for name, value in fields:
        result.add(name, value)
    return result.build()


class FieldTreeTests(SynchronousTestCase):
    """What becomes of names."""

    def test_flat(self) -> None:
        """Fields keep their order; a repeated name makes a list."""
        fields = tree(("b", "1"), ("a", "2"), ("b", "3"), ("b", "4"))
        self.assertEqual(fields, {"b": ["1", "3", "4"], "a": "2"})
        assert isinstance(fields, dict)
        self.assertEqual(list(fields), ["b", "a"])

    def test_nested(self) -> None:
        """Brackets make dictionaries, indexes and empty brackets make lists."""
        for fields, expected in (
            ([("a[b]", "1"), ("a[c]", "2")], {"a": {"b": "1", "c": "2"}}),
            ([("a[b][c]", "1"), ("a[b][d]", "2")], {"a": {"b": {"c": "1", "d": "2"}}}),
            ([("a[]", "1")], {"a": ["1"]}),
            ([("a[]", "1"), ("a[]", "2")], {"a": ["1", "2"]}),
            ([("a", "1"), ("a[]", "2")], {"a": ["1", "2"]}),
            ([("a[b][]", "1")], {"a": {"b": ["1"]}}),
            ([("a[0][b]", "1"), ("a[1][b]", "2")], {"a": [{"b": "1"}, {"b": "2"}]}),
            ([("a[0]", "1"), ("a[0]", "2")], {"a": [["1", "2"]]}),
            ([("a[b]", "1"), ("a[b]", "2")], {"a": {"b": ["1", "2"]}}),
        ):
            self.assertEqual(tree(*fields), expected, fields)

    def test_mixed(self) -> None:
        """Whatever is mixed under one name, no value is lost."""
        for fields, expected in (
            ([("a", "1"), ("a[b]", "2")], {"a": {"": "1", "b": "2"}}),
            ([("a[b]", "1"), ("a", "2")], {"a": {"b": "1", "": "2"}}),
            ([("a[0]", "1"), ("a[b]", "2")], {"a": {"0": "1", "b": "2"}}),
            ([("a[b]", "1"), ("a[0]", "2")], {"a": {"b": "1", "0": "2"}}),
            ([("a[b]", "1"), ("a[]", "2")], {"a": {"b": "1", "": "2"}}),
            ([("a[0]", "1"), ("a", "2")], {"a": ["1", "2"]}),
        ):
            self.assertEqual(tree(*fields), expected, fields)

    def test_literal(self) -> None:
        """A name with brackets that do not pair is a name."""
        for name in ("[a]", "[]", "a[", "a[b", "a]", "a[b]c", "a[]b", "a[][b]", "a.b", "a[b][", ""):
            self.assertEqual(tree((name, "1")), {name: "1"}, name)

    def test_indexes(self) -> None:
        """A list closes up, in the order of its indexes; a large index is a key."""
        self.assertEqual(tree(("a[5]", "1"), ("a[2]", "2")), {"a": ["2", "1"]})
        self.assertEqual(tree(("a[100]", "1")), {"a": ["1"]})
        self.assertEqual(tree(("a[101]", "1")), {"a": {"101": "1"}})
        self.assertEqual(tree(("a[1]", "1"), ("a[" + "9" * 50 + "]", "2"))["a"]["1"], "1")  # type: ignore[index]

    def test_onlyKeys(self) -> None:
        """Names that mean something elsewhere are keys."""
        for name in ("__proto__", "constructor", "__class__", "toString"):
            self.assertEqual(tree((name, "1")), {name: "1"})
            self.assertEqual(tree((f"a[{name}][b]", "1")), {"a": {name: {"b": "1"}}})

    def test_depth(self) -> None:
        """A name may nest 32 deep."""
        tree(("a" + "[b]" * FIELD_DEPTH_LIMIT, "1"))
        self.assertRaises(TooDeep, tree, ("a" + "[b]" * (FIELD_DEPTH_LIMIT + 1), "1"))

    @given(
        st.lists(
            st.lists(st.sampled_from(["a", "[", "]", "[]", "[0]", "[b]", "[7]", "1"]), max_size=6)
        )
    )
    def test_nothingLost(self, names: list[list[str]]) -> None:
        """Every value is in the result once, whatever the names."""

        def leaves(value: object) -> list[str]:
            if isinstance(value, dict):
                value = list(value.values())
            if isinstance(value, list):
                return [leaf for entry in value for leaf in leaves(entry)]
            assert isinstance(value, str)
            return [value]

        fields = [("".join(name), str(number)) for number, name in enumerate(names)]
        self.assertEqual(sorted(leaves(tree(*fields))), sorted(value for _, value in fields))
