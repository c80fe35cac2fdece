"""How each server of the gRPC bench is started."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from attrs import frozen

from bench.peers import describeNode, describePython, node, prepareNode, pythonOf
from bench.places import CHECKOUT, GRPC_PEERS
from bench.processes import Recipe
from bench.programs import storagegateVersion

ECHO = GRPC_PEERS / "echo.proto"
_LIBRARIES = ("grpcio", "protobuf")


@frozen
class GRPCRecipe(Recipe):
    """
    A server of the bench's service to be.

    @ivar mostStreams: How many calls it answers at a time, where more have to wait.
    """

    mostStreams: int | None = None


def _storagegate() -> GRPCRecipe:
    """Describe this checkout's server."""
    app = str(GRPC_PEERS / "storagegate_app.py")
    return GRPCRecipe(
        name="storagegate",
        command=lambda folder, port: [sys.executable, app, str(port)],
        describe=partial(storagegateVersion, (*_LIBRARIES, "twisted")),
        # The checkout comes first, or an installed copy would be measured.
        environment={"PYTHONPATH": str(CHECKOUT)},
    )


def _pythonPeer(
    name: str, app: str, packages: Sequence[str], mostStreams: int | None = None
) -> GRPCRecipe:
    """
    Describe a peer in Python.

    @param packages: The distributions whose versions matter.
    """

    def command(folder: Path, port: int) -> list[str]:
        return [pythonOf("grpc"), str(GRPC_PEERS / app), str(port)]

    return GRPCRecipe(
        name=name,
        command=command,
        describe=partial(describePython, "grpc", packages),
        # What leads to this checkout leads nowhere that a peer should look.
        environment={"PYTHONPATH": ""},
        mostStreams=mostStreams,
    )


def _grpcJs() -> GRPCRecipe:
    """Describe the peer on Node."""
    app = "grpcjs_app.mjs"

    def prepare(folder: Path, port: int) -> None:
        prepareNode(GRPC_PEERS / app, folder)

    def command(folder: Path, port: int) -> list[str]:
        return [node(), str(folder / app), str(port), str(ECHO)]

    return GRPCRecipe(
        name="grpc-js",
        command=command,
        describe=partial(describeNode, ("@grpc/grpc-js", "@grpc/proto-loader")),
        environment={"NODE_ENV": "production"},
        prepare=prepare,
    )


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _storagegate(),
        _pythonPeer("grpc.aio", "grpcaio_app.py", _LIBRARIES),
        # Each open call has one of its ten threads.
        _pythonPeer("grpc.server", "grpcserver_app.py", _LIBRARIES, mostStreams=10),
        _pythonPeer("grpclib", "grpclib_app.py", ("grpclib", "h2", "protobuf")),
        _grpcJs(),
    )
}
