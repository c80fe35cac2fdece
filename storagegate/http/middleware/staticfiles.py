"""
C{staticFiles}: serves the files of a directory, as C{serve-static} does.

A name is looked up in the reactor if the kernel has it cached; otherwise the whole look-up runs in
a thread.
"""

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from storagegate.core.options import takesTrailingMapping
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError
from storagegate.http.files import (
    IsDirectory,
    OpenFile,
    checkDotfiles,
    httpErrorFor,
    inThread,
    openBelow,
    openCached,
    readDotfiles,
    readName,
)
from storagegate.http.negotiation import preferredEncodings
from storagegate.http.sendfile import FileOptions, readOptions, replyWithFile

SIBLINGS = {"br": b".br", "zstd": b".zst", "gzip": b".gz"}
"""Suffixes of the precompressed variants of a file by coding, the smallest first."""

_CODINGS = (*SIBLINGS, "identity")

Opener = Callable[[bytes, bytes], OpenFile]


@frozen(kw_only=True)
class StaticOptions:
    """The options of L{staticFiles}, validated."""

    root: bytes
    index: Sequence[bytes]
    extensions: Sequence[bytes]
    fallthrough: bool
    redirect: bool
    dotfiles: str
    setHeaders: Callable[[Any, str, os.stat_result], Any] | None
    precompressed: bool
    reply: FileOptions


@takesTrailingMapping
def staticFiles(
    root: str | os.PathLike[str],
    *,
    maxAge: float | str = 0,
    index: str | Sequence[str] | bool = ("index.html",),
    extensions: str | Sequence[str] | bool = (),
    fallthrough: bool = True,
    redirect: bool = True,
    dotfiles: str = "ignore",
    immutable: bool = False,
    etag: bool = True,
    lastModified: bool = True,
    acceptRanges: bool = True,
    cacheControl: bool = True,
    setHeaders: Callable[[Any, str, os.stat_result], Any] | None = None,
    precompressed: bool = False,
) -> MiddlewareHandler:
    """
    Make middleware that serves the files of a directory.

    @param root: The directory. Links in it must not lead out of it.
    @param maxAge: The time that clients may cache files: milliseconds, or text such as C{"1d"}.
    @param index: Names of index files, tried in order; C{False} for none.
    @param extensions: Extensions to try for a missing name without one.
    @param fallthrough: Whether to call the next handler for missing and refused files.
    @param redirect: Whether to redirect a directory's name without a trailing slash to the name
        with it.
    @param dotfiles: Whether to C{"ignore"}, C{"deny"} or C{"allow"} names that begin with a dot.
    @param immutable: Whether files never change during C{maxAge}.
    @param setHeaders: C{setHeaders(res, path, stat)} may set header fields of the response.
    @param precompressed: Whether to send C{name.br}, C{name.zst} or C{name.gz} for C{name}.
    @raise ValueError: If an option has an invalid value.
    """
    if not os.fspath(root):
        raise ValueError("staticFiles needs a root directory")
    if setHeaders is not None and not callable(setHeaders):
        raise ValueError("setHeaders is a function of (res, path, stat)")
    options = StaticOptions(
        root=os.fsencode(os.path.abspath(root)),
        index=_readNames("index", index),
        extensions=[b"." + name.lstrip(b".") for name in _readNames("extensions", extensions)],
        fallthrough=fallthrough,
        redirect=redirect,
        dotfiles=readDotfiles(dotfiles),
        setHeaders=setHeaders,
        precompressed=precompressed,
        reply=readOptions(
            maxAge=maxAge,
            immutable=immutable,
            cacheControl=cacheControl,
            etag=etag,
            lastModified=lastModified,
            acceptRanges=acceptRanges,
        ),
    )
    return partial(_serve, options)


def _readNames(option: str, value: str | Sequence[str] | bool) -> Sequence[bytes]:
    if isinstance(value, str):
        value = [value]
    if value is None or value is False:
        return []
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{option} is a list of names")
    return [os.fsencode(name) for name in value]


def _serve(options: StaticOptions, req: Any, res: Any, next: Any) -> Any:
    """Respond, or pass the request on."""
    if req.method not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        return _refuse(options, next, HTTPError(405, "Method Not Allowed", headers=allow))
    # The mount path itself may lack the trailing slash.
    isMount = req.path == "/" and not req.raw.path.endswith(b"/")
    try:
        name = readName("" if isMount else req.path)
        checkDotfiles(name, options.dotfiles)
    except HTTPError as error:
        return _refuse(options, next, error)
    wanted = os.fsencode(name)
    codings = _codingsFor(req) if options.precompressed else ()
    try:
        file = lookUp(options, openCached, wanted, codings)
    except BlockingIOError:
        return _serveLater(options, req, res, next, wanted, codings)
    except (IsDirectory, OSError) as error:
        return _notServed(options, req, res, next, error)
    return _send(options, res, file)


async def _serveLater(
    options: StaticOptions, req: Any, res: Any, next: Any, wanted: bytes, codings: Sequence[str]
) -> None:
    """Look up the file in a thread, and respond."""
    run = res.app.runtime.run
    try:
        file = await inThread(run, lookUp, options, openBelow, wanted, codings)
    except (IsDirectory, OSError) as error:
        rest = _notServed(options, req, res, next, error)
    else:
        rest = _send(options, res, file)
    if rest is not None:
        await rest


def _codingsFor(req: Any) -> Sequence[str]:
    """Return the codings to look for, in the client's order."""
    header = req.get("accept-encoding")
    if not header:
        return ()
    liked = preferredEncodings(header, _CODINGS, _CODINGS)
    # Codings that rank below the plain file are not looked up.
    return liked[: liked.index("identity")] if "identity" in liked else liked


def lookUp(options: StaticOptions, opener: Opener, name: bytes, codings: Sequence[str]) -> OpenFile:
    """
    Find a file. May be called in a thread.

    @param options: The options of the middleware, with its root.
    @param opener: L{openCached} or L{openBelow}.
    @param name: The name below the root, without a leading slash.
    @param codings: The accepted codings, in order.
    @raise IsDirectory: If it is a directory and C{name} lacks a trailing slash.
    @raise OSError: As C{opener}.
    """
    root = options.root
    file = _lookUpPlain(options, opener, name)
    plain = file.name[len(root) + 1 :]
    for coding in codings:
        try:
            encoded = opener(root, plain + SIBLINGS[coding])
        except BlockingIOError:
            file.close()
            raise
        except (IsDirectory, OSError):
            continue
        file.close()
        # The variant keeps the name, and so the type, of the plain file.
        encoded.name, encoded.coding = file.name, coding
        return encoded
    return file


def _lookUpPlain(options: StaticOptions, opener: Opener, name: bytes) -> OpenFile:
    root = options.root
    if name.endswith(b"/"):
        return _firstOf(opener, root, [name.lstrip(b"/") + each for each in options.index])
    try:
        return opener(root, name)
    except FileNotFoundError:
        if not options.extensions or os.path.splitext(name)[1]:
            raise
        return _firstOf(opener, root, [name + each for each in options.extensions])


def _firstOf(opener: Opener, root: bytes, names: Sequence[bytes]) -> OpenFile:
    """Open the first existing file."""
    for name in names:
        try:
            return opener(root, name)
        except (IsDirectory, FileNotFoundError):
            continue
    raise FileNotFoundError(errno.ENOENT, "none of these files exists")


def _send(options: StaticOptions, res: Any, file: OpenFile) -> Any:
    """
    Send a file.

    @return: An awaitable for the rest, or C{None} if the response is complete.
    """
    try:
        if options.setHeaders is not None:
            options.setHeaders(res, os.fsdecode(file.name), file.status)
        if options.precompressed:
            res.vary("Accept-Encoding")
    except Exception:
        file.close()
        raise
    return replyWithFile(res, file, options.reply)


def _notServed(
    options: StaticOptions, req: Any, res: Any, next: Any, error: IsDirectory | OSError
) -> Any:
    """Respond if a file cannot be opened, or pass the request on."""
    if isinstance(error, IsDirectory) and options.redirect:
        # Two leading slashes, or backslashes, which browsers treat alike, would name another host.
        location = "/" + req.raw.path.decode("ascii").lstrip("/\\") + "/"
        if req.raw.queryString:
            location += "?" + req.raw.queryString.decode("ascii")
        res.redirect(301, location)
        return None
    refusal = httpErrorFor(error)
    if refusal is None:
        raise error
    return _refuse(options, next, refusal)


def _refuse(options: StaticOptions, next: Any, error: HTTPError) -> Any:
    return next() if options.fallthrough else next(error)
