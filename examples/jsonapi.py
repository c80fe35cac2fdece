"""
A REST API with bearer tokens: each user's notes, in memory.

    python examples/jsonapi.py 3000
    curl http://127.0.0.1:3000/notes -H "Authorization: Bearer ada-token" --json '{"text": "tea"}'
"""

import sys
from hashlib import sha256
from itertools import count
from typing import Any

from twisted.internet import defer, task

from storagegate import http, server

TOKENS = {sha256(f"{name}-token".encode()).hexdigest(): name for name in ("ada", "bob")}
notes: dict[str, dict[str, Any]] = {}
ids = count(1)


def authenticate(req: http.HTTPRequest, res: http.HTTPResponse, next: Any) -> Any:
    scheme, _, token = (req.get("authorization") or "").partition(" ")
    req.user = TOKENS.get(sha256(token.encode()).hexdigest())
    if scheme.lower() == "bearer" and req.user is not None:
        return next()
    return res.status(401).header("WWW-Authenticate", "Bearer").json({"error": "Unknown token"})


def findNote(req: http.HTTPRequest, res: http.HTTPResponse, next: Any) -> Any:
    note = res.locals["note"] = notes.get(req.params["id"])
    if note is None or note["owner"] != req.user:
        raise http.HTTPError(404, "There is no such note")
    return next()


def addNote(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    text = req.body.get("text") if isinstance(req.body, dict) else None
    if not isinstance(text, str) or not 1 <= len(text) <= 1000:
        raise http.HTTPError(400, "text has 1 to 1000 characters")
    if len(notes) >= 10_000:
        raise http.HTTPError(507, "There is no room for more notes")
    note = {"id": str(next(ids)), "owner": req.user, "text": text}
    notes[note["id"]] = note
    res.status(201).location(f"{req.baseUrl}/{note['id']}").json(note)


def removeNote(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    del notes[res.locals["note"]["id"]]
    res.status(204).end()


def notFound(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    res.status(404).json({"error": "Not Found", "path": req.path, "method": req.method})


def answerError(error: Exception, req: http.HTTPRequest, res: http.HTTPResponse, next: Any) -> Any:
    status = getattr(error, "statusCode", 500)
    # The framework logs errors with status 500 and hides their details from the client.
    return next(error) if status >= 500 else res.status(status).json({"error": str(error)})


api = http.Router().use(authenticate, http.json()).post("/", addNote)
api.get("/", lambda req, res: res.json([n for n in notes.values() if n["owner"] == req.user]))
one = api.route("/:id").all(findNote).delete(removeNote)
one.get(lambda req, res: res.json(res.locals["note"]))

app = server.http().use(http.requestLog("dev"), http.cors(), http.rateLimit(max=100))
app.use("/notes", api).use(notFound).use(answerError)


async def main(reactor: Any, port: str = "3000") -> None:
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", app.close)
    await defer.Deferred[None]()


task.react(main, sys.argv[1:])
