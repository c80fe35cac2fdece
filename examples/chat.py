"""
A chat with rooms; open http://127.0.0.1:3000 in two windows.

    python examples/chat.py 3000
"""

import sys
from collections import defaultdict
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from storagegate import server
from storagegate.http import HTTPError, HTTPRequest, HTTPResponse, WebSocket, WebSocketClosed

PAGE = """<!DOCTYPE html><title>Chat</title>
<form><input name="text" autofocus autocomplete="off"></form><pre id="lines"></pre>
<script>
const socket = new WebSocket(location.href.replace("http", "ws"));
socket.onmessage = (event) => {
  const { from, text } = JSON.parse(event.data);
  lines.textContent = `${from}: ${text}\\n` + lines.textContent;
};
document.forms[0].onsubmit = (event) => {
  event.preventDefault();
  socket.send(event.target.text.value);
  event.target.reset();
};
</script>"""

app = server.http().withOptions(ws={"maxMessageSize": "10kb"})
app.get("/", lambda req, res: res.redirect("/rooms/red"))
app.get("/rooms/:room", lambda req, res: res.html(PAGE))

# The open WebSockets of each room.
rooms: defaultdict[str, set[WebSocket]] = defaultdict(set)


def checkRoom(req: HTTPRequest, res: HTTPResponse, next: Any) -> Any:
    """Reject an invalid room name with an ordinary response."""
    if not req.params["room"].isalpha():
        raise HTTPError(404, "There is no such room")
    return next()


async def chat(socket: WebSocket) -> None:
    """Send each message of a client to all clients in its room."""
    room = rooms[socket.request.params["room"]]
    room.add(socket)
    try:
        async for message in socket:
            if not isinstance(message, str) or len(message) > 1000:
                await socket.close(4000, "A message is a short text")
                return
            for each in list(room):
                # Waits for a slow client; raises if the client has disconnected.
                with suppress(WebSocketClosed):
                    await each.sendJSON({"from": socket.request.ip, "text": message})
    finally:
        room.discard(socket)
        if not room:
            del rooms[socket.request.params["room"]]


app.ws("/rooms/:room", checkRoom, chat)


async def main(reactor: Any, port: str = "3000") -> None:
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", app.close, 5000)
    await Deferred[None]()


if __name__ == "__main__":
    react(main, sys.argv[1:])
