"""Uses of the public names that type checkers have to accept. Never run."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypedDict

from twisted.internet.defer import Deferred
from twisted.web.static import File as StaticFile

from storagegate import (
    GrpcError,
    ProtocolGateway,
    ServiceError,
    createGrpcClient,
    createProtocolGateway,
    loadProto,
    server,
)
from storagegate.gateway import GatewayContext
from storagegate.gateway.testing import GatewayClient
from storagegate.http import (
    Application,
    CallContext,
    Cookie,
    Depends,
    File,
    Form,
    Header,
    Headers,
    HTTPError,
    HTTPRequest,
    HTTPResponse,
    MemorySessionStore,
    Next,
    Query,
    Request,
    Response,
    RouteHandler,
    Router,
    Session,
    UploadedFile,
    WebSocket,
    WebSocketClosed,
    compression,
    cors,
    json,
    openapi,
    rateLimit,
    raw,
    requestLog,
    sameOrigin,
    securityHeaders,
    session,
    staticFiles,
    text,
    upload,
    urlencoded,
)
from storagegate.http.testing import Client as TestClient
from storagegate.rpc import Call, authentication, errorHandler
from storagegate.rpc import rateLimit as rpcRateLimit
from storagegate.rpc import requestLog as rpcRequestLog
from storagegate.rpc.testing import RPCTestClient

CONFIGURATION: dict[str, Any] = {"port": 3000}

app = server.http()


# Handlers


@dataclass
class Item:
    """What is sent."""

    name: str


class ItemDict(TypedDict):
    """The same."""

    name: str


def plain(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer at once."""
    res.status(201).type("text/plain").header("X-A", 1).json({"id": req.params["id"]})


async def later(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer when the body is there."""
    agent: str | None = req.get("user-agent")
    await res.write(f"{agent} {req.ip} {req.query.get('a')}")
    res.end(await req.read(100))


async def threaded(req: HTTPRequest, res: HTTPResponse) -> None:
    """Work in a thread."""
    number: int = await req.app.runtime.run(int, req.params["id"], base=16)
    cookies: list[str] | None = req.get("set-cookie")
    res.json([number, cookies])


def deferred(req: HTTPRequest, res: HTTPResponse) -> Deferred[None]:
    """Answer with a file."""
    return res.sendFile("/etc/hostname", maxAge="1d")


def middleware(req: HTTPRequest, res: HTTPResponse, next: Callable[..., Any]) -> Any:
    """Go on."""
    req.user = {"name": "ada"}
    res.locals["started"] = 1
    return next()


def optional(req: HTTPRequest, res: HTTPResponse, next: Callable[..., Any] | None = None) -> Any:
    """Go on where it can."""


def failed(error: Exception, req: HTTPRequest, res: HTTPResponse, next: Callable[..., Any]) -> Any:
    """Answer an error."""
    res.status(getattr(error, "statusCode", 500)).json({"error": str(error)})


def untyped(req: Any, res: Any) -> Any:
    """Answer."""
    raise HTTPError(404, "There is no such thing", code="missing")


class Controller:
    """Handlers with a state."""

    async def show(self, req: HTTPRequest, res: HTTPResponse) -> None:
        """Answer."""


# Registration

app.get("/a/:id", plain).post("/a", middleware, later).put(re.compile("^/b"), deferred)
app.get("/c", [middleware, plain]).all("/d", Controller().show).delete("/e", untyped)
app.use(middleware).use("/f", middleware, optional).use(failed).use(StaticFile("/srv"))
app.get("/g", lambda req, res: res.json(req.query), cancelOnDisconnect=True)
app.route("/h").get(plain).put(middleware, later).all(plain)


async def chat(socket: WebSocket) -> None:
    """Send everything back."""
    async for message in socket:
        await socket.send(message if isinstance(message, bytes) else message.upper())
        await socket.sendJSON({"from": socket.request.params["room"]})
    code: int | None = socket.closeCode
    raise WebSocketClosed(code, socket.closeReason)


app.ws("/chat/:room", chat).ws(["/q", re.compile("^/r")], middleware, chat, subprotocols=["a"])
Router().ws("/s", [middleware], chat, cancelOnDisconnect=True)
app.withOptions(ws={"maxMessageSize": "1mb", "allowedOrigins": ["*"]})


TestClient(app).webSocket("/t", subprotocols=["chat"]).send("hello")
GatewayClient(createProtocolGateway()).connect("tcp").call("Users", "get", {"id": 1})
RPCTestClient(server.grpc()).start("Users/Get", {"id": 1}).responses.clear()


@app.ws("/t", subprotocols=["chat"])
async def talk(socket: WebSocket) -> None:
    """Send one message and close."""
    await socket.send(await socket.receive())
    await socket.close(4000, "enough")


app.post("/m", plain, body=Item, response=list[Item]).get("/n", plain, query=ItemDict)
app.use(openapi(title="Items"), openapi({"docs": False})).openapi(version="2")
app.openapi(servers=["."], security=[{"key": []}], errors={"default": "An error"}, error=Item)
app.get("/late", plain, query=lambda: Item, openapi={"status": 204, "produces": ["text/plain"]})
app.get("/later", plain, openapi=lambda: {"summary": "Late.", "extensions": {"x-role": "admin"}})
app.route("/o/:id").put(plain, params=Item, body=list[ItemDict]).post(plain, body={"type": "x"})


@app.post("/p", body=Item, query=ItemDict, params=Item, response=Item)
async def typed(req: HTTPRequest, res: HTTPResponse) -> Item:
    """Answer with what a type describes."""
    item: Item = req.body
    query: ItemDict = req.query
    params: Item = req.params
    return Item(item.name + query["name"] + params.name)


@app.get("/i")
async def decorated(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer."""


@app.post("/j", cancelOnDisconnect=True)
def decoratedToo(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer."""


@app.use("/k")
def decoratedMiddleware(req: HTTPRequest, res: HTTPResponse, next: Callable[..., Any]) -> Any:
    """Go on."""


@app.route("/l").get()
def decoratedOfChain(req: HTTPRequest, res: HTTPResponse) -> None:
    """Answer."""


same: Callable[[HTTPRequest, HTTPResponse], Awaitable[None]] = decorated


# Typed handlers and dependencies


def database() -> Iterator[str]:
    """Make a value, and end it."""
    yield "database"


async def stream() -> AsyncIterator[bytes]:
    """Make one that takes time."""
    yield b"stream"


async def currentUser(context: CallContext[Item], base: str = Depends(database)) -> Item:
    """Return the user of a call."""
    token: str | None = context.token
    agent: str | None = context.headers.get("user-agent")
    context.user = Item(f"{base} {token} {agent} {context.client.address}")
    return context.user


def plainValue(user: Item = Depends(currentUser)) -> list[Item]:
    """Return a value of others."""
    return [user]


@app.post("/typed/:id")
async def typedHandler(
    id: int,
    body: Item,
    kept: Session,
    res: HTTPResponse,
    page: Annotated[int, Query(ge=1)] = 1,
    agent: Annotated[str | None, Header("user-agent")] = None,
    theme: Annotated[str, Cookie(signed=True, max_length=10)] = "",
    user: Item = Depends(currentUser),
    chunk: bytes = Depends(stream),
    pool: str = Depends(database, scope="application"),
    items: Annotated[list[Item], Depends(plainValue)] = [],  # noqa: B006
) -> list[Item]:
    """Answer with a type."""
    kept["page"] = page
    return [user, *items]


@app.post("/upload")
def uploaded(
    title: Annotated[str, Form()], file: UploadedFile, given: Annotated[str, File()]
) -> None:
    """Take a file."""


@app.ws("/typed/:room")
async def typedSocket(socket: WebSocket, room: str, user: Item = Depends(currentUser)) -> None:
    """Talk to a user."""


handler: RouteHandler = plain
typedAgain: Callable[..., Awaitable[list[Item]]] = typedHandler
made: Application = app
app.overrides[currentUser] = lambda: Item("test")


def onward(req: HTTPRequest, res: HTTPResponse, next: Next) -> Any:
    """Go on."""
    return next("route") if req.token else next()


async def around(req: HTTPRequest, res: HTTPResponse, next: Next) -> None:
    """Go on, and wait."""
    await next()


app.use(onward).use("/x", around).get("/y", onward, typedHandler).route("/z").put(around, uploaded)


async def method(
    request: Item, context: GatewayContext[Item], user: Item = Depends(currentUser)
) -> Item:
    """Answer a call of the gateway."""
    name: str = context.user.name
    return Item(name + user.name)


createProtocolGateway().addService("Items", {"methods": {"get": method}}).overrides.clear()
server.grpc().dependencies = app.dependencies


def send(client: TestClient) -> None:
    """Send forms and files."""
    client.post("/", form={"a": 1, "b": ["c"]}, follow=True, cookies={"a": "b"})
    response = client.post("/", files={"a": ("a.txt", b"x"), "b": [b"y", ("c", "z", "text/css")]})
    history: tuple[Any, ...] = response.history
    client.websocket("/chat/a", cookies={"a": "b"}).send(f"{history}")


router = Router(mergeParams=True, caseSensitive=False)
router = Router({"mergeParams": True}, strict=True).get("/", plain)
app.use("/v1", router).use(router, middleware)
methods: list[str] = app.getAllowedMethods("/a")
paths: list[str] = [route.path for route in app.getRoutes("GET")]

# Options

app.withOptions(port=3000, hostname="::1", maxRequestBodySize="10mb", development={"hmr": True})
app.withOptions({"port": 3000}).withOptions(CONFIGURATION, keepAlive=False)
app.withOptions(cors={"origin": ["https://a.example"]}, compression=True, trustProxy="loopback")
app.withOptions(rateLimit={"windowMs": 1000, "max": 5}, development=None)


async def listen() -> None:
    """Open ports."""
    port: int = (await app.listen(0)).getHost().port
    print(port, (await rpc.listen(0)).getHost().port, (await gateway.listen())["http"].getHost())


app.listen({"port": 3000, "hostname": "::"}).addErrback(lambda reason: None)

# Middleware

app.use(json(), json(limit="1mb", strict=False), json({"limit": 100}))
app.use(urlencoded(extended=True), urlencoded({"extended": False}), raw(type="x/y"), text({}))
app.use(cors(), cors(origin=re.compile("a$"), credentials=True), cors({"origin": "*"}, maxAge=1))
app.use(compression(threshold="1kb", level=6), rateLimit(windowMs=1000, max=lambda req: 5))
app.use(requestLog("tiny"), requestLog("tiny", {"skip": None}), requestLog(immediate=True))
app.use(staticFiles("public", maxAge="1d", index=["a.html"]), staticFiles({"root": "public"}))
app.use(staticFiles("public", {"maxAge": "1d"}), sameOrigin(allow=["https://a.example"]))
app.use(securityHeaders(xFrameOptions="DENY", originAgentCluster=False))
app.use(
    session(secret="s", cookie={"maxAge": 1}, store=MemorySessionStore()), session(CONFIGURATION)
)
store = upload("uploads", {"fileSize": "10mb"})
app.post("/m", store.single("file"), upload({"dest": "x"}).array("files", 3), plain)

# Fetch

fetch = app.createFetchHandler()


async def call() -> int:
    """Call the application without a listener."""
    response = await fetch(Request("http://a/", method="POST", headers={"A": "b"}, body=b"x"))
    headers: Headers = response.headers
    return response.status + len(await response.text()) + len(list(headers))


def standard(request: Request) -> Response:
    """Answer as the Fetch standard has it."""
    return Response("text", status=201)


async def standardLater(request: Request) -> Response:
    """The same, later."""
    return Response(None)


app.withRoutes({"/n": standard, "/o": {"GET": standard, "POST": standardLater}, "/p": "p.html"})

# gRPC


async def log(call: Call, next: Callable[[], Awaitable[Any]]) -> Any:
    """Go on."""
    if not call.metadata.get("authorization"):
        raise GrpcError("UNAUTHENTICATED", "no token")
    return await next()


async def everything(request: Any) -> AsyncIterator[dict[str, int]]:
    """Give a stream."""
    yield {"id": 1}


users = loadProto("user.proto").UserService
rpc = server.grpc().withOptions(port=50051, grpc={"reflection": True, "compression": "gzip"})
rpc.withOptions({"port": 50051}).withOptions(tls={"cert": "a.pem", "key": "b.pem"})
rpc.use(log).use(authentication(lambda token: token, ["Get"])).use(errorHandler())
rpc.use(rpcRateLimit(max=3)).use(rpcRateLimit({"max": 3})).use(rpcRequestLog("{path}"))
rpc.addService(name="Probe", methods={"list": everything, "echo": {"handler": lambda x: x}})
rpc.addService(definition=users, implementation={"GetUser": lambda call: call.request})
rpc.addService({"name": "Probe", "methods": {}}).addService("Probe", {"methods": {}}).listen(50051)
client = createGrpcClient(
    "127.0.0.1:50051", credentials="insecure", options={"compression": "gzip"}
)
client = createGrpcClient({"address": "127.0.0.1:50051", "credentials": "tls"})
client = createGrpcClient("127.0.0.1:50051", {"credentials": {"ca": "ca.pem"}}, service=users)


async def ask() -> Any:
    """Call a method."""
    return await client.getUser({"id": "1"}, deadlineMs=1000)


class Items(Protocol):
    """A service of types."""

    async def get(self, item: Item) -> ItemDict: ...

    def watch(self, item: Item) -> AsyncIterator[Item]: ...


async def askTyped() -> str:
    """Call methods with types."""
    async with createGrpcClient("x:1", credentials="insecure", types=Items) as typed:
        async for item in typed.callsWith(deadlineMs=1000).watch(Item("tea")):
            item.name.upper()
        found = await typed.calls.get(Item("tea"))
        return found["name"]


# The gateway


async def create(request: Any, context: Any) -> dict[str, int]:
    """Fail."""
    raise ServiceError("NOT_FOUND", "There is none", 404)


gateway: ProtocolGateway = createProtocolGateway(
    protocols=["http", "tcp"], http={"basePath": "/v1"}
)
gateway = createProtocolGateway(CONFIGURATION, enableUDP=True, websocket={"messageFormat": "json"})
gateway.addService("Orders", methods={"create": create}).addService("Items", {"methods": {}})
gateway.configureHTTP(routes={"GET /x": "Orders.create"}).configureTCP({"port": 7}, noDelay=True)
gateway.configureUDP(protocol={"parseMessage": lambda data: data}).configureGRPC(reflection=True)
gateway.configureAuthentication(providers={"jwt": {"secret": "s"}}, rules={"http": ["jwt"]})
gateway.configureErrorHandling(transformError=lambda error, protocol: error)
gateway.configureMonitoring(metrics={"enabled": True}).configureServiceDiscovery(provider="dns")
gateway.configureRateLimit(requests=1, window=1000).configureRateLimit({"requests": 1, "window": 2})
app.use("/rpc", gateway.middleware()).withOptions(gateway.getTCPConfig())
app.withOptions(**gateway.getUDPConfig())


# Several servers in one program


async def serveAll() -> None:
    """Open several servers, and close them."""
    group = server.serve(app, (rpc, 50051), createProtocolGateway(), (app, "127.0.0.1:3000"))
    ports = await group.listen()
    print(ports["http"].getHost(), group.ports)
    await group.close(1000)
    group.run(workers=2, graceMs=1000, quiet=True, reactor="asyncio", started=print)
    app.run(3000, workers=2)
    server.subscribe("news", print)
    server.broadcast("news", {"id": 1})
