"""
What no request may look like.

After RFC 9112 sections 2.2, 3, 5, 6 and 7, and after the ways in which servers and proxies have
been found to read one message differently.
"""

from attrs import frozen

_END = b"\r\n\r\n"
_POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"


@frozen
class Case:
    """
    One of them.

    @ivar name: What is wrong with it.
    @ivar wire: What is sent.
    @ivar codes: The statuses that are right.
    """

    name: str
    wire: bytes
    codes: tuple[int, ...] = (400,)


def _get(field: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\n" + field + _END


def _line(line: bytes) -> bytes:
    return line + b"\r\nHost: x" + _END


def _post(*fields: bytes) -> bytes:
    return _POST + b"\r\n".join(fields) + _END + b"0\r\n\r\n"


def _chunks(body: bytes) -> bytes:
    return _CHUNKED + body


CORPUS = [
    # Request lines
    Case("HTTP/0.9", b"GET /\r\n"),
    Case("no version", _line(b"GET / ")),
    Case("HTTP/2.0", _line(b"GET / HTTP/2.0"), (505,)),
    Case("HTTP/1.2", _line(b"GET / HTTP/1.2"), (505,)),
    Case("HTTP/0.9 by name", _line(b"GET / HTTP/0.9"), (505,)),
    Case("version of two digits", _line(b"GET / HTTP/1.10")),
    Case("version without a dot", _line(b"GET / HTTP/11")),
    Case("lower-case version", _line(b"GET / http/1.1")),
    Case("another protocol", _line(b"GET / ICE/1.0")),
    Case("lower-case method", _line(b"get / HTTP/1.1"), (405,)),
    Case("mixed-case method", _line(b"Get / HTTP/1.1"), (405,)),
    Case("unknown method", _line(b"BREW / HTTP/1.1"), (405,)),
    Case("method with a control character", _line(b"GE\x01T / HTTP/1.1")),
    Case("method with a colon", _line(b"GET: / HTTP/1.1"), (405,)),
    Case("no method", _line(b" / HTTP/1.1")),
    Case("CONNECT", _line(b"CONNECT a:1 HTTP/1.1"), (405,)),
    Case("CONNECT in origin form", _line(b"CONNECT / HTTP/1.1"), (405,)),
    Case("TRACE", _line(b"TRACE / HTTP/1.1"), (405,)),
    Case("target without a slash", _line(b"GET ! HTTP/1.1")),
    Case("no target", _line(b"GET  HTTP/1.1")),
    Case("asterisk of GET", _line(b"GET * HTTP/1.1")),
    Case("authority as target", _line(b"GET x:80 HTTP/1.1")),
    Case("target of another scheme", _line(b"GET ftp://x/ HTTP/1.1")),
    Case("target with credentials", _line(b"GET http://a@b/ HTTP/1.1")),
    Case("target with no authority", _line(b"GET http:///a HTTP/1.1")),
    Case("target with a fragment", _line(b"GET /#a HTTP/1.1")),
    Case("target with a space", _line(b"GET /a b HTTP/1.1")),
    Case("target with a control character", _line(b"GET /\x01 HTTP/1.1")),
    Case("target with DEL", _line(b"GET /\x7f HTTP/1.1")),
    Case("target with NUL", _line(b"GET /\0 HTTP/1.1")),
    Case("target with a raw byte", _line(b"GET /\xe9 HTTP/1.1")),
    Case("two spaces", _line(b"GET  / HTTP/1.1")),
    Case("tabs", _line(b"GET\t/\tHTTP/1.1")),
    Case("space at the end", _line(b"GET / HTTP/1.1 ")),
    Case("space at the beginning", _line(b" GET / HTTP/1.1")),
    Case("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    Case("bare LF after the line", b"GET / HTTP/1.1\nHost: x\r\n\r\n"),
    Case("bare CR after the line", b"GET / HTTP/1.1\rHost: x\r\n\r\n"),
    Case("bare LF before the line", b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    Case("long path", _line(b"GET /" + b"a" * 8192 + b" HTTP/1.1"), (414,)),
    Case("long target", _line(b"GET /?" + b"a" * 16384 + b" HTTP/1.1"), (414,)),
    Case("target without an end", b"GET /" + b"a" * 17000, (414,)),
    # Header fields
    Case("no Host", b"GET / HTTP/1.1\r\n\r\n"),
    Case("no Host beside an absolute target", b"GET http://x/ HTTP/1.1\r\n\r\n"),
    Case("two Hosts", _get(b"Host: y")),
    Case("two equal Hosts", _get(b"host: x")),
    Case("Host with a path", b"GET / HTTP/1.1\r\nHost: a b/c\r\n\r\n"),
    Case("Host list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    Case("Host with credentials", b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
    Case("Host with a word as port", b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"),
    Case("continued field", _get(b"A: b\r\n c")),
    Case("field continued by a tab", _get(b"A: b\r\n\tc")),
    Case("continued first field", b"GET / HTTP/1.1\r\n Host: x\r\n\r\n"),
    Case("continued Transfer-Encoding", _post(b"Transfer-Encoding:\r\n chunked")),
    Case("Transfer-Encoding split in two", _post(b"Transfer-Encoding: chu\r\n nked")),
    Case("space before the colon", _get(b"A : b")),
    Case("tab before the colon", _get(b"A\t: b")),
    Case("Content-Length, space before the colon", _post(b"Content-Length : 5")),
    Case("empty name", _get(b": b")),
    Case("name with a space", _get(b"A b: c")),
    Case("name with a raw byte", _get(b"\xe9: c")),
    Case("name with a control character", _get(b"A\x01: c")),
    Case("name with a bracket", _get(b"A(b): c")),
    Case("no colon", _get(b"Abc")),
    Case("NUL in a value", _get(b"A: b\0c")),
    Case("control character in a value", _get(b"A: \x01")),
    Case("DEL in a value", _get(b"A: \x7f")),
    Case("vertical tab in a value", _get(b"A: b\x0bc")),
    Case("bare CR in a value", _get(b"A: b\rc")),
    Case("bare CR at the end of a value", _get(b"A: b\r\r\nC: d")),
    Case("bare LF in a value", _get(b"A: b\nC: d")),
    Case("bare LF at the end of the head", b"GET / HTTP/1.1\r\nHost: x\n\n"),
    Case("LF CR", b"GET / HTTP/1.1\r\nHost: x\n\r\n\r\n"),
    Case("many fields", _get(b"\r\n".join([b"A: b"] * 500)), (431,)),
    Case("one field too many", _get(b"\r\n".join([b"A: b"] * 100)), (431,)),
    Case("long field", _get(b"A: " + b"a" * 16384), (431,)),
    Case("long fields without an end", _get(b"A: " + b"a" * 20000)[:-4], (431,)),
    # Expectations
    Case("unknown expectation", _get(b"Expect: banana"), (417,)),
    Case("two expectations", _get(b"Expect: 100-continue, banana"), (417,)),
    # Lengths
    Case("two lengths", _post(b"Content-Length: 5", b"Content-Length: 6")),
    Case("two equal lengths", _post(b"Content-Length: 5", b"Content-Length: 5")),
    Case("list of lengths", _post(b"Content-Length: 5, 5")),
    Case("signed length", _post(b"Content-Length: +5")),
    Case("negative length", _post(b"Content-Length: -5")),
    Case("hexadecimal length", _post(b"Content-Length: 0x5")),
    Case("length with an underscore", _post(b"Content-Length: 1_0")),
    Case("empty length", _post(b"Content-Length:")),
    Case("length with a space", _post(b"Content-Length: 1 0")),
    Case("length in another script", _post("Content-Length: \u0665".encode())),
    Case("length with a fraction", _post(b"Content-Length: 5.0")),
    Case("length of 2**63", _post(b"Content-Length: 9223372036854775808")),
    Case("length of 20 digits", _post(b"Content-Length: " + b"9" * 20)),
    Case("length of 5000 digits", _post(b"Content-Length: " + b"9" * 5000)),
    # Transfer codings
    Case("length, then coding", _post(b"Content-Length: 5", b"Transfer-Encoding: chunked")),
    Case("coding, then length", _post(b"Transfer-Encoding: chunked", b"Content-Length: 5")),
    Case("two codings", _post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
    Case("identity", _post(b"Transfer-Encoding: identity"), (400, 501)),
    Case("identity and length", _post(b"Transfer-Encoding: identity", b"Content-Length: 5")),
    Case("gzip, chunked", _post(b"Transfer-Encoding: gzip, chunked"), (400, 501)),
    Case("chunked, identity", _post(b"Transfer-Encoding: chunked, identity"), (400, 501)),
    Case("unknown coding", _post(b"Transfer-Encoding: xchunked"), (400, 501)),
    Case("empty coding", _post(b"Transfer-Encoding:"), (400, 501)),
    Case("quoted coding", _post(b'Transfer-Encoding: "chunked"'), (400, 501)),
    Case("coding after a no-break space", _post(b"Transfer-Encoding: \xa0chunked"), (400, 501)),
    Case("coding after a vertical tab", _post(b"Transfer-Encoding: \x0bchunked")),
    Case("coding before a vertical tab", _post(b"Transfer-Encoding: chunked\x0b")),
    Case("coding in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    # Chunks
    Case("chunk size of a letter", _chunks(b"x\r\n")),
    Case("empty chunk size", _chunks(b"\r\n")),
    Case("signed chunk size", _chunks(b"+1\r\na\r\n0\r\n\r\n")),
    Case("negative chunk size", _chunks(b"-1\r\n")),
    Case("prefixed chunk size", _chunks(b"0x1\r\na\r\n0\r\n\r\n")),
    Case("chunk size with an underscore", _chunks(b"1_0\r\n")),
    Case("chunk size after a space", _chunks(b" 1\r\na\r\n0\r\n\r\n")),
    Case("chunk size before a space", _chunks(b"1 \r\na\r\n0\r\n\r\n")),
    Case("chunk size of 17 digits", _chunks(b"f" * 17 + b"\r\n")),
    Case("chunk size of 2**64 - 1", _chunks(b"f" * 16 + b"\r\n")),
    Case("chunk size, bare LF", _chunks(b"1\na\r\n0\r\n\r\n")),
    Case("chunk size, bare CR", _chunks(b"1\ra\r\n0\r\n\r\n")),
    Case("chunk extension, bare LF", _chunks(b"1;a\nb\r\n")),
    Case("chunk extension, bare CR", _chunks(b"1;a\rb\r\na\r\n0\r\n\r\n")),
    Case("chunk extension, NUL", _chunks(b"1;a\0\r\na\r\n0\r\n\r\n")),
    Case("long chunk extension", _chunks(b"1;" + b"a" * 20000 + b"\r\na\r\n0\r\n\r\n")),
    Case("chunk longer than its size", _chunks(b"1\r\nab\r\n0\r\n\r\n")),
    Case("chunk ending in bare LF", _chunks(b"1\r\na\n0\r\n\r\n")),
    Case("chunk ending in bare CR", _chunks(b"1\r\na\r0\r\n\r\n")),
    Case("request as trailer", _chunks(b"0\r\nXXGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")),
    Case("trailer, space before the colon", _chunks(b"0\r\nA : b\r\n\r\n")),
    Case("continued trailer", _chunks(b"0\r\nA: b\r\n c\r\n\r\n")),
    Case("trailer, bare LF", _chunks(b"0\r\nA: b\n\r\n")),
    Case("trailer with a control character", _chunks(b"0\r\nA: \x01\r\n\r\n")),
    Case("long trailer", _chunks(b"0\r\nA: " + b"b" * 9000 + b"\r\n\r\n")),
    Case("many trailers", _chunks(b"0\r\n" + b"A: b\r\n" * 2000 + b"\r\n")),
]
"""All of them. Each is answered once, with a 4xx or 5xx; the connection closes; nothing runs."""
