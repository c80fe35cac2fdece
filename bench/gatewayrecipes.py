"""How each server of the gateway bench is started."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from attrs import frozen

from bench.grpcrecipes import ECHO
from bench.grpcrecipes import RECIPES as GRPC_RECIPES
from bench.peers import describeNode, describePython, node, prepareNode, pythonOf
from bench.places import CHECKOUT, FLOOR, GATEWAY_PEERS
from bench.processes import FLOOR_NAME, Recipe
from bench.programs import storagegateVersion


@frozen
class GatewayRecipe(Recipe):
    """
    A server of one wire to be.

    @ivar wire: The wire.
    """

    wire: str = ""


def _storagegate(wire: str) -> GatewayRecipe:
    """Describe this checkout's gateway, with one wire."""

    def command(folder: Path, port: int) -> list[str]:
        app = GATEWAY_PEERS / "storagegate_app.py"
        return [sys.executable, str(app), str(port), wire, str(ECHO)]

    return GatewayRecipe(
        name="storagegate",
        command=command,
        describe=partial(storagegateVersion, ("twisted", "autobahn", "msgspec", "grpcio")),
        # The checkout comes first, or an installed copy would be measured.
        environment={"PYTHONPATH": str(CHECKOUT)},
        wire=wire,
    )


def _floor(wire: str, packages: Sequence[str]) -> GatewayRecipe:
    """
    Describe the floor of a wire.

    @param packages: The distributions whose versions matter.
    """

    def command(folder: Path, port: int) -> list[str]:
        return [sys.executable, str(FLOOR / f"{wire}_floor.py"), str(port)]

    return GatewayRecipe(
        name=FLOOR_NAME,
        command=command,
        describe=partial(storagegateVersion, packages),
        wire=wire,
    )


def _nodePeer(name: str, wire: str, packages: Sequence[str]) -> GatewayRecipe:
    """
    Describe a peer on Node.

    @param packages: The packages whose versions matter.
    """
    app = f"{name}_app.mjs"

    def prepare(folder: Path, port: int) -> None:
        prepareNode(GATEWAY_PEERS / app, folder)

    def command(folder: Path, port: int) -> list[str]:
        return [node(), str(folder / app), str(port)]

    return GatewayRecipe(
        name=name,
        command=command,
        describe=partial(describeNode, packages),
        environment={"NODE_ENV": "production"},
        prepare=prepare,
        wire=wire,
    )


def _pythonPeer(name: str, wire: str, packages: Sequence[str]) -> GatewayRecipe:
    """
    Describe a peer on Twisted.

    @param packages: The distributions whose versions matter.
    """

    def command(folder: Path, port: int) -> list[str]:
        return [pythonOf("core"), str(GATEWAY_PEERS / f"{name}_app.py"), str(port), wire]

    return GatewayRecipe(
        name=name,
        command=command,
        describe=partial(describePython, "core", packages),
        # What leads to this checkout leads nowhere that a peer should look.
        environment={"PYTHONPATH": ""},
        wire=wire,
    )


def _grpcPeer() -> GatewayRecipe:
    """Take the peer of the gRPC bench that is fastest among those in Python."""
    recipe = GRPC_RECIPES["grpc.aio"]
    return GatewayRecipe(
        name=recipe.name,
        command=recipe.command,
        describe=recipe.describe,
        environment=recipe.environment,
        wire="grpc",
    )


RECIPES = (
    _storagegate("http"),
    _nodePeer("moleculer", "http", ("moleculer", "moleculer-web")),
    _storagegate("websocket"),
    _floor("websocket", ("twisted",)),
    _pythonPeer("autobahn", "websocket", ("autobahn", "twisted")),
    _nodePeer("ws", "websocket", ("ws",)),
    _storagegate("grpc"),
    _grpcPeer(),
    _storagegate("tcp"),
    _floor("tcp", ()),
    _pythonPeer("twisted", "tcp", ("twisted",)),
    _storagegate("udp"),
    _floor("udp", ()),
    _pythonPeer("twisted", "udp", ("twisted",)),
)

SERVERS = tuple(dict.fromkeys(recipe.name for recipe in RECIPES))


def chooseRecipes(servers: Iterable[str], wires: Iterable[str]) -> list[GatewayRecipe]:
    """Choose the servers of a run."""
    names, wanted = set(servers), set(wires)
    return [recipe for recipe in RECIPES if recipe.name in names and recipe.wire in wanted]
