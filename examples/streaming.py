"""
Streaming bodies in both directions.

    python examples/streaming.py 3000
    curl -N http://127.0.0.1:3000/numbers
    head -c 1G /dev/zero | curl -T - http://127.0.0.1:3000/upload
"""

import sys
from datetime import datetime
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from storagegate import server
from storagegate.http import HTTPRequest, HTTPResponse, compression

PAGE = """<!DOCTYPE html><title>Clock</title><h1 id="clock"></h1>
<script>
new EventSource("/clock").onmessage = (event) => { clock.textContent = event.data };
</script>"""

app = server.http()
app.use(compression())
app.get("/", lambda req, res: res.html(PAGE))

# The current readers of /numbers, and the last number written to each.
readers: list[dict[str, Any]] = []
app.get("/readers", lambda req, res: res.json(readers))


@app.get("/clock", cancelOnDisconnect=True)
async def clock(req: HTTPRequest, res: HTTPResponse) -> None:
    """Send the time every second; closing the page cancels the handler."""
    res.type("text/event-stream").header("Cache-Control", "no-cache")
    while True:
        await res.write(f"data: {datetime.now():%H:%M:%S}\n\n")
        await deferLater(app.runtime.clock, 1)


@app.get("/numbers")
async def numbers(req: HTTPRequest, res: HTTPResponse) -> None:
    """Send numbers as fast as the client reads them, until it disconnects."""
    reader = {"address": req.ip, "number": 0}
    readers.append(reader)
    req.on("close", lambda: readers.remove(reader))
    res.type("application/x-ndjson")
    for reader["number"] in count():
        # Waits while the client does not read; raises once it has gone, which ends the loop.
        await res.write(f'{{"number": {reader["number"]}}}\n')


@app.put("/upload")
async def upload(req: HTTPRequest, res: HTTPResponse) -> None:
    """Count the body as it arrives, without keeping it; back pressure slows the client down."""
    size = pieces = 0
    async for chunk in req:
        size += len(chunk)
        pieces += 1
    res.json({"bytes": size, "pieces": pieces})


async def main(reactor: Any, port: str = "3000") -> None:
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    # The streams never end on their own, so a stop does not wait for them.
    reactor.addSystemEventTrigger("before", "shutdown", app.close, 0)
    await Deferred[None]()


if __name__ == "__main__":
    react(main, sys.argv[1:])
