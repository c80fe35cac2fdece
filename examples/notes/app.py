"""The application over HTTP and WebSocket."""

from storagegate import server
from storagegate.http import Application, HTTPRequest, HTTPResponse, Next, openapi, sameOrigin

from .accounts import accounts
from .attachments import attachments
from .feed import live
from .routes import routes

PAGE = """<!DOCTYPE html><title>Notes</title><h1>Notes</h1>
<form id="login"><input name="name"><input name="password" type="password"><button>Log in</button>
</form>
<ul id="notes"></ul>
<script>
login.onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify(Object.fromEntries(new FormData(login)));
  await fetch("/login", {method: "POST", headers: {"Content-Type": "application/json"}, body});
  new WebSocket(location.href.replace("http", "ws") + "feed").onmessage = (event) => {
    const item = document.createElement("li");
    item.textContent = JSON.parse(event.data).text;
    notes.prepend(item);
  };
};
</script>"""


def addVersion(req: HTTPRequest, res: HTTPResponse, next: Next) -> object:
    """Send the version of the application: middleware as in Express."""
    res.header("X-Notes", "1")
    return next()


def makeApplication() -> Application:
    """Make the application."""
    app = server.http().withOptions(maxRequestBodySize="10mb", trustProxy="loopback")
    app.use(addVersion)
    app.use(sameOrigin())
    app.use(openapi(title="Notes"))
    app.use(accounts)
    app.use(routes)
    app.use(attachments)
    app.use(live)

    @app.get("/")
    def showPage() -> str:
        """Show the page."""
        return PAGE

    return app
