"""
Services and messages from C{.proto} files.

Load a file to use its definitions::

    loaded = loadProto("protos/user.proto")
    loaded.UserService                  # a definition for addService and createGrpcClient
    loaded.User(name="Ann")             # a message class
    loaded["google.protobuf.Timestamp"] # any other type of the file, by its full name

The compiler of grpcio-tools reports errors only when it generates Python code. This code holds the
serialized descriptor of each file; only the descriptor is used, and the code never runs.

L{storagegate.rpc.schemaprotos} makes the messages of a service without a file.
"""

import ast
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from attrs import field, frozen
from google.protobuf.descriptor import Descriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from storagegate.core.definitions import STREAMING
from storagegate.rpc.codec import MessageCodec, codecOf, readNaive
from storagegate.rpc.converters import fieldsOf

# A screenful: one missing brace causes an error in every line after it.
_MOST_ERRORS = 20


class ProtoError(Exception):
    """
    A C{.proto} file that cannot be loaded.

    @ivar file: The path of the file.
    @ivar line: The line, from 1; C{None} if the problem concerns the whole file.
    @ivar column: The column, from 1.
    @ivar message: The problem.
    @ivar others: Further problems.
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
        position = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return "\n".join([f"{position}: {self.message}", *map(str, self.others)])


class Sources(Struct, frozen=True):
    """
    The search path of a file and its imports.

    @ivar name: The file's name below the first of the roots.
    @ivar roots: Folders in the order of search; empty for a precompiled file.
    """

    name: str
    roots: tuple[Path, ...]

    def find(self, name: str) -> Path | None:
        """Return the path of a file, or C{None} if no root contains it."""
        for root in self.roots:
            if (root / name).is_file():
                return root / name
        return None


def findSources(path: Path, includePaths: Sequence[Path], ours: Path) -> Sources:
    """
    Make the search path of a file and its imports.

    The folders are, in this order, the given ones, the file's own and its parents, and the folders
    of storagegate's own files, of the well-known types and of googleapis. With the parents,
    siblings find each other whether their imports start at their folder or further up.

    @param path: An absolute path.
    @param ours: The folder of storagegate's own files.
    @raise ProtoError: If there is no such file or folder.
    """
    if not path.is_file():
        raise ProtoError(str(path), "there is no such file")
    for folder in includePaths:
        if not folder.is_dir():
            raise ProtoError(str(folder), "the folder to include does not exist")
    around = [path.parent]
    for parent in path.parent.parents:
        # A folder such as /tmp: other users' files are not part of the project.
        if parent.stat().st_mode & stat.S_IWOTH:
            break
        around.append(parent)
    libraries = []
    for package, depth in (("grpc_tools", 0), ("google.rpc", 1)):
        spec = find_spec(package)
        for location in (spec and spec.submodule_search_locations) or ():
            folder = Path(location)
            libraries.append(folder.parents[depth] if depth else folder / "_proto")
    # The first root must be the one that the file's name is relative to: another root could hold
    # another file of that name.
    home = next((each for each in includePaths if path.is_relative_to(each)), path.parent)
    roots = dict.fromkeys([home, *includePaths, *around, ours, *libraries])
    return Sources(path.relative_to(home).as_posix(), tuple(roots))


def compileFile(sources: Sources) -> list[bytes]:
    """
    Compile a file.

    @return: Its imports, each after its own imports, and then the file itself, each as a serialized
        C{FileDescriptorProto}.
    @raise ProtoError: If the compiler finds an error.
    """
    # Imported late, because few programs compile. The package's public module would install import
    # hooks and change sys.path.
    from grpc_tools import _protoc_compiler as compiler

    roots = [os.fsencode(root) for root in sources.roots]
    try:
        modules = compiler.get_protos(os.fsencode(sources.name), roots)
    except compiler.ProtocErrors as error:
        found = [_readError(sources, each) for each in error.errors()[:_MOST_ERRORS]]
        # Show a failing import before the file that it does not find.
        found.sort(key=lambda each: each.line is None)
        first, *others = found
        raise ProtoError(first.file, first.message, first.line, first.column, others) from None
    return [_descriptorIn(code) for _, code in modules]


def _descriptorIn(code: bytes) -> bytes:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(bytes(wire))]
            ):
                return wire
    raise RuntimeError("this version of grpcio-tools writes code without descriptors")


def _readError(sources: Sources, error: Any) -> ProtoError:
    """Convert an error of the compiler, which counts lines from 0 and uses -1 for no line."""
    name = os.fsdecode(error.filename)
    message = error.message.decode("utf-8", "replace")
    file = str(sources.find(name) or name)
    if error.line >= 0:
        return ProtoError(file, message, error.line + 1, error.column + 1)
    if message == "File not found.":
        message = f"not found in {', '.join(map(str, sources.roots))}"
    return ProtoError(file, message)


# Capitals at the start of a name: HTTP in HTTPGet and in HTTP, G in GetUser.
_LEADING = re.compile(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")
_UNDERSCORES = re.compile(r"_+(.?)")


class Conversion(Struct, frozen=True):
    """
    How the messages of a file are converted.

    @ivar keepsUnknown: Whether fields that a message's definition lacks are kept.
    @ivar takesNaive: Whether a C{datetime} without a zone is in UTC; otherwise it is refused.
    """

    keepsUnknown: bool = False
    takesNaive: bool = False


_PLAIN = Conversion()


class RPCMethod(Struct, frozen=True):
    """
    A method.

    @ivar name: Its bare name, as the definition has it.
    @ivar path: Its full name, C{/package.Service/Method}.
    @ivar streaming: One of L{STREAMING}.
    @ivar request: Converts requests.
    @ivar response: Converts responses.
    """

    name: str
    path: str
    streaming: str
    request: MessageCodec
    response: MessageCodec

    @property
    def camelName(self) -> str:
        """The name of the client's method: C{getUser} for C{GetUser}."""
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
        Find a method by its own name or its camelCase name.

        @return: C{None} if no method, or more than one, has that camelCase name.
        """
        return self.methods.get(name) or self._byCamelName.get(name)


def serviceOf(descriptor: ServiceDescriptor, conversion: Conversion = _PLAIN) -> RPCService:
    """Make a service from its descriptor; the message classes come from the descriptor's pool."""
    methods = {
        each.name: RPCMethod(
            each.name,
            f"/{descriptor.full_name}/{each.name}",
            STREAMING[each.client_streaming + 2 * each.server_streaming],
            _codec(each.input_type, conversion),
            _codec(each.output_type, conversion),
        )
        for each in descriptor.methods
    }
    return RPCService(descriptor.full_name, MappingProxyType(methods), descriptor.file)


def camelCase(name: str) -> str:
    """
    Convert a method's name to the name of the client's method.

    C{GetUser} and C{get_user} become C{getUser}; C{HTTPGet} becomes C{httpGet}.
    """
    joined = _UNDERSCORES.sub(lambda found: found[1].upper(), name)
    return _LEADING.sub(lambda found: found[0].lower(), joined) or name


def _codec(descriptor: Descriptor, conversion: Conversion) -> MessageCodec:
    # The message classes of the type stubs are not hashable.
    messageClass: Any = GetMessageClass(descriptor)
    if conversion == _PLAIN:
        return codecOf(messageClass)
    return codecOf(messageClass, conversion.keepsUnknown, conversion.takesNaive)


# More than the service files of any program; bounds a program that generates files.
_CACHED_FILES = 64


class LoadedProto:
    """
    The definitions of a C{.proto} file and of its imports.

    Services, messages and enums of the file itself are attributes, with or without the package
    (C{loaded.UserService}, C{loaded.user.UserService}). These and all definitions of imported files
    are items under their full names (C{loaded["user.UserService"]}). The names C{file} and
    C{services}, and names that start with C{__}, are available only as items.
    """

    def __init__(self, file: FileDescriptor, conversion: Conversion = _PLAIN) -> None:
        self._file = file
        self._conversion = conversion
        self._made: dict[str, Any] = {}
        self._own = {
            name: each.full_name
            for kind in (file.enum_types_by_name, file.message_types_by_name, file.services_by_name)
            for name, each in kind.items()
        }

    @property
    def file(self) -> FileDescriptor:
        """The file's descriptor."""
        return self._file

    @property
    def services(self) -> Mapping[str, RPCService]:
        """The file's own services by their full names."""
        names = [each.full_name for each in self._file.services_by_name.values()]
        return MappingProxyType({name: self[name] for name in names})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python looks these up, even before __init__ has run.
            raise AttributeError(name)
        if name in self._own:
            return self[self._own[name]]
        return _below(self, self._file.package.split("."), name)

    def __getitem__(self, fullName: str) -> Any:
        if fullName in self._made:
            return self._made[fullName]
        pool = self._file.pool
        kinds: tuple[tuple[Callable[[str], Any], Callable[[Any], Any]], ...] = (
            (pool.FindServiceByName, lambda found: serviceOf(found, self._conversion)),
            (pool.FindMessageTypeByName, GetMessageClass),
            (pool.FindEnumTypeByName, EnumTypeWrapper),
        )
        for find, make in kinds:
            with suppress(KeyError):
                self._made[fullName] = make(find(fullName))
                return self._made[fullName]
        raise KeyError(f"{self._file.name} has no service, message or enum {fullName!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._own})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._file.name}: {', '.join(sorted(self._own))}>"


@frozen
class _Package:
    """A prefix of a package name."""

    _loaded: LoadedProto
    _rest: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _below(self._loaded, self._rest, name)


def _below(loaded: LoadedProto, package: Sequence[str], name: str) -> Any:
    """Return an attribute of a package prefix: the next prefix, and finally the file."""
    first, *rest = package
    if name != first:
        known = ", ".join(sorted(loaded._own)) or "nothing"
        raise AttributeError(f"{loaded.file.name} has no {name!r}; it has {known}")
    return _Package(loaded, tuple(rest)) if rest else loaded


class _LoadedFile(Struct, frozen=True):
    """A file in the cache, with the times and sizes of its sources."""

    loaded: LoadedProto
    stamps: Mapping[Path, tuple[int, int]]


_cache: dict[Sources, _LoadedFile] = {}
_cacheLock = Lock()


def protoPath() -> Path:
    """Return the folder of storagegate's own C{.proto} files, in an installation or a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "protos"
    return installed if installed.is_dir() else package.parent / "protos"


def loadProto(
    path: str | os.PathLike[str],
    includePaths: Iterable[str | os.PathLike[str]] = (),
    *,
    keepUnknown: bool = False,
    naive: str = "",
) -> LoadedProto:
    """
    Load a C{.proto} file and its imports.

    An unchanged file is returned from a cache. Each file has its own descriptor pool, so two files
    may define the same names.

    @param path: The file.
    @param includePaths: Folders to search for imports. If one of them contains the file, it comes
        first and the file's name is relative to it, as with C{protoc}; otherwise the name is
        relative to the file's own folder. Imports in the file's folder or its parents, and
        well-known types, need no entry.
    @param keepUnknown: Whether the services of the file keep fields that a message's definition
        lacks, as bytes under C{"@unknown"}, so that a message which is passed on loses nothing.
    @param naive: C{"utc"} to take a C{datetime} without a zone as UTC; it is refused by default.
    @raise ProtoError: If the file or one of its imports is missing or invalid.
    """
    conversion = Conversion(keepUnknown, readNaive(naive))
    if isinstance(includePaths, str | os.PathLike):
        includePaths = (includePaths,)
    sources = findSources(_absolute(path), [_absolute(each) for each in includePaths], protoPath())
    loaded = _cached(sources)
    return loaded if conversion == _PLAIN else LoadedProto(loaded.file, conversion)


def ourProto(name: str) -> LoadedProto:
    """
    Load one of storagegate's own files, which is precompiled: the compiler would take 7 MB of
    memory for the lifetime of the process.

    C{user.protoset} in L{protoPath} was generated from C{user.proto}, in a checkout, by::

        python -m grpc_tools.protoc -Iprotos --include_imports \
            --descriptor_set_out=protos/user.protoset user.proto

    @param name: The name of the file, such as C{user.proto}.
    """
    return _cached(Sources(name, ()))


def standardService(name: str, version: str = "v1") -> RPCService:
    """
    Make the definition of a standard gRPC service, from a precompiled file; see L{ourProto}.

    The file gets its official name, so it does not collide with a user's C{health.proto}.

    @param name: C{health} or C{reflection}.
    @param version: C{v1}, or C{v1alpha} for reflection. C{reflection.v1alpha.protoset} was
        generated from C{reflection.proto} with this name in its package.
    """
    (wire,) = _precompiled(name if version == "v1" else f"{name}.{version}")
    official = f"grpc/{name}/{version}/{name}.proto".encode()
    pool = DescriptorPool()
    # Of two values of a singular field the last one counts.
    pool.AddSerializedFile(wire + bytes([_NAME << 3 | 2, len(official)]) + official)
    (service,) = pool.FindFileByName(official.decode()).services_by_name.values()
    return serviceOf(service)


def loadedService(name: str) -> RPCService | None:
    """
    Return the service of a loaded file; the most recent one if several files define it.

    @param name: Its full name.
    @return: C{None} if no loaded file defines it.
    """
    with _cacheLock:
        for file in reversed(_cache.values()):
            if name in file.loaded.services:
                return file.loaded.services[name]
    return None


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))


def _cached(sources: Sources) -> LoadedProto:
    """Load a file, or return it from the cache if it has not changed."""
    with _cacheLock:
        file = _cache.pop(sources, None)
        if file is None or any(_stamp(path) != stamp for path, stamp in file.stamps.items()):
            file = _LoadedFile(*_load(sources))
        # Move it to the end: the least recently used file is dropped first.
        _cache[sources] = file
        if len(_cache) > _CACHED_FILES:
            del _cache[next(iter(_cache))]
    return file.loaded


def _load(sources: Sources) -> tuple[LoadedProto, Mapping[Path, tuple[int, int]]]:
    """Build the descriptors of a file and its imports; also return the stamps of their sources."""
    stamps: dict[Path, tuple[int, int]] = {}
    if sources.roots:
        files = compileFile(sources)
        found = [path for file in files if (path := sources.find(_fileName(file))) is not None]
        stamps = {path: _stamp(path) for path in found}
    else:
        files = _precompiled(sources.name.removesuffix(".proto"))
    pool = DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file)
        except TypeError as error:
            # The library may be older than the compiler, and support fewer features.
            raise ProtoError(_fileName(file), str(error)) from error
    return LoadedProto(pool.FindFileByName(sources.name)), stamps


# The numbers of fields in protobuf's descriptor.proto. Its classes take 0.6 MB; a descriptor pool
# does not need them.
_NAME = 1  # of FileDescriptorProto
_FILE = 1  # of FileDescriptorSet


def _precompiled(name: str) -> list[bytes]:
    """Return the files in one of our precompiled files, each as a C{FileDescriptorProto}."""
    return fieldsOf((protoPath() / f"{name}.protoset").read_bytes(), _FILE)


def _fileName(file: bytes) -> str:
    name: bytes = fieldsOf(file, _NAME)[0]
    return name.decode()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, -1)
    return (status.st_mtime_ns, status.st_size)
