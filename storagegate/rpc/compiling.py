"""
Compiling C{.proto} files in the process.

The compiler of grpcio-tools gives its errors only where it writes Python code, and code for every
file comes with the file's serialized descriptor in it: that is all that is taken from the code,
which never runs.
"""

import ast
import os
import stat
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import frozen
from google.protobuf.descriptor_pb2 import FileDescriptorProto

# As many as a screen shows: one missing brace gives an error for every line after it.
_MOST_ERRORS = 20


class ProtoError(Exception):
    """
    A C{.proto} file that cannot be loaded.

    @ivar file: Which file is wrong.
    @ivar line: Where in it, from 1; C{None} if the whole file is.
    @ivar column: The same.
    @ivar message: What is wrong.
    @ivar others: What else is.
    """

    def __init__(
        self,
        file: str,
        message: str,
        line: int | None = None,
        column: int | None = None,
        others: Sequence["ProtoError"] = (),
    ) -> None:
        super().__init__(file, message, line, column)
        self.file = file
        self.message = message
        self.line = line
        self.column = column
        self.others = tuple(others)

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return "\n".join([f"{place}: {self.message}", *map(str, self.others)])


@frozen
class Sources:
    """
    Where a file and what it imports are looked for.

    @ivar name: The file's name below the first of the roots.
    @ivar roots: Folders, the first one that has a file wins.
    """

    name: str
    roots: tuple[Path, ...]

    def find(self, name: str) -> Path | None:
        """Give the file of a name, if there is one."""
        for root in self.roots:
            if (root / name).is_file():
                return root / name
        return None


def findSources(path: Path, includePaths: Sequence[Path], ours: Path) -> Sources:
    """
    Tell where a file and its imports are.

    They are below the given folders, the file's own one, and those around it, so that siblings
    find each other whether their imports begin at their folder or further up; then the files of
    storagegate, the well-known ones, and googleapis.

    @param path: An absolute path.
    @param ours: The folder of storagegate's own files.
    @raise ProtoError: If there is no such file or folder.
    """
    if not path.is_file():
        raise ProtoError(str(path), "there is no such file")
    for folder in includePaths:
        if not folder.is_dir():
            raise ProtoError(str(folder), "there is no such folder to include")
    around = [path.parent, *_foldersAround(path.parent)]
    # The first root has to be the one that the file's name is relative to: any other could hold
    # another file of that name.
    home = next((each for each in includePaths if path.is_relative_to(each)), path.parent)
    roots = dict.fromkeys([home, *includePaths, *around, ours, *_libraries()])
    return Sources(path.relative_to(home).as_posix(), tuple(roots))


def compileFile(sources: Sources) -> list[FileDescriptorProto]:
    """
    Compile a file.

    @return: What it imports, each after its own imports, and then the file itself.
    @raise ProtoError: If the compiler finds an error.
    """
    # Loaded late: few programs that import this ever compile. The package's public module would
    # install import hooks and change sys.path.
    from grpc_tools import _protoc_compiler as compiler

    roots = [os.fsencode(root) for root in sources.roots]
    try:
        modules = compiler.get_protos(os.fsencode(sources.name), roots)
    except compiler.ProtocErrors as error:
        raise _errorOf(sources, error.errors()) from None
    return [FileDescriptorProto.FromString(_descriptorIn(code)) for _, code in modules]


def _foldersAround(folder: Path) -> Iterator[Path]:
    for parent in folder.parents:
        # As /tmp is: a stranger's file there must not be taken for one of the project.
        if parent.stat().st_mode & stat.S_IWOTH:
            return
        yield parent


def _libraries() -> Iterator[Path]:
    for package, depth in (("grpc_tools", 0), ("google.rpc", 1)):
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            folder = Path(place)
            yield folder.parents[depth] if depth else folder / "_proto"


def _descriptorIn(code: bytes) -> bytes:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(bytes(wire))]
            ):
                return wire
    raise RuntimeError("this version of grpcio-tools writes code without descriptors")


def _errorOf(sources: Sources, errors: Sequence[Any]) -> ProtoError:
    """Make one error of the compiler's, whose places count from 0, and from -1 for none."""
    found = [_readError(sources, error) for error in errors[:_MOST_ERRORS]]
    # First the import that is wrong, then the file that it does not find.
    found.sort(key=lambda error: error.line is None)
    first, *others = found
    return ProtoError(first.file, first.message, first.line, first.column, others)


def _readError(sources: Sources, error: Any) -> ProtoError:
    name = os.fsdecode(error.filename)
    message = error.message.decode("utf-8", "replace")
    file = str(sources.find(name) or name)
    if error.line >= 0:
        return ProtoError(file, message, error.line + 1, error.column + 1)
    if message == "File not found.":
        message = f"not found in {', '.join(map(str, sources.roots))}"
    return ProtoError(file, message)
