"""
The bench's typed application on Litestar, served by uvicorn.

    python litestar_app.py PORT
"""

import sys
from typing import Annotated

import msgspec
import uvicorn
from litestar import Litestar, post
from litestar.params import Parameter


class Line(msgspec.Struct):
    """A line of an order."""

    article: str
    count: int


class Order(msgspec.Struct):
    """An order."""

    customer: str
    lines: list[Line]


class Invoice(msgspec.Struct):
    """The answer to an order."""

    id: int
    customer: str
    page: int
    articles: int


@post("/orders/{id:int}", status_code=200)
async def makeOrder(id: int, data: Order, page: Annotated[int, Parameter(ge=1)] = 1) -> Invoice:
    """Make an order."""
    return Invoice(id, data.customer, page, sum(line.count for line in data.lines))


if __name__ == "__main__":
    uvicorn.run(
        Litestar([makeOrder], openapi_config=None),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
