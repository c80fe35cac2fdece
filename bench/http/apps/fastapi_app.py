"""
The bench's typed application on FastAPI, served by uvicorn.

    python fastapi_app.py PORT
"""

import sys
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Query
from pydantic import BaseModel


class Line(BaseModel):
    """A line of an order."""

    article: str
    count: int


class Order(BaseModel):
    """An order."""

    customer: str
    lines: list[Line]


class Invoice(BaseModel):
    """The answer to an order."""

    id: int
    customer: str
    page: int
    articles: int


app = FastAPI()


@app.post("/orders/{id}")
async def makeOrder(id: int, body: Order, page: Annotated[int, Query(ge=1)] = 1) -> Invoice:
    """Make an order."""
    articles = sum(line.count for line in body.lines)
    return Invoice(id=id, customer=body.customer, page=page, articles=articles)


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
