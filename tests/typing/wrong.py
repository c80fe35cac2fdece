"""Uses of the public names that type checkers have to refuse, a line each. Never run."""

# ruff: noqa: B018

from collections.abc import Callable
from typing import Any

import storagegate.http
import storagegate.rpc
from storagegate import GrpcError, createGrpcClient, createProtocolGateway, loadProto, server
from storagegate.gateway import GatewayContext
from storagegate.http import (
    CallContext,
    Depends,
    HTTPRequest,
    HTTPResponse,
    Query,
    Request,
    Response,
    Router,
    compression,
    cors,
    json,
    openapi,
    rateLimit,
    requestLog,
    securityHeaders,
    session,
    staticFiles,
    upload,
    urlencoded,
)
from storagegate.http.testing import Client as TestClient

# Names
storagegate.createGrpcServer  # error
storagegate.http.jsno  # error
storagegate.rpc.Cal  # error

app = server.http()
rpc = server.grpc()
gateway = createProtocolGateway()


class Items:
    """A service of types."""

    async def watch(self, item: str) -> None:
        """Take a text."""


def plain(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer."""


def swapped(res: HTTPResponse, req: HTTPRequest) -> None:
    """Have the parameters in the wrong order."""


def short(req: HTTPRequest) -> None:
    """Have too few parameters."""


def long(error: Any, req: Any, res: Any, next: Any, more: Any) -> None:
    """Have too many parameters."""


# Servers
server.https()  # error
app.lisen(3000)  # error
app.listen(3000.5)  # error
rpc.listen(b"x")  # error
app.run(3000, workers="2")  # error
gateway.run(workers=2.5)  # error
server.serve(app, "rpc")  # error
server.serve((app, 3000.5))  # error
server.serve(app, rpc).run(3000)  # error

# Threads
app.runtime.run(plain)  # error
app.runtime.run(plain, 1, 2)  # error
app.runtime.run(int, "1", bass=3)  # error

# Registration
app.get(7, plain)  # error
app.get()  # error
app.get("/a", "handler")  # error
app.get("/a", plain, cancelOnDisconect=True)  # error
app.get("/a", plain, cancelOnDisconnect="yes")  # error
app.get("/a", plain).pots("/b", plain)  # error
app.post("/a", plain, body=7)  # error
app.post("/a", plain, boddy=dict)  # error
app.get("/a", lambda req, res: res.jsno({}))  # error: pyright
app.use("/a", 7)  # error
app.use(short)  # error
app.use(long)  # error
app.use(swapped)  # error
app.route("/a").get("/b", plain)  # error
app.route(7)  # error
app.withRoutes(7)  # error
app.withRoutes({"/a": 7})  # error


@app.use("/a")  # error
def decorated(req: HTTPRequest) -> None:
    """Have too few parameters."""


# Typed handlers
def number() -> int:
    """Make a value."""
    return 7


def misfit(text: str = Depends(number)) -> None:  # error
    """Have a dependency of another type."""


def context(call: CallContext[str], mine: GatewayContext[int]) -> None:
    """Misuse contexts."""
    call.user + 7  # error
    call.tokn  # error
    mine.user.upper()  # error


Query(minimum=1)  # error
Depends(7)  # error
Depends(number, scope="session")  # error
app.overrides["number"] = number  # error
app.get("/a", 7)  # error
TestClient(app).get("/", form=7)  # error
TestClient(app).get("/", files={"a": 7})  # error
TestClient(app).get("/", folow=True)  # error

# Options of applications
app.withOptions(prot=1)  # error
app.withOptions(port="3000")  # error
app.withOptions(3000)  # error
app.withOptions(keepAlive=1.5)  # error
app.withOptions(development={"hot": True})  # error
app.withOptions(cors={"orign": "*"})  # error
app.withOptions(rateLimit={"max": "5"})  # error
app.withOptions(maxRequestBodySize=b"1mb")  # error
Router(strickt=True)  # error
Router(strict="yes")  # error

# Middleware
json(limt="1mb")  # error
json(strict="yes")  # error
openapi(titel="Pens")  # error
app.openapi(version=2)  # error
app.openapi(errors=["404"])  # error
app.get("/a", plain, openapi={"sumary": "Late."})  # error
app.get("/a", plain, openapi={"status": None})  # error
urlencoded(extended="yes")  # error
urlencoded({"extended": False}, {"limit": 1})  # error
cors(origin=7)  # error
cors(methods=7)  # error
compression(level="6")  # error
rateLimit(windowMs="1m")  # error
requestLog(7)  # error
session()  # error
session(secret=7)  # error
staticFiles()  # error
staticFiles("public", maxage=1)  # error
securityHeaders(xFrameOption="DENY")  # error
upload(7)  # error
upload("x").singel("file")  # error
app.use(json)  # error


# Requests and responses
def misuse(req: HTTPRequest, res: HTTPResponse, next: Callable[..., Any]) -> None:
    """Use members that there are not."""
    req.parms  # error
    req.get(7)  # error
    res.status("200")  # error
    res.sned("text")  # error
    res.header(7, "x")  # error
    res.json()  # error
    res.write(7)  # error


async def fetch() -> None:
    """Misuse the Fetch classes."""
    response = await app.createFetchHandler()("http://a/")  # error
    Request(7)  # error
    Response("x", statuss=200)  # error
    response.statuss  # error


# gRPC
rpc.withOptions(prot=1)  # error
rpc.withOptions(grpc={"reflexion": True})  # error
rpc.withOptions(grpc={"compression": "zip"})  # error
rpc.use(7)  # error
rpc.addService(7)  # error
rpc.addServices(name="x", methods={})  # error
createGrpcClient()  # error
createGrpcClient("x:1", "insecur")  # error
createGrpcClient("x:1", credentials="insecure", options={"keepAlive": 1})  # error
createGrpcClient("x:1", service=7)  # error
createGrpcClient("x:1", types=7)  # error
createGrpcClient("x:1", types=Items).calls.watch(7)  # error
createGrpcClient("x:1", types=Items).calls.wtch("tea")  # error
createGrpcClient("x:1", types=Items).callsWith(deadline=7)  # error
GrpcError()  # error
loadProto(7)  # error

# WebSockets
app.ws("/chat", lambda socket: None, subprotocol="a")  # error
app.withOptions(ws={"maxMessages": 1})  # error

# The gateway
createProtocolGateway(prot=1)  # error
createProtocolGateway(protocols=["http", "smtp"])  # error
createProtocolGateway(http={"basePth": "/api"})  # error
createProtocolGateway(8080)  # error
gateway.addService(7)  # error
gateway.addService("x", methodes={})  # error
gateway.configureHTTP(basePth="/api")  # error
gateway.configureUDP(maxPacketSize=1.5)  # error
gateway.configureAuthentication(rules={"http": ["basic"]})  # error
gateway.configureMonitoring(metricks={})  # error
gateway.configureServiceDiscovery(provider="zookeeper")  # error
gateway.configureRateLimit(request=1, window=1)  # error
