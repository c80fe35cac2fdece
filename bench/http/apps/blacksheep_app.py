"""
The bench's typed application on BlackSheep, served by uvicorn.

    python blacksheep_app.py PORT
"""

import sys
from dataclasses import dataclass

import uvicorn
from blacksheep import Application, FromJSON, FromQuery, json, post


@dataclass
class Line:
    """A line of an order."""

    article: str
    count: int


@dataclass
class Order:
    """An order."""

    customer: str
    lines: list[Line]


@dataclass
class Invoice:
    """The answer to an order."""

    id: int
    customer: str
    page: int
    articles: int


app = Application()


@post("/orders/{id}")
async def makeOrder(id: int, order: FromJSON[Order], page: FromQuery[int]) -> object:
    """Make an order."""
    lines = [Line(**line) if isinstance(line, dict) else line for line in order.value.lines]
    articles = sum(line.count for line in lines)
    return json(Invoice(id, order.value.customer, page.value, articles))


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
