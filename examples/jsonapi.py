"""
A REST API behind a bearer token: everybody's notes, in memory.

    python examples/jsonapi.py 3000
    curl http://127.0.0.1:3000/notes -H "Authorization: Bearer ada-token" --json '{"text": "tea"}'
"""

import sys
from hashlib import sha256
from itertools import count

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from storagegate import server
from storagegate.http import HTTPError, Router, cors, json, rateLimit, requestLog

TOKENS = {sha256(f"{name}-token".encode()).hexdigest(): name for name in ("ada", "bob")}
notes, ids = {}, count(1)


def authenticate(req, res, next):
    scheme, _, token = (req.get("authorization") or "").partition(" ")
    req.user = TOKENS.get(sha256(token.encode()).hexdigest())
    if scheme.lower() == "bearer" and req.user is not None:
        return next()
    return res.status(401).header("WWW-Authenticate", "Bearer").json({"error": "Unknown token"})


def findNote(req, res, next):
    req.note = notes.get(req.params["id"])
    if req.note is None or req.note["owner"] != req.user:
        raise HTTPError(404, "There is no such note")
    return next()


def addNote(req, res):
    text = req.body.get("text") if isinstance(req.body, dict) else None
    if not isinstance(text, str) or not 1 <= len(text) <= 1000:
        raise HTTPError(400, "text has 1 to 1000 characters")
    if len(notes) >= 10_000:
        raise HTTPError(507, "There is no room for more notes")
    note = {"id": str(next(ids)), "owner": req.user, "text": text}
    notes[note["id"]] = note
    res.status(201).location(f"{req.baseUrl}/{note['id']}").json(note)


def removeNote(req, res):
    del notes[req.note["id"]]
    res.status(204).end()


def notFound(req, res):
    res.status(404).json({"error": "Not Found", "path": req.path, "method": req.method})


def answerError(error, req, res, next):
    if getattr(error, "statusCode", 500) >= 500:
        return next(error)  # the framework logs it, and tells the client nothing of it
    return res.status(error.statusCode).json({"error": str(error)})


api = Router().use(authenticate, json()).post("/", addNote)
api.get("/", lambda req, res: res.json([n for n in notes.values() if n["owner"] == req.user]))
api.route("/:id").all(findNote).get(lambda req, res: res.json(req.note)).delete(removeNote)

app = server.http().use(requestLog("dev"), cors(), rateLimit(max=100))
app.use("/notes", api).use(notFound).use(answerError)


async def main(reactor, port="3000"):
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", app.close)
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
