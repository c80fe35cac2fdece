"""The service with every type on a gateway, with hostile names, and an application with routes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

from twisted.internet.defer import Deferred

from storagegate import ServiceError, createProtocolGateway, server
from tests.support.everytype import METHODS, SERVICE, Color, Note

EVIL = "*/ } alert(1); /*`${alert(1)}\"'\u2028\\"

ticking: list[str] = []


@dataclass
class Wish:
    """What is wanted, with defaults."""

    name: str
    color: Color = Color.RED
    kind: Literal["big", "small"] | None = None
    tags: list[str] = field(default_factory=list)


async def wish(wish: Wish) -> Wish:
    """Return it."""
    return wish


async def fail(wish: Wish) -> Wish:
    """Fail with details."""
    raise ServiceError("SOLD_OUT", f"There is no {wish.name}", 409, {"left": 0})


async def wait(request: Any) -> Any:
    """Wait for ever."""
    await Deferred()


async def tick(wish: Wish) -> AsyncIterator[Wish]:
    """Return it again and again."""
    try:
        while True:
            yield wish
    finally:
        ticking.append("ended")


async def break_(notes: AsyncIterator[Note]) -> AsyncIterator[Note]:
    """Return the first note, and fail."""
    async for note in notes:
        yield note
        raise ServiceError("ENOUGH", "One is enough")


async def whoAmI(request: Any, context: Any) -> Any:
    """Return the token."""
    return {"token": context.credentials.token}


def echo(request: Any) -> Any:
    return request


echo.__doc__ = EVIL

HOSTILE = {
    "type": "object",
    "description": EVIL,
    "required": [EVIL],
    "properties": {
        EVIL: {"type": "string", "description": EVIL},
        "constructor": {"enum": [EVIL, 1, None]},
    },
}

gateway = (
    createProtocolGateway(port=0, protocols=["http", "websocket"])
    .addService(SERVICE, methods=METHODS)
    .addService(
        "Wishes",
        methods={
            "wish": wish,
            "fail": fail,
            "wait": wait,
            "tick": tick,
            "break": break_,
            "whoAmI": whoAmI,
        },
    )
    .addService(
        EVIL.replace(" ", "").replace("/", "").replace("\u2028", ""),
        methods={
            "constructor": {"handler": echo, "input": HOSTILE, "output": HOSTILE},
            "__proto__": echo,
            '"];evil()': echo,
        },
    )
    .addService("await", methods={"then": echo, "class": echo})
)

app = server.http()


@app.get("/wishes/:name", query=Wish, response=list[Wish])
async def findWishes(req: Any, res: Any) -> list[Wish]:
    """Return wishes of a name."""
    return [Wish(req.params["name"], req.query.color)]


@app.post("/wishes", body=Wish, response=Wish)
async def addWish(req: Any, res: Any) -> Wish:
    """Return the wish, or refuse it."""
    found: Wish = req.body
    if found.name == "bad":
        raise ServiceError("BAD_WISH", "It is bad", 409, {"name": "bad"})
    return found


@app.delete("/wishes/:name")
async def removeWish(req: Any, res: Any) -> None:
    """Return nothing."""
    res.status(204).end()
