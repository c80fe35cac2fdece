"""Browser forms: the C{multipart/form-data} bodies that POST uploads send."""

from collections.abc import Iterable, Mapping

from tests.support.s3signer import Outgoing

BOUNDARY = "----a-boundary-of-the-tests"


def formPart(name: str, value: bytes, filename: str | None = None) -> bytes:
    """Write one field of a form."""
    disposition = f'form-data; name="{name}"'
    if filename is not None:
        disposition += f'; filename="{filename}"\r\nContent-Type: application/x-in-the-part'
    head = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


def formOf(bucket: str, parts: Iterable[bytes]) -> Outgoing:
    """Make the request that sends these fields."""
    body = b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])
    content = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return Outgoing("POST", f"/{bucket}", content, body)


def formRequest(
    bucket: str, fields: Mapping[str, str], file: bytes, filename: str = "f.bin"
) -> Outgoing:
    """Make the request that a browser sends: the fields, and the file as the last."""
    named = [formPart(name, value.encode()) for name, value in fields.items()]
    return formOf(bucket, [*named, formPart("file", file, filename)])
