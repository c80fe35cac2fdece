"""Accounts, and one login for HTTP, WebSocket and gRPC."""

import hashlib
import hmac
import secrets
from typing import Annotated

from twisted.internet.threads import deferToThread

from storagegate import ServiceError
from storagegate.http import CallContext, Cookie, Depends, HTTPResponse, Router

from .models import Credentials, Token, User
from .store import Store, openStore

COOKIE = "notes"
"""The cookie that has the token of a browser."""

Notes = Annotated[Store, Depends(openStore, scope="application")]
"""The store, as a parameter of handlers and dependencies."""

accounts = Router()


async def currentUser(
    context: CallContext[User],
    store: Notes,
) -> User:
    """Return the user of a call by its bearer token."""
    return _login(context, store, context.token)


async def browserUser(
    context: CallContext[User],
    store: Notes,
    cookie: Annotated[str | None, Cookie(COOKIE)] = None,
) -> User:
    """Return the user by the bearer token or, in a browser, by the cookie."""
    return _login(context, store, context.token or cookie)


def _login(context: CallContext[User], store: Store, token: str | None) -> User:
    user = None if token is None else store.userOf(token)
    if user is None:
        raise ServiceError("UNAUTHENTICATED", "Log in first", 401)
    context.user = user
    return user


def _hash(password: str, salt: bytes) -> str:
    """Hash a password, which takes 50 ms: it runs in a thread."""
    return f"{salt.hex()}:{hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1).hex()}"


@accounts.post("/users")
async def signUp(body: Credentials, res: HTTPResponse, store: Notes) -> User:
    """Make an account."""
    password = await deferToThread(_hash, body.password, secrets.token_bytes(16))
    user = store.addUser(body.name, password)
    res.status(201)
    return user


@accounts.post("/login")
async def logIn(body: Credentials, res: HTTPResponse, store: Notes) -> Token:
    """Log in: returns a token, and sets it as a cookie."""
    found = store.findUser(body.name)
    user, known = found if found is not None else (None, f"{'00' * 16}:")
    salt = bytes.fromhex(known.partition(":")[0])
    password = await deferToThread(_hash, body.password, salt)
    if user is None or not hmac.compare_digest(password, known):
        raise ServiceError("UNAUTHENTICATED", "The name or the password is wrong", 401)
    token = secrets.token_urlsafe(24)
    store.addToken(token, user)
    res.cookie(COOKIE, token, httpOnly=True, sameSite="lax")
    return Token(token)


@accounts.get("/me")
def showUser(user: Annotated[User, Depends(browserUser)]) -> User:
    """Show the user."""
    return user
