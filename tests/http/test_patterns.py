"""What route patterns match."""

import re

from storagegate.http.patterns import NO_PARAMS, MalformedEscape, compilePattern
from tests.http.patterncase import PatternCase, lookAt


class TextTests(PatternCase):
    """Patterns without parameters."""

    def test_static(self) -> None:
        """Text matches itself; one slash at the end makes no difference, any other does."""
        self.matches(
            "/about",
            {
                "/about": {},
                "/about/": {},
                "/about//": None,
                "//about": None,
                "/about/x": None,
                "/aboutx": None,
                "/abou": None,
                "/": None,
            },
        )
        self.matches("/about/", {"/about": {}, "/about/": {}, "/about//": None})
        self.matches("/a//b", {"/a//b": {}, "/a/b": None})
        self.matches("/", {"/": {}, "//": {}, "///": None, "/a": None})

    def test_noParams(self) -> None:
        """What has no parameters shares one empty mapping, and takes the whole path."""
        found = compilePattern("/about").match("/about/")
        assert found is not None
        self.assertIs(found[0], NO_PARAMS)
        self.assertEqual(found[1], 7)

    def test_case(self) -> None:
        """Case is ignored in text and kept in parameters, or told apart on demand."""
        self.matches("/Users/:Id", {"/uSERS/AbC": {"Id": "AbC"}})
        self.matches("/v:Major", {"/V1A": {"Major": "1A"}})
        for source, other in (("/Users", "/users"), ("/v:n", "/V1"), ("/É", "/%C3%A9")):
            self.assertIsNotNone(compilePattern(source).match(other), source)
            self.assertIsNone(compilePattern(source, caseSensitive=True).match(other), source)
        self.matches("/key", {"/%E2%84%AAey": None, "/KEY": {}})

    def test_strict(self) -> None:
        """With strict, a slash at the end counts."""
        for source, path, fits in (
            ("/users", "/users", True),
            ("/users", "/users/", False),
            ("/users/", "/users", False),
            ("/users/", "/users/", True),
            ("/users/", "/users//", False),
            ("/users/:id", "/users/1/", False),
            ("/users/:id/", "/users/1/", True),
            ("/users/:id/", "/users/1", False),
            ("/posts/:id?", "/posts", True),
            ("/posts/:id?", "/posts/", False),
            ("/api/*/users", "/api/x/users/", False),
            ("/files/*", "/files/a/", True),
            ("/", "/", True),
            ("/", "//", False),
        ):
            found = compilePattern(source, strict=True).match(path)
            self.assertEqual(found is not None, fits, f"{source} {path}")

    def test_escapes(self) -> None:
        """Text is what it is once decoded, a segment at a time; what is malformed is no text."""
        self.matches(
            "/café/x",
            {
                "/caf%C3%A9/x": {},
                "/caf%c3%a9/%78": {},
                "/CAF%C3%89/X": {},
                "/caf%C3%A9%2Fx": None,
                "/caf%C3/x": None,
                "/caf%zz/x": None,
            },
        )
        self.matches("/caf%C3%A9", {"/caf%c3%a9": {}, "/caf%25C3%25A9": None})
        self.matches("/a b", {"/a%20b": {}})
        self.matches("/a%2Fb", {"/a%2fb": {}, "/a/b": None})
        self.matches("/c%2B%2b", {"/c++": {}, "/C%2B+": {}})
        self.matches("/100%", {"/100%25": {}, "/100%": None})


class ParameterTests(PatternCase):
    """Parameters that are whole segments."""

    def test_one(self) -> None:
        """A parameter is one segment, decoded, that is not empty."""
        self.matches(
            "/users/:id",
            {
                "/users/1": {"id": "1"},
                "/users/1/": {"id": "1"},
                "/users/a%2Fb": {"id": "a/b"},
                "/users/%E2%82%AC": {"id": "€"},
                "/users/a+b": {"id": "a+b"},
                "/users": None,
                "/users/": None,
                "/users//": None,
                "/users/1//": None,
                "/users/1/2": None,
            },
        )
        self.matches("/:id", {"/x": {"id": "x"}, "/": None})
        self.matches("/:größe", {"/x": {"größe": "x"}})

    def test_several(self) -> None:
        """Several parameters come under their names, in the pattern's order."""
        found = lookAt("/users/:userId/posts/:postId", "/users/1/posts/2")
        self.assertEqual(found, {"userId": "1", "postId": "2"})
        assert isinstance(found, dict)
        self.assertEqual(list(found), ["userId", "postId"])

    def test_malformed(self) -> None:
        """An escape that cannot be decoded is told of, where it has to be decoded."""
        for bad in ("%", "%a", "%zz", "%ff", "%C3", "%ED%A0%80", "%C0%AF", "%%41"):
            self.assertEqual(lookAt("/u/:id", f"/u/{bad}"), "malformed", bad)
            self.assertEqual(lookAt("/files/*", f"/files/x/{bad}"), "malformed", bad)
            self.assertEqual(lookAt(re.compile("^/u/(.*)"), f"/u/{bad}"), "malformed", bad)
            self.assertEqual(lookAt("/:a-:b", f"/x-{bad}"), "malformed", bad)
            self.assertIsNone(lookAt("/u/x", f"/u/{bad}"), bad)
            self.assertIsNone(lookAt("/u/:id/edit", f"/u/{bad}/show"), bad)
        self.assertEqual(MalformedEscape.statusCode, 400)
        below = compilePattern("/t/:tenant", prefix=True).match("/t/a/%zz")
        self.assertEqual(below, ({"tenant": "a"}, 4))

    def test_optional(self) -> None:
        """What is optional and absent is C{None}."""
        self.matches(
            "/posts/:id?",
            {
                "/posts": {"id": None},
                "/posts/": {"id": None},
                "/posts/1": {"id": "1"},
                "/posts/1/": {"id": "1"},
                "/posts//": None,
                "/posts/1/2": None,
            },
        )
        self.matches("/:id?", {"/": {"id": None}, "/x": {"id": "x"}, "//": None})

    def test_optionalMiddle(self) -> None:
        """Of several ways to read a path, the earlier parameters take more."""
        self.matches(
            "/a/:b?/c",
            {
                "/a/c": {"b": None},
                "/a/x/c": {"b": "x"},
                "/a/c/c": {"b": "c"},
                "/a/c/": {"b": None},
                "/a//c": None,
            },
        )
        self.matches(
            "/:a?/:b?",
            {
                "/": {"a": None, "b": None},
                "/x": {"a": "x", "b": None},
                "/x/y": {"a": "x", "b": "y"},
            },
        )
        self.matches(
            "/a/:b?/c/:d?",
            {"/a/c/c": {"b": "c", "d": None}, "/a/x/c/y": {"b": "x", "d": "y"}},
        )
        self.matches("/:a?/:b", {"/x": {"a": None, "b": "x"}})


class MixedTests(PatternCase):
    """Parameters beside text, as Express 5 splits them."""

    def test_two(self) -> None:
        """The first takes as much as it can; an escaped separator separates nothing."""
        self.matches(
            "/:from-:to",
            {
                "/a-b": {"from": "a", "to": "b"},
                "/a-b-c": {"from": "a-b", "to": "c"},
                "/a-": None,
                "/-b": None,
                "/a--b": {"from": "a-", "to": "b"},
                "/-": None,
                "/--": None,
                "/---": {"from": "-", "to": "-"},
                "/a-b-": None,
                "/a-b/": {"from": "a", "to": "b"},
                "/a-b/c": None,
                "/a%2Db-c": {"from": "a-b", "to": "c"},
                "/a%2db": None,
            },
        )
        self.matches(
            "/:name.:ext",
            {
                "/a.b": {"name": "a", "ext": "b"},
                "/a.b.c": {"name": "a.b", "ext": "c"},
                "/a.": None,
                "/.b": None,
                "/.a.b": {"name": ".a", "ext": "b"},
                "/...": {"name": ".", "ext": "."},
            },
        )

    def test_longText(self) -> None:
        """The text between may be longer than a character."""
        self.matches(
            "/:a--:b",
            {
                "/x--y": {"a": "x", "b": "y"},
                "/x---y": {"a": "x-", "b": "y"},
                "/x----y": {"a": "x--", "b": "y"},
                "/x--y--z": {"a": "x--y", "b": "z"},
                "/-x--y": {"a": "-x", "b": "y"},
            },
        )
        self.matches(
            "/:a-b:c",
            {
                "/x-by": {"a": "x", "c": "y"},
                "/x-b-by": {"a": "x-b", "c": "y"},
                "/x-bb-bz": {"a": "x-bb", "c": "z"},
            },
        )

    def test_three(self) -> None:
        """More than two in a segment split as Express 5 splits them."""
        self.matches(
            "/:a-:b-:c",
            {
                "/1-2-3": {"a": "1", "b": "2", "c": "3"},
                "/1-2-3-4": {"a": "1-2", "b": "3", "c": "4"},
                "/--": None,
                "/a--b": None,
                "/a-b--c": None,
                "/-----": {"a": "-", "b": "-", "c": "-"},
                "/a--b-c-": None,
                "/1-2--": {"a": "1", "b": "2", "c": "-"},
                "/---a-b": {"a": "--", "b": "a", "c": "b"},
            },
        )

    def test_around(self) -> None:
        """Text may stand before and behind."""
        self.matches(
            "/v:major",
            {
                "/v1": {"major": "1"},
                "/V1": {"major": "1"},
                "/v": None,
                "/vv": {"major": "v"},
                "/v1/": {"major": "1"},
                "/v1.2": {"major": "1.2"},
                "/1": None,
            },
        )
        self.matches(
            "/x-:a-y",
            {"/x-1-y": {"a": "1"}, "/x-1-y-y": {"a": "1-y"}, "/x--y": None, "/x-y-y": {"a": "y"}},
        )
        self.matches(
            "/:a.:b.json",
            {
                "/x.y.json": {"a": "x", "b": "y"},
                "/x.y.z.json": {"a": "x.y", "b": "z"},
                "/x.json.json": {"a": "x", "b": "json"},
            },
        )
        self.matches(
            "/p/:a@:b/q", {"/p/x@y/q": {"a": "x", "b": "y"}, "/p/x%40y/q": None, "/p/x@y": None}
        )

    def test_escapedText(self) -> None:
        """Text that cannot stand in a raw path is looked for in its escapes."""
        self.matches("/é:a", {"/%C3%A9x": {"a": "x"}, "/%c3%a9x": {"a": "x"}, "/%C3%89x": None})
        self.matches("/%3A:a", {"/:x": {"a": "x"}, "/%3ax": {"a": "x"}, "/x": None})
        self.matches("/100%:a", {"/100%25x": {"a": "x"}})
        exact = compilePattern("/é:a", caseSensitive=True)
        self.assertEqual(exact.match("/%c3%A9x"), ({"a": "x"}, 8))


class WildcardTests(PatternCase):
    """Wildcards."""

    def test_tail(self) -> None:
        """All behind the prefix and its slash is the wildcard's, slashes included."""
        self.matches(
            "/files/*",
            {
                "/files/a": {"*": "a"},
                "/files/a/b": {"*": "a/b"},
                "/files/": {"*": ""},
                "/files/a/": {"*": "a/"},
                "/files//a": {"*": "/a"},
                "/files/a%2Fb": {"*": "a/b"},
                "/FILES/A": {"*": "A"},
                "/files": None,
                "/filesx": None,
                "//files/a": None,
            },
        )
        self.matches("/:a/*", {"/x/y/z": {"a": "x", "*": "y/z"}, "/x": None})
        self.matches("/a/:b?/*", {"/a/x": {"b": None, "*": "x"}, "/a/x/y": {"b": "x", "*": "y"}})

    def test_everything(self) -> None:
        """A wildcard alone matches all, with the first slash if none is in the pattern."""
        self.matches("/*", {"/": {"*": ""}, "/a/b/": {"*": "a/b/"}, "//a": {"*": "/a"}})
        self.matches("*", {"/": {"*": "/"}, "/a/b/": {"*": "/a/b/"}, "//a": {"*": "//a"}})

    def test_middle(self) -> None:
        """A wildcard in the middle takes any number of segments, as Express 4 does."""
        self.matches(
            "/api/*/users",
            {
                "/api/x/users": {"*": "x"},
                "/api/x/y/users/": {"*": "x/y"},
                "/api//users": {"*": ""},
                "/api/x/users/users/": {"*": "x/users"},
                "/api/users/users": {"*": "users"},
                "/api/users": None,
                "/api/users/": None,
                "/api/x/users//": None,
                "/api/x/usersx": None,
                "/api/%C3%A9/us%65rs": {"*": "é"},
                "/api/%zz/users": "malformed",
                "/api/%zz/nobody": None,
            },
        )
        self.matches("/:a/*/:b-:c/d", {"/1/2/3/4-5/d": {"a": "1", "*": "2/3", "b": "4", "c": "5"}})
