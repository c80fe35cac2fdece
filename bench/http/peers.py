"""The frameworks that ours is compared with."""

from pathlib import Path

from attrs import evolve

from bench import peers
from bench.cases import Server
from bench.grpc.recipe import withHTTP2
from bench.http.recipe import APPS, FEW_ROUTES, files, filesOf
from bench.loads import HTTP1
from bench.processes import Running


def frameworks(routes: int) -> tuple[Server, ...]:
    """Return ours, and the peers, with an application of so many routes."""
    python = (
        ("twisted.web", "core", ("twisted",), "twisted_app.py"),
        ("klein", "core", ("klein", "twisted"), "klein_app.py"),
        (
            "starlette",
            "pyhttp",
            ("starlette", "uvicorn", "uvloop", "httptools"),
            "starlette_app.py",
        ),
    )
    node = (
        ("fastify", ("fastify", "@fastify/static"), "fastify.mjs"),
        ("express", ("express",), "express.mjs"),
    )
    return (
        peers.ourApp(APPS / "storagegate_app.py", files, routes),
        *(
            peers.pythonPeer(name, part, packages, APPS / app, files, routes)
            for name, part, packages, app in python
        ),
        *(
            peers.nodePeer(name, packages, APPS / app, files, routes)
            for name, packages, app in node
        ),
    )


def typedFrameworks() -> tuple[Server, ...]:
    """Return ours, ours with a handler that checks by hand, and peers with typed handlers."""
    served = ("uvicorn", "uvloop", "httptools")
    byHand = peers.ourApp(APPS / "storagegate_byhand.py")
    return (
        peers.ourApp(APPS / "storagegate_typed.py"),
        evolve(byHand, name="by hand"),
        *(
            peers.pythonPeer(name, "pytyped", (name, *more, *served), APPS / f"{name}_app.py")
            for name, more in (
                ("fastapi", ("pydantic",)),
                ("litestar", ("msgspec",)),
                ("blacksheep", ()),
            )
        ),
    )


def http2Servers() -> tuple[Server, ...]:
    """Return ours over HTTP/2 and over HTTP/1.1, and peers over HTTP/2: servers, not frameworks."""
    ours = peers.ourApp(APPS / "storagegate_app.py", files, FEW_ROUTES)
    return (
        withHTTP2(ours),
        evolve(ours, name=f"storagegate, {HTTP1}", data=HTTP1),
        *(
            withHTTP2(peers.pythonPeer(name, "pyhttp2", packages, APPS / f"{name}_app.py"))
            for name, packages in (
                ("granian", ("granian", "uvloop")),
                ("hypercorn", ("hypercorn", "h2", "uvloop")),
            )
        ),
        withHTTP2(peers.nodePeer("node http2", (), APPS / "http2.mjs")),
    )


def _nginx() -> Server:
    """Return nginx with the files alone."""
    plain = peers.nginx(Path("files"))

    def prepare(running: Running) -> None:
        filesOf(running.session)
        plain.prepare(running)

    return evolve(plain, prepare=prepare)


NGINX = _nginx()
