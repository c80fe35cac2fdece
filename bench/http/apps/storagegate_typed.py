"""
The bench's typed application on storagegate.

    python storagegate_typed.py PORT
"""

import sys
from dataclasses import dataclass
from typing import Annotated

from storagegate import server
from storagegate.http import Query


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


def makeOrder(id: int, body: Order, page: Annotated[int, Query(ge=1)] = 1) -> Invoice:
    """Make an order."""
    return Invoice(id, body.customer, page, sum(line.count for line in body.lines))


if __name__ == "__main__":
    server.http().post("/orders/:id", makeOrder).run(int(sys.argv[1]))
