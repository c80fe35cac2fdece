"""
The bench's typed application on storagegate, with a handler of (req, res) that checks by hand.

    python storagegate_byhand.py PORT
"""

import sys
from typing import Any

from storagegate import server
from storagegate.http import HTTPError, HTTPRequest, HTTPResponse, json


def readNumber(text: Any, minimum: int) -> int:
    """Read a number of the path or the query."""
    try:
        number = int(text)
    except (TypeError, ValueError):
        raise HTTPError(400, "A number is expected") from None
    if number < minimum:
        raise HTTPError(400, "The number is too small")
    return number


def makeOrder(req: HTTPRequest, res: HTTPResponse) -> None:
    """Make an order."""
    order = req.body
    if not isinstance(order, dict) or not isinstance(order.get("customer"), str):
        raise HTTPError(400, "The order is malformed")
    lines = order.get("lines")
    if not isinstance(lines, list):
        raise HTTPError(400, "The lines are malformed")
    articles = 0
    for line in lines:
        if not isinstance(line, dict) or not isinstance(line.get("article"), str):
            raise HTTPError(400, "A line is malformed")
        count = line.get("count")
        if type(count) is not int:
            raise HTTPError(400, "A count is malformed")
        articles += count
    invoice = {
        "id": readNumber(req.params["id"], 0),
        "customer": order["customer"],
        "page": readNumber(req.query.get("page", "1"), 1),
        "articles": articles,
    }
    res.json(invoice)


if __name__ == "__main__":
    server.http().post("/orders/:id", json(), makeOrder).run(int(sys.argv[1]))
