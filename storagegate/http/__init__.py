"""
The HTTP framework: Express-style applications on Twisted.

Public names are imported on first use, so that an application pays only for the middleware it uses.
"""

from typing import TYPE_CHECKING

from storagegate.core import lazyExports

EXPORTS = (
    "storagegate.http.application:Application",
    "storagegate.core.parameters:Body",
    "storagegate.core.context:CallContext",
    "storagegate.core.parameters:Cookie",
    "storagegate.core.parameters:Depends",
    "storagegate.core.parameters:File",
    "storagegate.core.parameters:Form",
    "storagegate.http.errors:HTTPError",
    "storagegate.http.request:HTTPRequest",
    "storagegate.http.response:HTTPResponse",
    "storagegate.core.parameters:Header",
    "storagegate.http.fetch:Headers",
    "storagegate.core.ratelimit:MemoryRateLimitStore",
    "storagegate.http.sessions.stores:MemorySessionStore",
    "storagegate.http.dispatch:Next",
    "storagegate.core.parameters:Path",
    "storagegate.core.parameters:Query",
    "storagegate.http.fetch:Request",
    "storagegate.http.fetch:Response",
    "storagegate.http.dispatch:RouteHandler",
    "storagegate.http.router:Router",
    "storagegate.http.sessions.stores:SQLiteSessionStore",
    "storagegate.http.sessions:Session",
    "storagegate.core.ratelimit:SharedRateLimitStore",
    "storagegate.core.sharedtable:SharedTable",
    "storagegate.http.middleware.upload:UploadedFile",
    "storagegate.http.websocket:WebSocket",
    "storagegate.http.websocket:WebSocketClosed",
    "storagegate.http.middleware.compression:compression",
    "storagegate.http.middleware.cors:cors",
    "storagegate.http.middleware.bodyparser:json",
    "storagegate.http.middleware.openapi:openapi",
    "storagegate.http.middleware.ratelimit:rateLimit",
    "storagegate.http.middleware.bodyparser:raw",
    "storagegate.http.middleware.requestlog:requestLog",
    "storagegate.http.middleware.securityheaders:sameOrigin",
    "storagegate.http.middleware.securityheaders:securityHeaders",
    "storagegate.http.middleware.session:session",
    "storagegate.http.middleware.staticfiles:staticFiles",
    "storagegate.http.middleware.bodyparser:text",
    "storagegate.http.middleware.upload:upload",
    "storagegate.http.middleware.bodyparser:urlencoded",
)

if TYPE_CHECKING:
    from storagegate.core.context import CallContext as CallContext
    from storagegate.core.parameters import Body as Body
    from storagegate.core.parameters import Cookie as Cookie
    from storagegate.core.parameters import Depends as Depends
    from storagegate.core.parameters import File as File
    from storagegate.core.parameters import Form as Form
    from storagegate.core.parameters import Header as Header
    from storagegate.core.parameters import Path as Path
    from storagegate.core.parameters import Query as Query
    from storagegate.core.ratelimit import MemoryRateLimitStore as MemoryRateLimitStore
    from storagegate.core.ratelimit import SharedRateLimitStore as SharedRateLimitStore
    from storagegate.core.sharedtable import SharedTable as SharedTable
    from storagegate.http.application import Application as Application
    from storagegate.http.dispatch import Next as Next
    from storagegate.http.dispatch import RouteHandler as RouteHandler
    from storagegate.http.errors import HTTPError as HTTPError
    from storagegate.http.fetch import Headers as Headers
    from storagegate.http.fetch import Request as Request
    from storagegate.http.fetch import Response as Response
    from storagegate.http.middleware.bodyparser import json as json
    from storagegate.http.middleware.bodyparser import raw as raw
    from storagegate.http.middleware.bodyparser import text as text
    from storagegate.http.middleware.bodyparser import urlencoded as urlencoded
    from storagegate.http.middleware.compression import compression as compression
    from storagegate.http.middleware.cors import cors as cors
    from storagegate.http.middleware.openapi import openapi as openapi
    from storagegate.http.middleware.ratelimit import rateLimit as rateLimit
    from storagegate.http.middleware.requestlog import requestLog as requestLog
    from storagegate.http.middleware.securityheaders import sameOrigin as sameOrigin
    from storagegate.http.middleware.securityheaders import securityHeaders as securityHeaders
    from storagegate.http.middleware.session import session as session
    from storagegate.http.middleware.staticfiles import staticFiles as staticFiles
    from storagegate.http.middleware.upload import UploadedFile as UploadedFile
    from storagegate.http.middleware.upload import upload as upload
    from storagegate.http.request import HTTPRequest as HTTPRequest
    from storagegate.http.response import HTTPResponse as HTTPResponse
    from storagegate.http.router import Router as Router
    from storagegate.http.sessions import Session as Session
    from storagegate.http.sessions.stores import MemorySessionStore as MemorySessionStore
    from storagegate.http.sessions.stores import SQLiteSessionStore as SQLiteSessionStore
    from storagegate.http.websocket import WebSocket as WebSocket
    from storagegate.http.websocket import WebSocketClosed as WebSocketClosed
else:
    __getattr__, __dir__ = lazyExports(__name__, EXPORTS)

__all__ = [
    "Application",
    "Body",
    "CallContext",
    "Cookie",
    "Depends",
    "File",
    "Form",
    "HTTPError",
    "HTTPRequest",
    "HTTPResponse",
    "Header",
    "Headers",
    "MemoryRateLimitStore",
    "MemorySessionStore",
    "Next",
    "Path",
    "Query",
    "Request",
    "Response",
    "RouteHandler",
    "Router",
    "SQLiteSessionStore",
    "Session",
    "SharedRateLimitStore",
    "SharedTable",
    "UploadedFile",
    "WebSocket",
    "WebSocketClosed",
    "compression",
    "cors",
    "json",
    "openapi",
    "rateLimit",
    "raw",
    "requestLog",
    "sameOrigin",
    "securityHeaders",
    "session",
    "staticFiles",
    "text",
    "upload",
    "urlencoded",
]
