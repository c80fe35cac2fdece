"""How each server of the HTTP bench is started."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from attrs import frozen

from bench import nginx as nginxServer
from bench.httpcases import FEW_ROUTES, Case
from bench.peers import describeNode, describePython, node, prepareNode, pythonOf
from bench.places import CHECKOUT, FLOOR, HTTP_PEERS
from bench.processes import FLOOR_NAME, Recipe
from bench.programs import storagegateVersion


@frozen
class HTTPRecipe(Recipe):
    """
    A server of the bench's application to be.

    @ivar routes: How many routes with a parameter it has.
    @ivar filesOnly: It has nothing but the files.
    @ivar helloOnly: It has nothing but the text.
    """

    routes: int = FEW_ROUTES
    filesOnly: bool = False
    helloOnly: bool = False

    def offers(self, case: Case) -> bool:
        """Say whether it has what a case asks for, apart from the number of routes."""
        if self.helloOnly:
            return case.name == "hello"
        return bool(case.file) or not self.filesOnly


def storagegate(files: Path, routes: int) -> HTTPRecipe:
    """Describe this checkout's framework."""

    def command(folder: Path, port: int) -> list[str]:
        app = HTTP_PEERS / "storagegate_app.py"
        return [sys.executable, str(app), str(port), str(files), str(routes)]

    return HTTPRecipe(
        name="storagegate",
        command=command,
        describe=storagegateVersion,
        # The checkout comes first, or an installed copy would be measured.
        environment={"PYTHONPATH": str(CHECKOUT)},
        routes=routes,
    )


def pythonPeer(
    name: str, app: str, part: str, packages: Sequence[str], files: Path, routes: int
) -> HTTPRecipe:
    """
    Describe a peer in Python.

    @param part: The virtual environment among the peers.
    @param packages: The distributions whose versions matter.
    """

    def command(folder: Path, port: int) -> list[str]:
        return [pythonOf(part), str(HTTP_PEERS / app), str(port), str(files), str(routes)]

    return HTTPRecipe(
        name=name,
        command=command,
        describe=partial(describePython, part, packages),
        # What leads to this checkout leads nowhere that a peer should look.
        environment={"PYTHONPATH": ""},
        routes=routes,
    )


def nodePeer(name: str, app: str, packages: Sequence[str], files: Path, routes: int) -> HTTPRecipe:
    """
    Describe a peer on Node.

    @param packages: The packages whose versions matter.
    """

    def prepare(folder: Path, port: int) -> None:
        prepareNode(HTTP_PEERS / app, folder)

    def command(folder: Path, port: int) -> list[str]:
        return [node(), str(folder / app), str(port), str(files), str(routes)]

    return HTTPRecipe(
        name=name,
        command=command,
        describe=partial(describeNode, packages),
        environment={"NODE_ENV": "production"},
        prepare=prepare,
        routes=routes,
    )


def floor(files: Path, routes: int) -> HTTPRecipe:
    """Describe the floor."""

    def command(folder: Path, port: int) -> list[str]:
        return [sys.executable, str(FLOOR / "http_floor.py"), str(port)]

    return HTTPRecipe(
        name=FLOOR_NAME,
        command=command,
        describe=partial(storagegateVersion, ("twisted", "httptools")),
        routes=routes,
        helloOnly=True,
    )


def nginx(files: Path, routes: int) -> HTTPRecipe:
    """Describe nginx with the files alone."""

    def prepare(folder: Path, port: int) -> None:
        nginxServer.prepare(folder, port)
        (folder / "data" / "static").symlink_to(files)

    return HTTPRecipe(
        name="nginx",
        command=nginxServer.command,
        describe=nginxServer.describe,
        prepare=prepare,
        routes=routes,
        filesOnly=True,
    )


RECIPES = {
    "storagegate": storagegate,
    FLOOR_NAME: floor,
    "twisted.web": partial(pythonPeer, "twisted.web", "twisted_app.py", "core", ["twisted"]),
    "klein": partial(pythonPeer, "klein", "klein_app.py", "core", ["klein", "twisted"]),
    "starlette": partial(
        pythonPeer,
        "starlette",
        "starlette_app.py",
        "pyhttp",
        ["starlette", "uvicorn", "uvloop", "httptools"],
    ),
    "fastify": partial(nodePeer, "fastify", "fastify_app.mjs", ["fastify", "@fastify/static"]),
    "express": partial(nodePeer, "express", "express_app.mjs", ["express"]),
    "nginx": nginx,
}


def chooseRecipes(names: Iterable[str], cases: Iterable[Case], files: Path) -> list[HTTPRecipe]:
    """
    Choose the servers of a run: of each name one for each number of routes.

    @param names: Of L{RECIPES}.
    @param files: Where the files lie that they serve.
    """
    chosen = []
    cases = list(cases)
    for name in names:
        recipe = RECIPES[name](files, FEW_ROUTES)
        asked = [case for case in cases if recipe.offers(case)]
        for routes in sorted({case.routes for case in asked}):
            chosen.append(RECIPES[name](files, routes))
    return chosen
