"""How plainly the package is written: its figures within their limits, and each counter proved."""

from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT, PACKAGE
from tests.support.prose import (
    LIMITS,
    REGISTRY,
    SPECIFICATION_NAMES,
    Figure,
    Limit,
    Source,
    countLines,
    findRepeatedClasses,
    findSplitClasses,
    findStaleAllowances,
    findTransportNames,
    findWords,
    measure,
    readSources,
)
from tests.support.selection import long


@cache
def packageFigures() -> dict[str, Figure]:
    """Measure the package, once."""
    return measure(CHECKOUT / PACKAGE)


@long("a check of CI")
class LimitTests(SynchronousTestCase):
    """The package, measured."""

    def check(self, name: str) -> None:
        """Assert that a figure keeps its limit; the message begins with what is behind it."""
        [limit] = [each for each in LIMITS if each.figure == name]
        figure = packageFigures()[name]
        items = [*figure.items[:20], *(["..."] if figure.items[20:] else [])]
        text = "\n  ".join([f"{name}: {figure.value:g}, limit {limit.bound:g}", *items])
        self.assertTrue(limit.allows(figure.value), text)

    def test_words(self) -> None:
        """Comments and docstrings name the part that acts, not a person."""
        self.check("vague words per 10,000 lines")

    def test_classNames(self) -> None:
        """A class's name means one thing."""
        self.check("class names in two modules")

    def test_splitClasses(self) -> None:
        """A class stands in one file."""
        self.check("classes cut over files")

    def test_transports(self) -> None:
        """A transport is named in its folder and in the registry."""
        self.check("transport names elsewhere")

    def test_allowances(self) -> None:
        """Each exception for a name of the specification has a reason and is needed."""
        self.assertEqual(findStaleAllowances(readSources(CHECKOUT / PACKAGE)), [])
        self.assertEqual([name for name, reason in SPECIFICATION_NAMES.items() if not reason], [])

    def test_table(self) -> None:
        """Each figure has one limit, and each limit its reason."""
        self.assertEqual(sorted(packageFigures()), sorted(each.figure for each in LIMITS))
        self.assertEqual([each for each in LIMITS if not each.reason], [])


@long("a check of CI")
class CounterTests(SynchronousTestCase):
    """The counters, on sources of a few lines."""

    def write(self, **files: str) -> Path:
        """Write a package; an underscore pair in a name stands for a slash."""
        root = Path(self.mktemp())
        for name, text in files.items():
            path = root / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    def sources(self, **files: str) -> list[Source]:
        """Write a package and read it."""
        return readSources(self.write(**files))

    def test_sources(self) -> None:
        """Modules of all folders count, generated ones do not; blank lines do."""
        found = self.sources(a="1\n\n2\n", b__c="3\n", b__echo_pb2="4\n", b__echo_pb2_grpc="5\n")
        self.assertEqual([each.name for each in found], ["a.py", "b/c.py"])
        self.assertEqual(countLines(found), 4)

    def test_words(self) -> None:
        """Whole words in comments and docstrings count, with their lines; code does not."""
        text = (
            '"""Whoever\n\nasks: nobody."""\n'
            "x = 1  # Someone, or no one.\n"
            '"""Of somebody; to whom, whomever."""\n'
            'nobody = "somebody"\n'
            "def f():\n"
            '    """Is no\n    one."""\n'
            "# somebodys nobodyElse no ones\n"
        )
        self.assertEqual(
            findWords(self.sources(a=text)),
            [
                "a.py:4: Someone",
                "a.py:4: no one",
                "a.py:1: Whoever",
                "a.py:3: nobody",
                "a.py:5: somebody",
                "a.py:5: whom",
                "a.py:5: whomever",
                "a.py:8: no\n    one",
            ],
        )

    def test_wordsShare(self) -> None:
        """The figure is per 10,000 lines of the package, all of them."""
        root = self.write(a="# nobody\n" + "x = 1\n" * 999)
        self.assertEqual(measure(root)["vague words per 10,000 lines"].value, 10)

    def test_repeatedClasses(self) -> None:
        """A top-level name in two modules counts once, a private one too; a nested one does not."""
        found = self.sources(
            a="class A: pass\nclass _P: pass\nclass Once: pass\n",
            b="class A: pass\nclass _P: pass\nclass B:\n    class Once: pass\n",
            c="class A: pass\n",
            d="if x:\n    class D: pass\nelse:\n    class D: pass\n",
        )
        self.assertEqual(findRepeatedClasses(found), ["A: a.py, b.py, c.py", "_P: a.py, b.py"])

    def test_splitClasses(self) -> None:
        """A base with one subclass elsewhere, and no other use, is half a class."""
        base = "class Base: pass\n"
        subclass = "from p.a import Base\nclass Whole(Base): pass\n"
        half = ["Base (a.py), Whole (b.py)"]
        self.assertEqual(findSplitClasses(self.sources(a=base, b=subclass)), half)
        generic = "from p.a import Base\nclass Whole(Base[int]): pass\n"
        self.assertEqual(findSplitClasses(self.sources(a=base, b=generic)), half)
        dotted = "import p.a\nclass Whole(p.a.Base): pass\n"
        self.assertEqual(findSplitClasses(self.sources(a=base, b=dotted)), half)

    def test_wholeClasses(self) -> None:
        """A base with its subclass beside it, with several, or with other uses is whole."""
        base = "class Base: pass\n"
        subclass = "from p.a import Base\nclass Whole(Base): pass\n"
        for files in (
            {"a": base + "class Whole(Base): pass\n"},
            {"a": base, "b": subclass, "c": subclass.replace("Whole", "Other")},
            {"a": base, "b": subclass, "c": "def f(x: Base): pass\n"},
            {"a": base, "b": subclass, "c": "y = p.a.Base\n"},
            {"a": base},
            {"b": "class Whole(Exception): pass\n"},
        ):
            self.assertEqual(findSplitClasses(self.sources(**files)), [], files)

    def test_transportNames(self) -> None:
        """A literal that is a name, whole, counts once a module; keys and cases count, too."""
        text = 'a = "udp", "udp", "udp4", "UDP", b"tcp", udp\nb = {"grpc": 1}\nhttp = "a http b"\n'
        found = findTransportNames(self.sources(gateway__a=text), {})
        self.assertEqual(found, ["gateway/a.py: grpc", "gateway/a.py: udp"])

    def test_ownTransportNames(self) -> None:
        """A module may write the name of the folder or file it stands in, and no other one."""
        names = 'a = "udp", "tcp"\n'
        found = self.sources(
            gateway__transports__udp__peer=names, net__tcp=names, gateway__udppeer=names
        )
        self.assertEqual(
            findTransportNames(found, {}),
            [
                "gateway/transports/udp/peer.py: tcp",
                "gateway/udppeer.py: tcp",
                "gateway/udppeer.py: udp",
                "net/tcp.py: udp",
            ],
        )

    def test_allowedTransportNames(self) -> None:
        """The registry and the files of the table may write any; an entry must be needed."""
        registry = REGISTRY.removesuffix(".py").replace("/", "__")
        found = self.sources(**{registry: 'a = "udp"\n'}, a='a = "udp"\n', b="b = 1\n")
        allowed = {"a.py": "A name of the specification.", "b.py": "None.", "c.py": "None."}
        self.assertEqual(findTransportNames(found, allowed), [])
        self.assertEqual(findStaleAllowances(found, allowed), ["b.py", "c.py"])

    def test_limits(self) -> None:
        """A limit allows its own value and smaller ones."""
        most = Limit("", 3, "")
        self.assertEqual([most.allows(each) for each in (2.9, 3, 3.1)], [True, True, False])
