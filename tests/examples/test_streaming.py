"""The streams of C{examples/streaming.py}, over sockets that read or do not."""

import http.client
import json
import re
import signal
import socket
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.application import DEFAULT_GRACE_MS
from tests.examples.support import Example
from tests.support.http import REQUEST_SECONDS, connect, getJSON
from tests.support.selection import long

# Asked so often that a producer which went on would have been seen to.
LOOKS = 50

# What a stop gives requests to end in that do not say otherwise.
GRACE_SECONDS = DEFAULT_GRACE_MS / 1000


class StreamingTests(SynchronousTestCase):
    """What a client sees that reads, stops reading, or goes away."""

    def setUp(self) -> None:
        """Start the example."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.example = Example("streaming", directory)
        self.addCleanup(self.example.kill)
        self.example.start()

    def open(self, path: str, headers: Mapping[str, str] = {}) -> http.client.HTTPResponse:
        """Begin to read something; closing the response is to go away."""
        connection = connect(self.example.place)
        # Else the connection would stay for further requests.
        connection.request("GET", path, headers={"Connection": "close", **headers})
        response = connection.getresponse()
        self.addCleanup(response.close)
        return response

    def readers(self) -> Any:
        """Give the example's own list of who is reading."""
        return getJSON(self.example.place, "/readers")[1]

    def untilNobodyReads(self) -> None:
        """Wait until the example has noticed that its readers are gone."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while self.readers():
            self.assertLess(time.monotonic(), deadline, "somebody is still reading")

    def test_page(self) -> None:
        """The page shows the events of the clock."""
        response = self.open("/")
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")
        self.assertIn(b'new EventSource("/clock")', response.read())

    @long("takes seconds")
    def test_clock(self) -> None:
        """Each event arrives when it happens, compressed or not."""
        response = self.open("/clock")
        self.assertEqual(response.headers["content-type"], "text/event-stream; charset=utf-8")
        for _ in range(2):
            self.assertRegex(response.readline(), rb"data: \d\d:\d\d:\d\d\n")
            self.assertEqual(response.readline(), b"\n")
        response = self.open("/clock", {"Accept-Encoding": "gzip"})
        self.assertEqual(response.headers["content-encoding"], "gzip")
        inflate, events = zlib.decompressobj(wbits=31), b""
        while events.count(b"\n\n") < 2:
            events += inflate.decompress(response.read1())
        self.assertTrue(re.fullmatch(rb"(data: \d\d:\d\d:\d\d\n\n){2}", events), events)

    @long("takes seconds")
    def test_numbers(self) -> None:
        """The numbers come one after the other; when the client leaves, so does its reader."""
        response = self.open("/numbers")
        self.assertEqual(response.headers["content-type"], "application/x-ndjson")
        for number in range(100_000):
            self.assertEqual(json.loads(response.readline()), {"number": number})
        self.assertEqual([reader["address"] for reader in self.readers()], ["127.0.0.1"])
        response.close()
        self.untilNobodyReads()

    def test_slowReader(self) -> None:
        """A client that does not read makes the numbers wait, and goes on where they stopped."""
        client = socket.create_connection(self.example.place, REQUEST_SECONDS)
        self.addCleanup(client.close)
        client.sendall(b"GET /numbers HTTP/1.1\r\nHost: localhost\r\n\r\n")
        last, looks, deadline = None, 0, time.monotonic() + REQUEST_SECONDS
        while looks < LOOKS:
            self.assertLess(time.monotonic(), deadline, "the numbers do not wait")
            number = [reader["number"] for reader in self.readers()]
            last, looks = number, looks + 1 if number and number == last else 0
        waiting = last[0]
        received = b""
        while b'{"number": %d}' % (waiting + 1) not in received[-100_000:]:
            received += client.recv(65536)
        self.assertLess(len(received), 20_000_000)
        client.close()
        self.untilNobodyReads()

    def test_upload(self) -> None:
        """An upload is counted piece by piece, with a length or without one."""
        whole = bytes(3_000_000)
        for body in (whole, (whole[at : at + 10_000] for at in range(0, len(whole), 10_000))):
            connection = connect(self.example.place)
            connection.request("PUT", "/upload", body)
            told = json.loads(connection.getresponse().read())
            connection.close()
            self.assertEqual(told["bytes"], 3_000_000)
            self.assertGreater(told["pieces"], 1)

    def test_stop(self) -> None:
        """A stop does not wait for streams that never end."""
        self.open("/numbers").readline()
        self.open("/clock").readline()
        self.example.signal(signal.SIGTERM)
        self.assertEqual(self.example.wait(GRACE_SECONDS - 1), 0)
