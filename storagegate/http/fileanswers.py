"""Answers that are files: C{res.sendFile} and C{res.download}."""

import os
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from storagegate.http.disposition import contentDisposition
from storagegate.http.filereply import FileOptions, readOptions, replyWithFile
from storagegate.http.files import (
    IsDirectory,
    OpenFile,
    checkDotfiles,
    checkName,
    httpErrorFor,
    inThread,
    openBelow,
    openCached,
    readDotfiles,
    relativeName,
)
from storagegate.http.readyanswers import ReadyAnswers

FilePath = str | os.PathLike[str]


@frozen
class _Wanted:
    """
    A file that a handler wants to be sent.

    @ivar root: Where it has to be; L{None} for anywhere.
    @ivar headers: Fields that come with it.
    """

    path: str
    root: str | None
    dotfiles: str
    headers: Mapping[str, Any]
    options: FileOptions


class FileAnswers(ReadyAnswers):
    """Sends files."""

    def _failed(self, reason: Failure) -> None:
        """Take an error that no handler has."""
        raise NotImplementedError

    def sendFile(
        self,
        path: FilePath,
        root: FilePath | None = None,
        *,
        maxAge: float | str = 0,
        immutable: bool = False,
        cacheControl: bool = True,
        etag: bool = True,
        lastModified: bool = True,
        acceptRanges: bool = True,
        dotfiles: str = "ignore",
        headers: Mapping[str, Any] | None = None,
    ) -> Deferred[None]:
        """
        Send a file, or what of it the client needs: conditions and ranges are honoured.

        @param path: Absolute, or below C{root}, which neither it nor a link in it may leave.
        @param maxAge: How long it may be kept: milliseconds, or text such as C{"1d"}.
        @param immutable: Whether it never changes in that time.
        @param cacheControl: Whether to send C{Cache-Control} at all.
        @param dotfiles: What to do about names with a dot in front, of the file or a directory in
            C{path}: C{"ignore"} that they are there, C{"deny"} or C{"allow"} them.
        @param headers: Fields to set if there is such a file.
        @return: Fires when it has been sent, or the client has gone. Fails with
            L{HTTPError<storagegate.http.errors.HTTPError>}: 404 if there is no such file, 403,
            412, 416. If nobody waits for it, a failure goes the way of a handler's errors.
        @raise ValueError: If the path is relative and there is no root, or an option is none.
        """
        text = os.fspath(path)
        if root is None and not os.path.isabs(text):
            raise ValueError("the path of a file has to be absolute, or a root has to be given")
        wanted = _Wanted(
            text,
            None if root is None else os.path.abspath(root),
            readDotfiles(dotfiles),
            headers or {},
            readOptions(
                maxAge=maxAge,
                immutable=immutable,
                cacheControl=cacheControl,
                etag=etag,
                lastModified=lastModified,
                acceptRanges=acceptRanges,
            ),
        )
        return self._tell(Deferred.fromCoroutine(_send(self, wanted)))

    def download(
        self,
        path: FilePath,
        filename: str | None = None,
        root: FilePath | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Deferred[None]:
        """
        Send a file for the client to save.

        @param path: As of L{sendFile}, but a relative one without a root begins where the process
            runs.
        @param filename: The name to save it by; its own if none is given.
        @param options: Further ones of L{sendFile}.
        @return: As L{sendFile}. Where it fails, there is no C{Content-Disposition}.
        @raise ValueError: If the name has a control character, or an option is none.
        """
        text = os.fspath(path)
        kept = {
            name: value
            for name, value in (headers or {}).items()
            if name.lower() != "content-disposition"
        }
        kept["Content-Disposition"] = contentDisposition(filename or text)
        if root is None:
            text = os.path.abspath(text)
        return self.sendFile(text, root, headers=kept, **options)

    def _tell(self, sending: Deferred[None]) -> Deferred[None]:
        """Tell the handler what came of a file, or if it does not ask, whoever takes its errors."""
        sent: Deferred[None] = Deferred(lambda _: sending.cancel())

        def failed(reason: Failure) -> None:
            sent.errback(reason)
            # A handler that is still running cannot have asked yet.
            self.app.runtime.clock.callLater(0, unheard)

        def unheard() -> None:
            # Where Deferreds keep what they are about to complain of.
            trouble = sent._debugInfo
            if trouble is not None and trouble.failResult is not None:
                sent.addErrback(self._failed)

        sending.addCallbacks(sent.callback, failed)
        return sent


async def _send(res: FileAnswers, wanted: _Wanted) -> None:
    file = await _open(res, wanted)
    try:
        res.header(wanted.headers)
    except ValueError:
        file.close()
        raise
    try:
        rest = replyWithFile(res, file, wanted.options)
        if rest is not None:
            await rest
    except Exception:
        for name in wanted.headers:
            res.remove(name)
        raise


async def _open(res: FileAnswers, wanted: _Wanted) -> OpenFile:
    try:
        if wanted.root is None:
            checkName(wanted.path)
            root, text = None, wanted.path
        else:
            root, text = os.fsencode(wanted.root), relativeName(wanted.path).lstrip("/")
        checkDotfiles(text, wanted.dotfiles)
        name = os.fsencode(text)
        try:
            return openCached(root, name)
        except BlockingIOError:
            file: OpenFile = await inThread(res.app.runtime.run, openBelow, root, name)
            return file
    except (IsDirectory, OSError) as error:
        told = httpErrorFor(error)
        if told is None:
            raise
        raise told from error
