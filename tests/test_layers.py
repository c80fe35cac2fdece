"""The layers: imports run down only, never between packages of one layer, and never in circles."""

from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import PACKAGE, importedNames, moduleFiles
from tests.support.selection import long

LAYERS = (
    ("core", "version"),
    ("net", "telemetry"),
    ("auth", "serving", "storage", "upstream"),
    ("objects",),
    ("http", "rpc", "s3"),
    ("services", "gateway"),
    ("cluster", "console"),
    ("daemon", "migration"),
    ("tap", "server"),
    ("cli",),
    ("__main__",),
)
"""The packages from the lowest layer up, and the modules above all packages."""

USERS = {
    # S3 is a wire: the daemon opens its listener, and the package has it as a public name.
    "storagegate.s3": ("storagegate.daemon.components", "storagegate"),
}
"""The only modules outside of a package that may import it."""

ONLY = {
    "storagegate.gateway": {
        "storagegate.http": "storagegate.gateway.transports.http",
        "storagegate.rpc": "storagegate.gateway.transports.grpc",
    },
}
"""Within a package: the one module or folder that may import another package."""

STORES = ("storagegate.storage.embedded", "storagegate.storage.cluster")
"""The two stores. Neither knows the other, and what they share knows neither."""

FORBIDDEN_IN_CORE = ("twisted.web", "grpc", "autobahn")

HOMES = {
    # Below the seam of storagegate.rpc.interfaces: another engine takes the place of these alone.
    "grpc": (
        "storagegate.rpc.engine.client",
        "storagegate.rpc.credentials",
        "storagegate.rpc.engine",
        "storagegate.rpc.engine.server",
    ),
    "grpc_tools": ("storagegate.rpc.protos",),
    "google": ("storagegate.rpc",),
}
"""Which modules may import a library of gRPC; all others of its name have no home."""


def within(module: str, prefix: str) -> bool:
    """Return whether a module is a package or lies in it."""
    return module == prefix or module.startswith(prefix + ".")


def package(module: str) -> str:
    """Return the first two parts of a module's name: its package, or a module of the top."""
    return ".".join(module.split(".")[:2])


def layer(module: str) -> int:
    """
    Return the number of the layer of a module.

    @raise KeyError: Its package is not in the table.
    """
    name = package(module).partition(".")[2]
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    raise KeyError(module)


def allowed(importer: str, imported: str) -> bool:
    """Return whether one module may import another."""
    if package(importer) == package(imported):
        return True
    for below, users in USERS.items():
        if within(imported, below) and importer not in users:
            return False
    for above, homes in ONLY.items():
        for below, home in homes.items():
            if within(importer, above) and within(imported, below):
                return within(importer, home)
    return layer(imported) < layer(importer)


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

    def test_packages(self) -> None:
        """Every package is in one layer, and every name of the table exists."""
        found = {package(module) for module in moduleFiles() if module != PACKAGE}
        named = [f"{PACKAGE}.{name}" for names in LAYERS for name in names]
        self.assertEqual(sorted(found), sorted(named))

    @long("takes seconds")
    def test_down(self) -> None:
        """No import points up, and none points to another package of the same layer."""
        wrong = [
            f"{a} imports {b}"
            for a, b in arrows()
            # The package itself holds the lazy public names, so nothing in it imports it.
            if a != PACKAGE and (b == PACKAGE or not allowed(a, b))
        ]
        self.assertEqual(wrong, [])

    @long("takes seconds")
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

    @long("takes seconds")
    def test_stores(self) -> None:
        """The two stores do not import each other, and the seam above them imports neither."""
        wrong = []
        for importer, imported in arrows():
            if within(importer, "storagegate.storage"):
                home = [each for each in STORES if within(importer, each)]
                wrong += [
                    f"{importer} imports {imported}"
                    for each in STORES
                    if within(imported, each) and each not in home
                ]
        self.assertEqual(wrong, [])

    def test_neutralCore(self) -> None:
        """The core knows no transport."""
        for module, path in moduleFiles().items():
            if within(module, "storagegate.core"):
                for name in importedNames(module, path):
                    for forbidden in FORBIDDEN_IN_CORE:
                        self.assertFalse(within(name, forbidden), f"{module} imports {name}")

    @long("takes seconds")
    def test_seam(self) -> None:
        """Nothing above the seam knows what speaks gRPC on the wire; protobuf stays in C{rpc/}."""
        wrong = [
            f"{module} imports {name}"
            for module, path in moduleFiles().items()
            for name in importedNames(module, path)
            if homeless(module, name)
        ]
        self.assertEqual(wrong, [])

    @long("takes seconds")
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
            ("storagegate.rpc.health", "grpc_tools.protoc"),
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
            ("storagegate.storage.store", "storagegate.objects.service"),
            ("storagegate.storage.store", "storagegate.tap"),
            ("storagegate.net.http.site", "storagegate.s3.errors"),
            ("storagegate.net.http.site", "storagegate.telemetry.metrics"),
            ("storagegate.s3.resource", "storagegate.http.application"),
            ("storagegate.objects.service", "storagegate.s3.errors"),
            ("storagegate.console.objects", "storagegate.s3.errors"),
            ("storagegate.services.objects", "storagegate.s3.attributes"),
            ("storagegate.http.application", "storagegate.s3.resource"),
            ("storagegate.gateway.gateway", "storagegate.http.application"),
            ("storagegate.gateway.gateway", "storagegate.services.users"),
            ("storagegate.http.application", "storagegate.gateway.gateway"),
        ):
            self.assertFalse(allowed(importer, imported), f"{importer} {imported}")
        for importer, imported in (
            ("storagegate.s3.resource", "storagegate.objects.service"),
            ("storagegate.objects.service", "storagegate.storage.records"),
            ("storagegate.net.http.site", "storagegate.core.invoker"),
            ("storagegate.gateway.transports.http.listener", "storagegate.http.application"),
            ("storagegate.tap", "storagegate.daemon.config"),
            ("storagegate.daemon.components", "storagegate.s3.resource"),
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
            ["a.b", "c.d", "storagegate.net.http.e", "storagegate.net.http.g.h"],
        )
