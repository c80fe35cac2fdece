"""What mypy and pyright say of the public names: right uses pass, wrong ones are reported."""

import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.support.documents import DOCS, README, pageModules
from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.support.typecheckers import TypeProblem, mypyProblems, pyrightProblems

RIGHT = "tests/typing/right.py"
WRONG = "tests/typing/wrong.py"
EXAMPLES = tuple(
    str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / "examples").glob("*.py"))
)
FILES = (RIGHT, WRONG, *EXAMPLES)

_MARK = re.compile(r"# error(?:: (?P<only>mypy|pyright))?$")


def markedLines(checker: str) -> set[int]:
    """Give the lines of the file of wrong uses that a checker has to report."""
    found = set()
    for number, line in enumerate((CHECKOUT / WRONG).read_text().splitlines(), 1):
        mark = _MARK.search(line)
        if mark is not None and mark["only"] in (None, checker):
            found.add(number)
    return found


@cache
def pageFiles() -> tuple[str, ...]:
    """Write each page as a module; return the paths."""
    folder = Path(mkdtemp(prefix="pages-", dir=Path.cwd()))
    paths = []
    for page in (README, *sorted(DOCS.glob("*.rst"))):
        for name, source in pageModules(page).items():
            path = folder / f"{name}.py"
            path.write_text(source)
            paths.append(str(path))
    return tuple(paths)


@cache
def pyright() -> list[TypeProblem]:
    """Return what pyright reports of all files, in one run."""
    return pyrightProblems([*pageFiles(), *FILES])


@long("a check of CI")
class PageTests(SynchronousTestCase):
    """The programs and sessions of README and docs/, by both checkers."""

    def setUp(self) -> None:
        """Write the pages."""
        self.files = pageFiles()
        self.assertGreater(len(self.files), 6)

    def accept(self, problems: list[TypeProblem]) -> None:
        """See that there are no problems."""
        found = [f"{Path(each.path).stem}:{each.line}: {each.message}" for each in problems]
        self.assertEqual("\n".join(found), "")

    def test_mypy(self) -> None:
        """C{mypy --strict} accepts them, but that handlers have no annotations and names change."""
        options = [
            "--allow-untyped-defs",
            "--allow-incomplete-defs",
            "--allow-untyped-calls",
            "--allow-untyped-decorators",
            "--disable-error-code=no-redef",
            "--allow-redefinition-new",
            "--local-partial-types",
        ]
        try:
            problems = mypyProblems(self.files, self.mktemp(), *options)
        except ImportError:
            raise SkipTest("mypy is not installed: pip install .[test]") from None
        self.accept(problems)

    def test_pyright(self) -> None:
        """So does pyright."""
        self.accept([each for each in pyright() if each.path not in FILES])


@long("a check of CI")
class CheckerTests(SynchronousTestCase):
    """One run of each checker over the right uses, the wrong ones and the examples."""

    def test_marks(self) -> None:
        """The file of wrong uses has many, nearly all of them for both checkers."""
        both = markedLines("mypy") & markedLines("pyright")
        self.assertGreater(len(both), 80)
        self.assertLess(len(markedLines("mypy") ^ markedLines("pyright")), 3)

    def test_mypy(self) -> None:
        """C{mypy --strict} reports every wrong use and nothing else."""
        try:
            problems = mypyProblems(FILES, self.mktemp())
        except ImportError:
            raise SkipTest("mypy is not installed: pip install .[test]") from None
        self._hold("mypy", problems)

    def test_pyright(self) -> None:
        """So does pyright."""
        self._hold("pyright", [each for each in pyright() if each.path in FILES])

    def _hold(self, checker: str, problems: list[TypeProblem]) -> None:
        """Hold what a checker reports against the marks."""
        self.assertEqual([each for each in problems if each.path != WRONG], [])
        reported = {each.line for each in problems}
        marked = markedLines(checker)
        self.assertEqual(sorted(marked - reported), [], "wrong uses that pass")
        self.assertEqual(sorted(reported - marked), [], "reported without a mark")
