"""A C{.proto} file that cannot be loaded says where it is wrong."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import ProtoError, loadProto
from tests.support.modules import CHECKOUT
from tests.support.protofiles import writeFiles

HEAD = 'syntax = "proto3";\n'

WORDS = """
message M { } string x = 1 ; repeated oneof map < > service rpc ( ) returns stream enum extend
option import "a.proto" package reserved to max -1 é " // /*
"""


class ErrorTests(SynchronousTestCase):
    """Each thing that may be wrong."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()

    def failure(self, name: str = "main.proto", **texts: str) -> ProtoError:
        """Load a file of some, and give the error."""
        files = {f"{each.replace('_', '/')}.proto": text for each, text in texts.items()}
        writeFiles(self.root, files)
        return self.assertRaises(ProtoError, loadProto, self.root / name)

    def assertPlace(self, error: ProtoError, name: str, line: int, column: int) -> None:
        """Check where an error is, also in its text."""
        place = (str(self.root / name), line, column)
        self.assertEqual((error.file, error.line, error.column), place)
        self.assertTrue(str(error).startswith(f"{self.root / name}:{line}:{column}: "), str(error))

    def test_syntax(self) -> None:
        """What is no proto at all is found where it begins to be none."""
        error = self.failure(main=HEAD + "message M {\n  string x 1;\n}\n")
        self.assertPlace(error, "main.proto", 3, 12)
        self.assertIn("Missing field number", error.message)

    def test_type(self) -> None:
        """A type that is not there is found where it is used."""
        error = self.failure(main=HEAD + "message M { Foo a = 1; }")
        self.assertPlace(error, "main.proto", 2, 13)
        self.assertEqual(error.message, '"Foo" is not defined.')

    def test_several(self) -> None:
        """All errors are told, a line each, but no more than a screen shows."""
        error = self.failure(main=HEAD + "message M {\n Foo a = 1;\n Bar b = 2;\n}")
        (other,) = error.others
        self.assertPlace(error, "main.proto", 3, 2)
        self.assertPlace(other, "main.proto", 4, 2)
        self.assertEqual(str(error), f"{error.file}:3:2: {error.message}\n{other}")
        fields = "".join(f"Foo f{number} = {number};\n" for number in range(1, 100))
        error = self.failure(main=f"{HEAD}message M {{\n{fields}}}")
        self.assertEqual(len(str(error).splitlines()), 20)

    def test_inImport(self) -> None:
        """An error in an imported file is told with that file's place, then who imports it."""
        error = self.failure(
            main=HEAD + 'import "in/other.proto";', in_other=HEAD + "message M { Foo a = 1; }"
        )
        self.assertPlace(error, "in/other.proto", 2, 13)
        self.assertPlace(error.others[0], "main.proto", 2, 1)

    def test_importMissing(self) -> None:
        """A missing import is told where it is imported, with the folders that were looked at."""
        error = self.failure(main=HEAD + '\nimport "nowhere.proto";')
        self.assertPlace(error, "main.proto", 3, 1)
        self.assertIn('"nowhere.proto" was not found', error.message)
        self.assertTrue(error.others[0].message.startswith(f"not found in {self.root}, "))
        self.assertEqual((error.others[0].file, error.others[0].line), ("nowhere.proto", None))

    def test_circle(self) -> None:
        """Files that import each other are told so."""
        error = self.failure(
            main=HEAD + 'import "other.proto";', other=HEAD + 'import "main.proto";'
        )
        self.assertIn("main.proto -> other.proto -> main.proto", str(error))

    def test_missing(self) -> None:
        """A file that is not there, or is a folder, is named."""
        for name in ("nothing.proto", "."):
            error = self.failure(name, main=HEAD)
            self.assertIn("there is no such file", str(error))
            self.assertTrue(str(error).startswith(str(self.root / name)))
            self.assertEqual((error.line, error.column, error.others), (None, None, ()))

    def test_folderMissing(self) -> None:
        """A folder to include that is not there is named."""
        writeFiles(self.root, {"main.proto": HEAD})
        gone = self.root / "gone"
        error = self.assertRaises(ProtoError, loadProto, self.root / "main.proto", [gone])
        self.assertEqual(str(error), f"{gone}: the folder to include does not exist")

    def test_strangers(self) -> None:
        """A file beside a folder that anybody writes to is not imported."""
        texts = {"shared/own/main.proto": HEAD + 'import "evil.proto";', "shared/evil.proto": HEAD}
        writeFiles(self.root, texts)
        main = self.root / "shared/own/main.proto"
        self.assertEqual(loadProto(main).file.name, "main.proto")
        (self.root / "shared").chmod(0o777)
        error = self.assertRaises(ProtoError, loadProto, main)
        self.assertIn('"evil.proto" was not found', error.message)
        self.assertEqual(loadProto(main, [self.root / "shared"]).file.name, "own/main.proto")

    def test_quiet(self) -> None:
        """Nothing of an error is written to the terminal behind our back."""
        writeFiles(self.root, {"main.proto": HEAD + 'import "no.proto"; message M { Foo a = 1; }'})
        script = (
            "import sys; from storagegate.rpc.protos import ProtoError, loadProto\n"
            "try: loadProto(sys.argv[1])\nexcept ProtoError: print('caught')"
        )
        result = subprocess.run(
            [sys.executable, "-c", script, str(self.root / "main.proto")],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((result.stdout, result.stderr), ("caught\n", ""))

    @given(st.lists(st.sampled_from([*WORDS.split(), "\n", "\0"]), max_size=30))
    def test_anything(self, words: list[str]) -> None:
        """Whatever is in a file, it is loaded or a C{ProtoError}."""
        writeFiles(self.root, {"main.proto": HEAD + " ".join(words)})
        try:
            loaded = loadProto(self.root / "main.proto")
        except ProtoError as error:
            self.assertTrue(error.message)
        else:
            self.assertEqual(loaded.file.name, "main.proto")
