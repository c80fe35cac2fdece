"""
Services and messages from C{.proto} files, loaded when they are asked for::

    loaded = loadProto("protos/user.proto")
    loaded.UserService                  # a definition for addService and createGrpcClient
    loaded.User(name="Ann")             # a message class
    loaded["google.protobuf.Timestamp"] # anything else that the file knows, by its full name

Compiling C{.proto} files in the process.

The compiler of grpcio-tools gives its errors only where it writes Python code, and code for every
file comes with the file's serialized descriptor in it: that is all that is taken from the code,
which never runs.

What a service of gRPC is: its methods, each with its path and the messages of both ways.
"""

import ast
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from attrs import field, frozen
from google.protobuf.descriptor import (
    Descriptor,
    FileDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

from storagegate.core.definitions import STREAMING
from storagegate.rpc.codec import MessageCodec, codecOf

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


# Capitals at a name's beginning: all of HTTP in HTTPGet and in HTTP, G in GetUser.
_LEADING = re.compile(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")
_UNDERSCORES = re.compile(r"_+(.?)")


@frozen
class RPCMethod:
    """
    One method.

    @ivar name: Its bare name, as the definition has it.
    @ivar path: Its name on the wire, C{/package.Service/Method}.
    @ivar streaming: One of L{STREAMING}.
    @ivar request: Converts what a client sends.
    @ivar response: Converts what a server sends.
    """

    name: str
    path: str
    streaming: str
    request: MessageCodec
    response: MessageCodec

    @property
    def camelName(self) -> str:
        """Give the name under which a client offers it: C{getUser} for C{GetUser}."""
        return camelCase(self.name)


@frozen(eq=False)
class RPCService:
    """
    A service.

    @ivar name: Its full name, such as C{user.UserService}.
    @ivar methods: Its methods by their bare names, in the order of the definition.
    @ivar file: The file that defines it, for reflection.
    """

    name: str
    methods: Mapping[str, RPCMethod]
    file: FileDescriptor
    _byCamelName: Mapping[str, RPCMethod] = field(init=False, repr=False)

    @_byCamelName.default
    def _indexed(self) -> Mapping[str, RPCMethod]:
        found: dict[str, list[RPCMethod]] = {}
        for method in self.methods.values():
            found.setdefault(method.camelName, []).append(method)
        return {name: methods[0] for name, methods in found.items() if len(methods) == 1}

    def find(self, name: str) -> RPCMethod | None:
        """
        Find a method by its own name or by the camelCase of it.

        @return: C{None} if there is none, or if several have that camelCase.
        """
        return self.methods.get(name) or self._byCamelName.get(name)


def serviceOf(descriptor: ServiceDescriptor) -> RPCService:
    """Make a service of its descriptor; the message classes come from the descriptor's pool."""
    methods = {each.name: _methodOf(descriptor.full_name, each) for each in descriptor.methods}
    return RPCService(descriptor.full_name, MappingProxyType(methods), descriptor.file)


def camelCase(name: str) -> str:
    """
    Give a method's name as clients write it.

    C{GetUser} is C{getUser}, C{get_user} is too, and C{HTTPGet} is C{httpGet}.
    """
    joined = _UNDERSCORES.sub(lambda found: found[1].upper(), name)
    return _LEADING.sub(lambda found: found[0].lower(), joined) or name


def _methodOf(service: str, descriptor: MethodDescriptor) -> RPCMethod:
    kind = STREAMING[descriptor.client_streaming + 2 * descriptor.server_streaming]
    return RPCMethod(
        descriptor.name,
        f"/{service}/{descriptor.name}",
        kind,
        _codec(descriptor.input_type),
        _codec(descriptor.output_type),
    )


def _codec(descriptor: Descriptor) -> MessageCodec:
    # To mypy, the stubs' messages have no hash, and so their classes have none either.
    messageClass: Any = GetMessageClass(descriptor)
    return codecOf(messageClass)


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
