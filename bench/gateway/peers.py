"""The servers that each transport is compared with."""

from attrs import evolve

from bench import peers
from bench.cases import Server
from bench.gateway.recipe import APPS, ASKS


def _python(name: str, packages: tuple[str, ...], app: str, transport: str) -> Server:
    server = peers.pythonPeer(name, "core", packages, APPS / app, transport)
    return evolve(server, ask=ASKS[transport])


def _node(name: str, packages: tuple[str, ...], transport: str) -> Server:
    return evolve(peers.nodePeer(name, packages, APPS / f"{name}.mjs"), ask=ASKS[transport])


MOLECULER = _node("moleculer", ("moleculer", "moleculer-web"), "http")
"""With a schema for requests."""

WS = _node("ws", ("ws",), "websocket")
AUTOBAHN = _python("autobahn", ("autobahn", "twisted"), "autobahn_app.py", "websocket")
TWISTED_TCP = _python("twisted", ("twisted",), "twisted_app.py", "tcp")
TWISTED_UDP = _python("twisted", ("twisted",), "twisted_app.py", "udp")
"""These return each message as it came: they read no JSON and call nothing."""
