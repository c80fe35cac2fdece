"""TLS sessions of real clients, which connect again: OpenSSL's own, and Python's."""

import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.certificates import Authority
from tests.support.selection import long
from tests.support.servedprogram import ServedProgram

PROGRAM = """
import os
from storagegate import server
from storagegate.net.tls import ServerTLSOptions

app = server.http()
app.get("/", lambda req, res: res.send(f"process {{os.getpid()}}"))
app.tls = ServerTLSOptions(**{options!r})
app.run(0, "127.0.0.1"{more})
"""

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

NEW, REUSED = "New, TLSv", "Reused, TLSv"


class SessionCase(SynchronousTestCase):
    """A program with TLS."""

    def setUp(self) -> None:
        """Have an authority and a pair."""
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder)
        self.pair = self.authority.issue(file="own")

    def start(self, more: str = "", **options: Any) -> None:
        """Start the program."""
        given = {"cert": str(self.pair[0]), "key": str(self.pair[1]), **options}
        source = self.folder / "program.py"
        source.write_text(PROGRAM.format(options=given, more=more))
        self.program = ServedProgram(self, self.folder, str(source))
        self.port = self.program.port()

    def openssl(self, *arguments: str) -> str:
        """Make a request by C{openssl s_client}; return its report and the response."""
        return subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-ign_eof", *arguments],
            input=REQUEST,
            capture_output=True,
            timeout=60,
            cwd=self.folder,
        ).stdout.decode("utf-8", "replace")

    def connect(self, context: ssl.SSLContext, session: Any) -> tuple[Any, bool, str]:
        """Make a request by Python; return the session, whether it was resumed, and the body."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 60) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as client,
        ):
            client.sendall(REQUEST)
            response = b""
            while received := client.recv(65536):
                response += received
            self.assertEqual(response[:15], b"HTTP/1.1 200 OK")
            body = response.partition(b"\r\n\r\n")[2].decode()
            return client.session, client.session_reused or False, body


class OpenSSLTests(SessionCase):
    """The client of OpenSSL."""

    def test_resumed(self) -> None:
        """It resumes the session in both versions, and gets no early data to send."""
        self.start()
        for version in ("-tls1_3", "-tls1_2"):
            file = f"session{version}"
            first = self.openssl(version, "-sess_out", file)
            self.assertIn(NEW, first)
            for _ in range(2):
                again = self.openssl(version, "-sess_in", file, "-sess_out", file)
                self.assertIn(REUSED, again)
                self.assertIn("process ", again)
            if version == "-tls1_3":
                self.assertIn("Max Early Data: 0", again)
                self.assertIn("Early data was not sent", again)
        self.assertEqual(self.openssl("-tls1_2", "-reconnect").count(REUSED), 5)

    def test_algorithms(self) -> None:
        """Of two certificates it gets the one for its signature algorithms."""
        other = self.authority.issue(file="rsa", isRSA=True)
        pairs = (other, self.pair)
        self.start(cert=[str(each[0]) for each in pairs], key=[str(each[1]) for each in pairs])
        for version in ("-tls1_3", "-tls1_2"):
            self.assertIn("signature type: ECDSA", self.openssl(version))
            old = self.openssl(version, "-sigalgs", "RSA-PSS+SHA256:RSA+SHA256")
            self.assertIn("signature type: RSA", old)

    def test_clientCertificate(self) -> None:
        """A session of a client with a certificate is resumed; one without is refused."""
        self.start(ca=str(self.authority.path))
        own = self.authority.issue("caller")
        for version in ("-tls1_3", "-tls1_2"):
            file = f"session{version}"
            pair = (version, "-cert", str(own[0]), "-key", str(own[1]))
            self.assertIn(NEW, self.openssl(*pair, "-sess_out", file))
            self.assertIn(REUSED, self.openssl(*pair, "-sess_in", file))
            self.assertNotIn("process ", self.openssl(version))

    def test_removedAuthority(self) -> None:
        """No session outlives the authority of its client, though only that file has changed."""
        other = Authority(self.folder, "other")
        trusted = self.folder / "trusted.pem"
        own, theirs = self.authority.issue("caller"), other.issue("newcomer")
        for version in ("-tls1_3", "-tls1_2"):
            trusted.write_bytes(self.authority.path.read_bytes())
            if version == "-tls1_3":
                self.start(ca=str(trusted))
            file = f"session{version}"
            pair = (version, "-cert", str(own[0]), "-key", str(own[1]))
            self.assertIn("process ", self.openssl(*pair, "-sess_out", file))
            self.assertIn(REUSED, self.openssl(*pair, "-sess_in", file))
            trusted.write_bytes(other.path.read_bytes())
            for more in (("-sess_in", file), ()):
                refused = self.openssl(*pair, *more)
                self.assertNotIn(REUSED, refused)
                self.assertNotIn("process ", refused)
            named = (version, "-cert", str(theirs[0]), "-key", str(theirs[1]))
            self.assertIn("process ", self.openssl(*named))


class ProgramTests(SessionCase):
    """The client of Python."""

    def test_renewed(self) -> None:
        """A session ends with the certificate under which it began."""
        self.start()
        context = ssl.create_default_context(cafile=str(self.authority.path))
        session = None
        found = []
        for number in range(6):
            if number == 3:
                fresh = self.authority.issue(file="fresh")
                os.replace(fresh[1], self.pair[1])
                os.replace(fresh[0], self.pair[0])
            session, isResumed, _ = self.connect(context, session)
            found.append(isResumed)
        self.assertEqual(found, [False, True, True, False, True, True])

    @long("starts three processes")
    def test_workers(self) -> None:
        """
        Each of several workers resumes its own sessions; the session of another one becomes a full
        handshake, not an error.
        """
        self.start(", workers=2")
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            context = ssl.create_default_context(cafile=str(self.authority.path))
            context.minimum_version = context.maximum_version = version
            sessions: dict[str, Any] = {}
            latest = None
            # The kernel chooses the worker: 2 of 100 connections at random reach both.
            for _ in range(100):
                session, isResumed, process = self.connect(context, latest and sessions[latest])
                self.assertEqual(isResumed, process == latest)
                sessions[process] = session
                latest = process
                if len(sessions) == 2:
                    break
            for _ in range(20):
                given = latest
                session, isResumed, latest = self.connect(context, sessions[str(given)])
                self.assertEqual(isResumed, latest == given)
                sessions[latest] = session
