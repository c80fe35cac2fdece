"""Which modules are an application's, and which have to be executed again."""

import json
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import twisted
from storagegate.http import Router
from storagegate.http.development.reloader import (
    FRAMEWORK,
    SCRIPT,
    Scope,
    affectedModules,
    fileOf,
    importedNames,
    isInstalled,
    rootOf,
    routerHolders,
)


def affected(changed: str, holders: str = "", hasScript: bool = True, **imports: str) -> set[str]:
    """Find what a change affects; names are separated by spaces, the script is C{main}."""
    table = {
        name.replace("main", SCRIPT).replace("_in_", "."): frozenset(names.split())
        for name, names in imports.items()
    }
    found = affectedModules(changed.split(), table, holders.split(), hasScript)
    return {name.replace(SCRIPT, "main") for name in found}


class AffectedTests(SynchronousTestCase):
    """What is executed again."""

    def test_importers(self) -> None:
        """A module that changed, those that import it, directly or not, and the script."""
        imports = {"main": "views other", "views": "data", "data": "", "other": ""}
        self.assertEqual(affected("data", **imports), {"data", "views", "main"})
        self.assertEqual(affected("other", **imports), {"other", "main"})
        self.assertEqual(affected("views", hasScript=False, **imports), {"views", "main"})

    def test_script(self) -> None:
        """The script is executed again whatever changed, also if it is nobody's import."""
        self.assertEqual(affected(SCRIPT, main="a", a=""), {"main"})

    def test_routers(self) -> None:
        """
        A module whose router others fill is executed again with them, or they would register their
        handlers twice; so are the others that fill it.
        """
        imports = {"main": "users pages", "users": "core", "pages": "core", "core": "", "data": ""}
        self.assertEqual(affected("users", "core", **imports), {"users", "core", "pages", "main"})
        self.assertEqual(affected("users", "", **imports), {"users", "main"})

    def test_packages(self) -> None:
        """What lies in a package that is executed again is executed again, too."""
        imports = {"main": "p p.a", "p": "", "p_in_a": "", "p_in_b": ""}
        self.assertEqual(affected("p", **imports), {"main", "p", "p.a", "p.b"})
        self.assertEqual(affected("p.a", **imports), {"main", "p.a"})

    def test_unknownImporter(self) -> None:
        """Where nobody is seen to import what changed, everything is executed again."""
        imports = {"main": "a", "a": "", "plugin": ""}
        self.assertEqual(affected("plugin", **imports), {"main", "a", "plugin"})
        self.assertEqual(affected("plugin", hasScript=False, **imports), {"plugin"})

    @given(
        st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from("abcdef"))),
        st.sets(st.sampled_from("abcdef"), min_size=1),
    )
    def test_closed(self, imports: dict[str, frozenset[str]], holders: set[str]) -> None:
        """No module is left that imports one of those, nor a router that one of them imports."""
        for changed in imports:
            found = affectedModules([changed], imports, holders, False)
            for name in imports.keys() - found:
                self.assertFalse(imports[name] & found)
            for name in found & imports.keys():
                self.assertLessEqual(imports[name] & holders, found)


class ImportTests(SynchronousTestCase):
    """What a module imports."""

    def test_forms(self) -> None:
        """Every form of import is seen, in functions too, with the parents of what is imported."""
        source = b"import a.b\ndef f():\n    from c import d\nfrom . import e\nfrom ..g import h\n"
        self.assertEqual(
            importedNames(source, "p.q"),
            {"a", "a.b", "c", "c.d", "p", "p.q", "p.q.e", "p.g", "p.g.h"},
        )
        self.assertRaises(SyntaxError, importedNames, b"import", "")


class FileTests(SynchronousTestCase):
    """Which files are an application's."""

    def test_installed(self) -> None:
        """What came with Python, with a package or with the framework is installed."""
        for path in (
            json.__file__,
            twisted.__file__,
            FRAMEWORK + "/http/router.py",
            sysconfig.get_path("scripts") + "/trial",
            "/home/me/project/.venv/lib/python3.11/site-packages/x.py",
        ):
            self.assertTrue(isInstalled(path), path)
        self.assertFalse(isInstalled("/home/me/project/app.py"))

    def test_scope(self) -> None:
        """An application's files are below its directories; a name that begins alike is not."""
        scope = Scope(frozenset(["/home/me/app"]))
        self.assertTrue(scope.owns("/home/me/app/a/b.py"))
        self.assertFalse(scope.owns("/home/me/app2/b.py"))
        self.assertFalse(scope.owns("/home/me/app/.venv/lib/site-packages/b.py"))
        self.assertTrue(Scope(frozenset("/")).owns("/x.py"))

    def module(self, name: str, file: Any, spec: str | None = None) -> ModuleType:
        """Make a module."""
        module: Any = ModuleType(name)
        module.__file__ = file
        if spec is not None:
            module.__spec__ = type("Spec", (), {"name": spec})()
        return module

    def test_root(self) -> None:
        """The root of a script is its directory; that of a package is where the package is."""
        for name, spec, file, root in (
            (SCRIPT, None, "/p/app.py", "/p"),
            (SCRIPT, "pkg.__main__", "/p/pkg/__main__.py", "/p"),
            ("a", "a", "/p/a.py", "/p"),
            ("a.b", "a.b", "/p/a/b.py", "/p"),
            ("a.b", "a.b", "/p/a/b/__init__.py", "/p"),
        ):
            self.assertEqual(rootOf(name, self.module(name, file, spec), file), root)

    def test_files(self) -> None:
        """Only source files can be loaded again, but a script may have any name."""
        self.assertEqual(fileOf(self.module("a", "/p/a.py")), "/p/a.py")
        self.assertIsNone(fileOf(self.module("a", "/p/a.so")))
        self.assertIsNone(fileOf(self.module("a", None)))
        self.assertEqual(fileOf(self.module(SCRIPT, "/p/serve")), "/p/serve")

    def test_loaded(self) -> None:
        """The modules of an application are those of its files that are loaded."""
        directory = Path(self.mktemp()).absolute()
        module = self.module("ownOfTest", str(directory / "own.py"))
        sys.modules["ownOfTest"] = module
        self.addCleanup(sys.modules.pop, "ownOfTest")
        scope = Scope(frozenset([str(directory)]))
        self.assertEqual(scope.modules(), {"ownOfTest": str(directory / "own.py")})
        self.assertEqual(routerHolders(["ownOfTest", "notLoaded"]), set())
        vars(module)["api"] = Router()
        self.assertEqual(routerHolders(["ownOfTest"]), {"ownOfTest"})
