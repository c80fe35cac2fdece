"""
Private files behind a login: a form, a session, uploads and downloads.

    python examples/uploadform.py 3000      (log in as ada with the password lovelace)
"""

import sys
from html import escape
from secrets import compare_digest, token_hex
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from storagegate import http, server

PASSWORDS = {"ada": "lovelace", "alan": "turing"}  # in production: store password hashes
files: dict[str, dict[str, Any]] = {user: {} for user in PASSWORDS}
LOGIN = "<form method=post><input name=user><input name=password type=password><button>Log in"
FORM = """<form method=post enctype=multipart/form-data><input name=file type=file><button>Upload
</button></form><form method=post action=/logout><button>Log out</button></form>"""


def requireUser(req: http.HTTPRequest, res: http.HTTPResponse, next: Any) -> Any:
    return next() if req.session.get("user") in files else res.redirect("/login")


async def logIn(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    user, password = (str((req.body or {}).get(name)) for name in ("user", "password"))
    if not compare_digest(PASSWORDS.get(user, token_hex()).encode(), password.encode()):
        raise http.HTTPError(401, "Wrong name or password")
    await req.session.regenerate()  # an attacker who knows the old id gains nothing
    req.session.user = user
    res.redirect(303, "/")


def logOut(req: http.HTTPRequest, res: http.HTTPResponse) -> Any:
    return req.session.destroy().addCallback(lambda _: res.redirect(303, "/login"))


def listFiles(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    own = files[req.session.user].values()
    links = [f"<li><a href=/{f.filename}>{escape(f.originalname)}</a>" for f in own]
    res.html(f"{FORM}<ul>{''.join(links)}</ul>")


def keepFile(req: http.HTTPRequest, res: http.HTTPResponse) -> None:
    if req.file is None:
        raise http.HTTPError(400, "There is no file, or no room for one more")
    files[req.session.user][req.file.filename] = req.file
    res.redirect(303, "/")


def sendFile(req: http.HTTPRequest, res: http.HTTPResponse) -> Any:
    if (file := files[req.session.user].get(req.params["id"])) is None:
        raise http.HTTPError(404, "There is no such file")
    return res.download(file.path, file.originalname)


limits = {"fileSize": "10mb"}
store = http.upload("uploads", limits, lambda req, file, cb: len(files[req.session.user]) < 100)
visits = http.session(secret=token_hex(32), resave=False, saveUninitialized=False)
# Without TLS, the page must not make browsers upgrade its requests to HTTPS.
POLICY = {"directives": {"upgrade-insecure-requests": None}}
secure = http.securityHeaders(contentSecurityPolicy=POLICY)
app = server.http().use(secure, visits, http.sameOrigin())
app.get("/login", lambda req, res: res.html(LOGIN)).post("/login", http.urlencoded(), logIn)
app.use(requireUser).post("/logout", logOut)
app.get("/", listFiles).post("/", store.single("file"), keepFile).get("/:id", sendFile)


async def main(reactor: Any, port: str = "3000") -> None:
    listening = await app.listen(int(port))
    print(f"listening on http://127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", app.close)
    await Deferred[None]()


react(main, sys.argv[1:])
