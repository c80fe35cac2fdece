"""
Everybody's own files behind a login: a form, a session, uploads and downloads.

    python examples/uploadform.py 3000      (log in as ada with the password lovelace)
"""

import sys
from html import escape
from secrets import compare_digest, token_hex

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from storagegate import server
from storagegate.http import HTTPError, sameOrigin, securityHeaders, session, upload, urlencoded

PASSWORDS = {"ada": "lovelace", "alan": "turing"}  # in service: hashes of them
files = {user: {} for user in PASSWORDS}
LOGIN = "<form method=post><input name=user><input name=password type=password><button>Log in"
FORM = """<form method=post enctype=multipart/form-data><input name=file type=file><button>Upload
</button></form><form method=post action=/logout><button>Log out</button></form>"""


def requireUser(req, res, next):
    req.own = files.get(req.session.get("user"))
    return res.redirect("/login") if req.own is None else next()


async def logIn(req, res):
    user, password = (str((req.body or {}).get(name)) for name in ("user", "password"))
    if not compare_digest(PASSWORDS.get(user, token_hex()).encode(), password.encode()):
        raise HTTPError(401, "Wrong name or password")
    await req.session.regenerate()  # whoever knew the old id does not get in with it
    req.session.user = user
    res.redirect(303, "/")


def logOut(req, res):
    return req.session.destroy().addCallback(lambda _: res.redirect(303, "/login"))


def listFiles(req, res):
    links = [f"<li><a href=/{f.filename}>{escape(f.originalname)}</a>" for f in req.own.values()]
    res.html(f"{FORM}<ul>{''.join(links)}</ul>")


def keepFile(req, res):
    if req.file is None:
        raise HTTPError(400, "There is no file, or no room for one more")
    req.own[req.file.filename] = req.file
    res.redirect(303, "/")


def sendFile(req, res):
    file = req.own.get(req.params["id"])
    if file is None:
        raise HTTPError(404, "There is no such file")
    return res.download(file.path, file.originalname)


store = upload("uploads", {"fileSize": "10mb"}, lambda req, file, cb: cb(None, len(req.own) < 100))
visits = session(secret=token_hex(32), resave=False, saveUninitialized=False)
# Served without TLS, the page must not tell browsers to insist on it.
secure = securityHeaders(contentSecurityPolicy={"directives": {"upgrade-insecure-requests": None}})
app = server.http().use(secure, visits, sameOrigin())
app.get("/login", lambda req, res: res.html(LOGIN)).post("/login", urlencoded(), logIn)
app.use(requireUser).post("/logout", logOut)
app.get("/", listFiles).post("/", store.single("file"), keepFile).get("/:id", sendFile)


async def main(reactor, port="3000"):
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", app.close)
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
