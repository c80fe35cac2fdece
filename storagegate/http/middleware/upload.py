"""
Files in multipart forms, as C{multer} takes them.

A file goes to the disk as it comes, under a random name. Text fields are in C{req.body}, nested
by the brackets in their names (see L{storagegate.http.fieldtree}). Once the next handler runs, the
files belong to the application; if it does not come to that, they are gone.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from storagegate.core.optionvalues import OptionError
from storagegate.http.errors import HTTPError
from storagegate.http.uploading import FileFilter, UploadReader, UploadRules
from storagegate.http.uploadlimits import readLimits
from storagegate.http.uploadstores import DirectoryStore, MemoryStore, UploadedFile
from storagegate.net.httperrors import BodyLost, ClientLost

Middleware = Callable[[Any, Any, Callable[..., Any]], Any]


class Upload:
    """
    A way to take uploads; its methods make the middleware for a route.

    A request that is no multipart form passes untouched.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str] | None,
        limits: Mapping[str, Any],
        fileFilter: FileFilter | None,
    ) -> None:
        if fileFilter is not None and not callable(fileFilter):
            raise OptionError("the upload option fileFilter is a function (req, file, cb)")
        self._limits = readLimits(limits)
        self._filter = fileFilter
        self._directory = None if dest is None else os.fspath(dest)
        if self._directory is not None:
            os.makedirs(self._directory, exist_ok=True)

    def single(self, field: str) -> Middleware:
        """Take one file of one field, into C{req.file}."""
        return self._make({_fieldName(field): 1}, _setFile)

    def array(self, field: str, n: int | None = None) -> Middleware:
        """Take up to C{n} files of one field, into the list C{req.files}."""
        return self._make({_fieldName(field): _maximum(n)}, _setList)

    def fields(self, fields: Sequence[Mapping[str, Any]]) -> Middleware:
        """
        Take files of several fields, into lists by field in C{req.files}.

        @param fields: Mappings with C{name} and perhaps C{maxCount}.
        """
        allowed: dict[str, int | None] = {}
        for entry in fields:
            unknown = entry.keys() - {"name", "maxCount"}
            if unknown:
                raise OptionError(f"an upload field has name and maxCount, no {sorted(unknown)}")
            allowed[_fieldName(entry.get("name"))] = _maximum(entry.get("maxCount"))
        return self._make(allowed, _setLists)

    def none(self) -> Middleware:
        """Take text fields only."""
        return self._make({}, _setNothing)

    def any(self) -> Middleware:
        """Take files of whatever fields, into the list C{req.files}."""
        return self._make(None, _setList)

    def _make(
        self,
        allowed: Mapping[str, int | None] | None,
        setFiles: Callable[[Any, list[UploadedFile]], None],
    ) -> Middleware:
        rules = UploadRules(self._limits, self._filter, allowed)

        def takeUpload(req: Any, res: Any, next: Callable[..., Any]) -> Any:
            kind = req.get("content-type") or ""
            if not kind.lstrip().lower().startswith("multipart/") or not req.hasBody:
                return next()
            return self._receive(req, rules, setFiles, next)

        return takeUpload

    async def _receive(
        self,
        request: Any,
        rules: UploadRules,
        setFiles: Callable[[Any, list[UploadedFile]], None],
        next: Callable[[], Awaitable[None]],
    ) -> None:
        coding = (request.get("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            message = "A compressed upload is not supported"
            raise HTTPError(415, message, "encoding.unsupported", encoding=coding)
        directory = self._directory
        if directory is None:
            reader = UploadReader(request, rules, MemoryStore(), holdsFiles=True)
        else:
            store = DirectoryStore(request.app.runtime.run, directory)
            reader = UploadReader(request, rules, store, holdsFiles=False)
        try:
            await reader.read()
        except GeneratorExit:
            # Nobody runs this any more: the files go all the same, while nobody waits.
            reader.store.discard()
            raise
        except Exception as error:
            await reader.store.discard()
            if not isinstance(error, BodyLost | ClientLost):
                await _readOn(request, reader.received)
            raise
        request.body = reader.fields.build()
        setFiles(request, reader.files)
        await next()


async def _readOn(request: Any, received: int) -> None:
    """
    Read what else a client is sending whose upload was refused.

    Most clients read no answer before they have sent everything, and take a connection that is
    closed before that for an error of the network. What an application takes of any body is read;
    a client that declares more, or has asked before it sends, is answered at once.

    @raise BodyLost: If there is nobody left to answer.
    """
    bound: int = request.app.settings.wholeBodySize
    length = request.contentLength
    if length is not None and length - received > bound:
        return
    if not received and request.get("expect"):
        return
    async for chunk in request.lean.body:
        bound -= len(chunk)
        if bound < 0:
            return


def _setFile(request: Any, files: list[UploadedFile]) -> None:
    request.file = files[0] if files else None


def _setList(request: Any, files: list[UploadedFile]) -> None:
    request.files = files


def _setLists(request: Any, files: list[UploadedFile]) -> None:
    byField: dict[str, list[UploadedFile]] = {}
    for file in files:
        byField.setdefault(file.fieldname, []).append(file)
    request.files = byField


def _setNothing(request: Any, files: list[UploadedFile]) -> None: ...


def _fieldName(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise OptionError("an upload field has a name")
    return name


def _maximum(count: Any) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise OptionError("the most files that an upload field may have is a whole number")
    return count


def upload(
    dest: str | os.PathLike[str] | None = None,
    limits: Mapping[str, Any] = {},
    fileFilter: FileFilter | None = None,
) -> Upload:
    """
    Make a way to take uploads.

    @param dest: The directory that files go to, made if need be. Without one they are in memory.
    @param limits: See L{UploadLimits<storagegate.http.uploadlimits.UploadLimits>}.
    @param fileFilter: C{fileFilter(req, file, cb)} decides about each file: it calls C{cb(error,
        accept)}, now or later, or gives a bool, perhaps as a coroutine. Reading waits for it.
        C{cb(error, None)} refuses the request, C{cb(None, False)} skips the file.
    @raise OptionError: If a limit is unknown or has no value.
    """
    return Upload(dest, limits, fileFilter)
