"""
Services and messages from C{.proto} files, loaded when they are asked for::

    loaded = loadProto("protos/user.proto")
    loaded.UserService                  # a definition for addService and createGrpcClient
    loaded.User(name="Ann")             # a message class
    loaded["google.protobuf.Timestamp"] # anything else that the file knows, by its full name
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from attrs import frozen
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

from storagegate.rpc.compiling import ProtoError, Sources, compileFile, findSources
from storagegate.rpc.definitions import RPCService, serviceOf

__all__ = ["LoadedProto", "ProtoError", "loadProto", "loadedService", "ourProto", "protoPath"]

# More than a program has files with services; a program that makes files would grow without it.
_MOST_KEPT = 64


class LoadedProto:
    """
    What a C{.proto} file defines, and what that needs.

    Services, messages and enums of the file itself are attributes, also below the names of its
    package (C{loaded.UserService}, C{loaded.user.UserService}); they and everything from imported
    files are items under their full names (C{loaded["user.UserService"]}). A name that is one of
    C{file} and C{services}, or begins with C{__}, is found only so.
    """

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file
        self._made: dict[str, Any] = {}
        self._own = {
            name: each.full_name
            for kind in (file.enum_types_by_name, file.message_types_by_name, file.services_by_name)
            for name, each in kind.items()
        }

    @property
    def file(self) -> FileDescriptor:
        """Give the file's descriptor."""
        return self._file

    @property
    def services(self) -> Mapping[str, RPCService]:
        """Give the file's own services by their full names."""
        names = [each.full_name for each in self._file.services_by_name.values()]
        return MappingProxyType({name: self[name] for name in names})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python asks for these in vain, and before there is a file.
            raise AttributeError(name)
        if name in self._own:
            return self[self._own[name]]
        return _below(self, self._file.package.split("."), name)

    def __getitem__(self, fullName: str) -> Any:
        if fullName not in self._made:
            self._made[fullName] = self._make(fullName)
        return self._made[fullName]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._own})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._file.name}: {', '.join(sorted(self._own))}>"

    def _make(self, fullName: str) -> Any:
        pool = self._file.pool
        kinds: tuple[tuple[Callable[[str], Any], Callable[[Any], Any]], ...] = (
            (pool.FindServiceByName, serviceOf),
            (pool.FindMessageTypeByName, GetMessageClass),
            (pool.FindEnumTypeByName, EnumTypeWrapper),
        )
        for find, make in kinds:
            try:
                found = find(fullName)
            except KeyError:
                continue
            return make(found)
        raise KeyError(f"{self._file.name} knows no service, message or enum {fullName!r}")


@frozen
class _Package:
    """A place on the way through the names of a package."""

    _loaded: LoadedProto
    _rest: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _below(self._loaded, self._rest, name)


def _below(loaded: LoadedProto, package: Sequence[str], name: str) -> Any:
    """Give what a name leads to where the given rest of a package is ahead: at last the file."""
    first, *rest = package
    if name != first:
        there = ", ".join(sorted(loaded._own)) or "nothing"
        raise AttributeError(f"{loaded.file.name} has no {name!r}; there is {there}")
    return _Package(loaded, tuple(rest)) if rest else loaded


@frozen
class _Kept:
    """A file that was loaded, with what its sources looked like."""

    loaded: LoadedProto
    stamps: Mapping[Path, tuple[int, int]]


_kept: dict[Sources, _Kept] = {}
_keeping = Lock()


def protoPath() -> Path:
    """Give the folder of storagegate's own C{.proto} files, in an installation or a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "protos"
    return installed if installed.is_dir() else package.parent / "protos"


def loadProto(
    path: str | os.PathLike[str], includePaths: Iterable[str | os.PathLike[str]] = ()
) -> LoadedProto:
    """
    Load a C{.proto} file and all that it imports.

    A file that has not changed since gives what it gave before. Each file has descriptors of its
    own: two files may define the same names.

    @param path: The file.
    @param includePaths: Folders where its imports are looked for. If the file is in one of them,
        that one comes first and gives the file its name, as with C{protoc}; else the file's own
        folder does. Imports beside the file, further up, and well-known ones need none.
    @raise ProtoError: If it, or something that it imports, is missing or wrong.
    """
    if isinstance(includePaths, str | os.PathLike):
        includePaths = (includePaths,)
    sources = findSources(_absolute(path), [_absolute(each) for each in includePaths], protoPath())
    return _keep(sources, _load)


def ourProto(name: str) -> LoadedProto:
    """
    Load one of storagegate's own files, which comes compiled: the compiler would take 7 MB of
    memory for as long as the process lives.

    What L{protoPath} has as C{user.protoset} was made of C{user.proto}, in a checkout, by::

        python -m grpc_tools.protoc -Iprotos --include_imports \
            --descriptor_set_out=protos/user.protoset user.proto

    @param name: The file's, such as C{user.proto}.
    """
    return _keep(Sources(name, ()), _loadCompiled)


def loadedService(name: str) -> RPCService | None:
    """
    Give the service of a file that was loaded, the last one where several define it.

    @param name: Its full name.
    """
    with _keeping:
        for kept in reversed(_kept.values()):
            if name in kept.loaded.services:
                return kept.loaded.services[name]
    return None


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))


def _keep(sources: Sources, load: Callable[[Sources], _Kept]) -> LoadedProto:
    """Give what a file gave before if nothing has changed, or load it."""
    with _keeping:
        kept = _kept.pop(sources, None)
        if kept is None or any(_stamp(file) != stamp for file, stamp in kept.stamps.items()):
            kept = load(sources)
        # As the last one: the one that was not asked for longest is let go first.
        _kept[sources] = kept
        if len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
    return kept.loaded


def _load(sources: Sources) -> _Kept:
    files = compileFile(sources)
    found = [path for file in files if (path := sources.find(file.name)) is not None]
    return _Kept(_describe(sources.name, files), {path: _stamp(path) for path in found})


def _loadCompiled(sources: Sources) -> _Kept:
    wire = (protoPath() / sources.name).with_suffix(".protoset").read_bytes()
    return _Kept(_describe(sources.name, FileDescriptorSet.FromString(wire).file), {})


def _describe(name: str, files: Iterable[FileDescriptorProto]) -> LoadedProto:
    """
    Give what a file defines.

    @param files: The file and what it imports, each after its own imports.
    """
    pool = DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            # The library may be older than the compiler, and know fewer features.
            raise ProtoError(file.name, str(error)) from error
    return LoadedProto(pool.FindFileByName(name))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, -1)
    return (status.st_mtime_ns, status.st_size)
