"""The layers: imports point down only, sideways only where the table says, and never in circles."""

from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import PACKAGE, importedNames, moduleFiles

LAYERS = {
    # Longest match wins: a package's layer holds for all its modules that are not named.
    "storagegate.core": 1,
    "storagegate.core.errors": 0,
    "storagegate.core.context": 0,
    "storagegate.core.files": 0,
    "storagegate.core.definitions": 0,
    "storagegate.core.options": 0,
    "storagegate.net": 2,
    "storagegate.s3": 2,
    "storagegate.s3.auth.authenticator": 3,
    "storagegate.s3.observers": 3,
    "storagegate.s3.multipart": 3,
    "storagegate.s3.accounts": 3,
    "storagegate.s3.errors": 3,
    "storagegate.s3.headers": 3,
    "storagegate.s3.observers": 3,
    "storagegate.s3.multipart": 3,
    "storagegate.s3.observers": 3,
    "storagegate.s3.objects": 3,
    "storagegate.s3.objects": 3,
    "storagegate.s3.ingest": 3,
    "storagegate.s3.resource": 4,
    "storagegate.s3.handlers": 4,
    "storagegate.upstream": 3,
    "storagegate.upstream": 3,
    "storagegate.storage": 3,
    "storagegate.telemetry": 3,
    "storagegate.services": 3,
    "storagegate.http": 4,
    "storagegate.net.http.cookies": 2,
    "storagegate.http.encoding": 2,
    "storagegate.http.negotiation": 2,
    "storagegate.http.patterns": 2,
    "storagegate.http.contenttypes": 2,
    "storagegate.http.conditional": 2,
    "storagegate.http.matcher": 2,
    "storagegate.http.patterns": 2,
    "storagegate.http.patterns": 2,
    "storagegate.http.patterns": 2,
    "storagegate.http.contenttypes": 2,
    "storagegate.http.inflate": 2,
    "storagegate.http.querystring": 2,
    "storagegate.net.http.multipart": 2,
    "storagegate.net.http.multipart": 2,
    "storagegate.gateway": 4,
    "storagegate.gateway.transports.http.routes": 2,
    "storagegate.core.codecs": 2,
    "storagegate.gateway.messages.frames": 2,
    "storagegate.gateway.messages.frames": 2,
    "storagegate.gateway.messages.interfaces": 2,
    "storagegate.rpc": 4,
    "storagegate": 5,
    "storagegate.cli.doctor": 6,
    "storagegate.cli.main": 7,
}
"""
The layer of each module. A new file of the S3 room is pure wire code until it is named here; a new
one beside C{tap.py} is wiring.
"""

REACH = {
    0: set[int](),
    1: {0},
    2: {0},
    3: {0, 1, 2},
    4: {0, 1, 2, 3},
    5: {0, 1, 2, 3, 4},
    6: {0, 1, 2, 3, 4, 5},
    7: {0, 1, 2, 3, 4, 5, 6},
}
"""What each layer may import, besides siblings of the same package and layer."""

SIDEWAYS = {
    # Rules of HTTP that both rooms obey, and neither owns.
    ("storagegate.s3", "storagegate.net.http.ranges"),
    ("storagegate.s3", "storagegate.net.http.ranges"),
    ("storagegate.http", "storagegate.net.http.ranges"),
    ("storagegate.http", "storagegate.net.http.ranges"),
    # The domain of S3 and the Storage service are written in the store's values.
    ("storagegate.s3", "storagegate.storage"),
    ("storagegate.services", "storagegate.storage"),
    # What is traced of S3 is what its observers are told.
    ("storagegate.s3.observers", "storagegate.s3.observers"),
    # The Storage service acts on the store as S3 does: by its domain, which knows no HTTP.
    ("storagegate.services", "storagegate.s3"),
    # Calls are spread over what discovery has found.
    ("storagegate.upstream", "storagegate.upstream"),
    ("storagegate.gateway.transports.http.listener", "storagegate.http"),
    ("storagegate.gateway.transports.grpc", "storagegate.rpc"),
}
"""What may be imported from another package of the same layer."""

FORBIDDEN_IN_CORE = ("twisted.web", "grpc", "autobahn")

HOMES = {
    # Below the seam of storagegate.rpc.interfaces: another engine takes the place of these alone.
    "grpc": (
        "storagegate.rpc.engine.client",
        "storagegate.rpc.credentials",
        "storagegate.rpc.engine.server",
        "storagegate.rpc.engine.server",
        "storagegate.rpc.engine.server",
    ),
    "grpc_tools": ("storagegate.rpc.protos",),
    "google": ("storagegate.rpc",),
}
"""Which modules may import a library of gRPC; all others of its name have no home."""


def layer(module: str) -> int:
    """Give a module's layer."""
    name = module
    while name not in LAYERS:
        name = name.rpartition(".")[0]
    return LAYERS[name]


def within(module: str, prefix: str) -> bool:
    """Tell whether a module is a package or lies in it."""
    return module == prefix or module.startswith(prefix + ".")


def package(module: str) -> str:
    """Give the room that a module belongs to: the first two parts of its name."""
    parts = module.split(".")
    isRoom = len(parts) > 2 or moduleFiles()[module].name == "__init__.py"
    return ".".join(parts[:2]) if isRoom else PACKAGE


def allowed(importer: str, imported: str) -> bool:
    """Tell whether one module may import another."""
    above, below = layer(importer), layer(imported)
    if below in REACH[above]:
        return True
    if above != below:
        return False
    if package(importer) == package(imported):
        return True
    return any(within(importer, a) and within(imported, b) for a, b in SIDEWAYS)


def homeless(module: str, name: str) -> bool:
    """Tell whether a module imports something of gRPC that is not for it."""
    library = name.partition(".")[0]
    if not library.startswith("grpc") and library not in HOMES:
        return False
    return not any(within(module, home) for home in HOMES.get(library, ()))


def arrows() -> Iterator[tuple[str, str]]:
    """Give every import of one of our modules by another."""
    files = moduleFiles()
    for module, path in files.items():
        for name in importedNames(module, path):
            # "from a import b" names a module or something in one.
            target = name if name in files else name.rpartition(".")[0]
            if target in files and target != module:
                yield module, target


class LayerTests(SynchronousTestCase):
    """The table, held against the sources."""

    def test_down(self) -> None:
        """No import points up, and none points sideways that is not in the table."""
        wrong = [f"{a} imports {b}" for a, b in arrows() if not allowed(a, b)]
        # The package itself holds the version, which everybody may read.
        wrong = [line for line in wrong if not line.endswith(f" imports {PACKAGE}")]
        self.assertEqual(wrong, [])

    def test_noCircles(self) -> None:
        """No module imports itself through others, whenever the import is made."""
        graph: dict[str, set[str]] = {}
        for importer, imported in arrows():
            if imported != PACKAGE:
                graph.setdefault(importer, set()).add(imported)
        done: set[str] = set()

        def visit(module: str, trail: tuple[str, ...]) -> None:
            self.assertNotIn(module, trail, " -> ".join((*trail, module)))
            if module in done:
                return
            for imported in graph.get(module, ()):
                visit(imported, (*trail, module))
            done.add(module)

        for module in graph:
            visit(module, ())

    def test_neutralCore(self) -> None:
        """The core knows no transport."""
        for module, path in moduleFiles().items():
            if within(module, "storagegate.core"):
                for name in importedNames(module, path):
                    for forbidden in FORBIDDEN_IN_CORE:
                        self.assertFalse(within(name, forbidden), f"{module} imports {name}")

    def test_roomsApart(self) -> None:
        """The S3 room and the framework know nothing of each other."""
        for importer, imported in arrows():
            for one, other in (("s3", "http"), ("http", "s3")):
                self.assertFalse(
                    within(importer, f"{PACKAGE}.{one}") and within(imported, f"{PACKAGE}.{other}"),
                    f"{importer} imports {imported}",
                )

    def test_seam(self) -> None:
        """Nothing above the seam knows what speaks gRPC on the wire; protobuf stays in its room."""
        wrong = [
            f"{module} imports {name}"
            for module, path in moduleFiles().items()
            for name in importedNames(module, path)
            if homeless(module, name)
        ]
        self.assertEqual(wrong, [])

    def test_homes(self) -> None:
        """Every home is a module that does import its library, or holds one that does."""
        imported = {
            (module, name.partition(".")[0])
            for module, path in moduleFiles().items()
            for name in importedNames(module, path)
        }
        for library, homes in HOMES.items():
            for home in homes:
                self.assertTrue(
                    any(name == library and within(module, home) for module, name in imported),
                    f"{home} does not import {library}",
                )

    def test_seamRules(self) -> None:
        """The rule refuses what it is there to refuse."""
        for module, name in (
            ("storagegate.rpc.call", "grpc"),
            ("storagegate.rpc.application", "grpc._cython.cygrpc"),
            ("storagegate.rpc.health", "grpc_health.v1.health_pb2"),
            ("storagegate.rpc.protos", "grpc_tools.protoc"),
            ("storagegate.daemon.gatewayservice", "google.protobuf.message"),
            ("storagegate.core.errors", "grpclib.const"),
        ):
            self.assertTrue(homeless(module, name), f"{module} {name}")
        for module, name in (
            ("storagegate.rpc.engine.server", "grpc._cython.cygrpc"),
            ("storagegate.rpc.converters", "google.protobuf.message"),
            ("storagegate.daemon.gatewayservice", "storagegate.rpc.application"),
        ):
            self.assertFalse(homeless(module, name), f"{module} {name}")

    def test_rules(self) -> None:
        """The rules refuse what they are there to refuse."""
        for importer, imported in (
            ("storagegate.storage.store", "storagegate.s3.objects"),
            ("storagegate.storage.store", "storagegate.tap"),
            ("storagegate.net.http.site", "storagegate.core.invoker"),
            ("storagegate.net.http.site", "storagegate.s3.errors"),
            ("storagegate.s3.auth.sigv4", "storagegate.storage.records"),
            ("storagegate.core.options", "storagegate.core.invoker"),
            ("storagegate.s3.resource", "storagegate.http.application"),
            ("storagegate.http.application", "storagegate.gateway.transports.http.listener"),
        ):
            self.assertFalse(allowed(importer, imported), f"{importer} {imported}")
        for importer, imported in (
            ("storagegate.s3.resource", "storagegate.s3.objects"),
            ("storagegate.s3.objects", "storagegate.storage.records"),
            ("storagegate.s3.auth.sigv4", "storagegate.s3.errors"),
            ("storagegate.gateway.transports.http.listener", "storagegate.http.application"),
            ("storagegate.tap", "storagegate.daemon.config"),
        ):
            self.assertTrue(allowed(importer, imported), f"{importer} {imported}")

    def test_readsImports(self) -> None:
        """Imports are found in functions, too, and relative ones are resolved."""
        path = Path(self.mktemp())
        path.write_text(
            "import a.b\ndef f():\n    from c import d\nfrom . import e\nfrom .g import h\n"
        )
        self.assertEqual(
            sorted(importedNames("storagegate.net.http.site", path)),
            ["a.b", "c.d", "storagegate.net.e", "storagegate.net.g.h"],
        )
