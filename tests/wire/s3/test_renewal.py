"""Clients that renew their temporary keys while they run: botocore's and aws-cli's providers."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.clients import REGION, ROOT
from tests.support.daemon import Daemon
from tests.support.faketime import MISSING, FakeTime
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory
from tests.wire.s3.test_sts import trust
from tests.wire.s3.test_webidentity import WITH_WEB_IDENTITY, WebIdentityCase

MINUTE = 60

PIECE = 9 << 20
"""More than aws-cli uploads in one part, in bytes."""

PROGRAM = """
import sys
from botocore.exceptions import ClientError
from botocore.session import Session

session = Session(profile=sys.argv[1])
s3 = session.create_client("s3")
found = [session.get_credentials().get_frozen_credentials()]
for line in sys.stdin:
    if line == "first\\n":
        key, secret, token = found[0][:3]
        made = session.create_client(
            "s3", aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token
        )
        try:
            made.list_objects_v2(Bucket=sys.argv[2])
            print("accepted", flush=True)
        except ClientError as error:
            print(error.response["Error"]["Code"], flush=True)
        continue
    s3.put_object(Bucket=sys.argv[2], Key=line.strip(), Body=b"x")
    print(session.get_credentials().get_frozen_credentials().access_key, flush=True)
"""


@long("runs libfaketime and aws-cli")
class RenewalTests(WebIdentityCase):
    """One clock for the daemon and the client, which passes the ends of sessions."""

    skip = MISSING or None

    def startDaemon(self) -> Daemon:
        """Start a daemon with the clock."""
        directory = ownDirectory("renewal")
        self.clock = FakeTime(directory / "clock")
        daemon = makeDaemon(directory / "data", **self.clock.environment)
        self.addCleanup(daemon.kill)
        return daemon.start()

    def setUp(self) -> None:
        """Make two roles that may write to a bucket, and a profile for each."""
        super().setUp()
        self.bucket = self.makeBucket()
        root = self.client(ROOT, "iam")
        provider = root.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )["OpenIDConnectProviderArn"]
        arns = {}
        for name, document in (
            ("work", trust({"AWS": f"arn:aws:iam::{self.account}:root"})),
            ("web", trust({"Federated": provider}, WITH_WEB_IDENTITY)),
        ):
            made = root.create_role(RoleName=name, AssumeRolePolicyDocument=document)
            root.attach_role_policy(
                RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess"
            )
            arns[name] = made["Role"]["Arn"]
        self.home = self.makeDirectory("home")
        self.tokenFile = self.home / "token"
        (self.home / "config").write_text(
            f"[profile base]\naws_access_key_id={self.ann.accessKey}\n"
            f"aws_secret_access_key={self.ann.secretKey}\n"
            f"[profile work]\nrole_arn={arns['work']}\nsource_profile=base\n"
            f"[profile web]\nrole_arn={arns['web']}\nrole_session_name=pod\n"
            f"web_identity_token_file={self.tokenFile}\n"
        )
        self.passTo(0)

    def passTo(self, minutes: int) -> None:
        """Set the clock, and give the client a token that is valid for a few minutes."""
        self.clock.set(minutes * MINUTE)
        token = self.token(exp=int(time.time()) + (minutes + 5) * MINUTE)
        written = self.tokenFile.with_suffix(".new")
        written.write_text(token)
        os.replace(written, self.tokenFile)

    @contextmanager
    def running(self, *command: str | Path) -> Iterator[Any]:
        """Run a client."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "AWS_CONFIG_FILE": str(self.home / "config"),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            **self.clock.environment,
        }
        errors = self.home / "errors"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [str(each) for each in command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            self.assertEqual(process.wait(120), 0, errors.read_text())
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def renew(self, profile: str) -> None:
        """Renew the keys of a program before their end, and after it."""
        with self.running(sys.executable, "-c", PROGRAM, profile, self.bucket) as process:

            def ask(text: str) -> str:
                process.stdin.write(f"{text}\n".encode())
                process.stdin.flush()
                found: str = process.stdout.readline().decode().strip()
                self.assertTrue(found, (self.home / "errors").read_text())
                return found

            first, same = ask("a"), ask("b")
            self.assertEqual(first, same)
            self.passTo(50)
            second = ask("c")
            self.passTo(200)
            self.assertEqual(len({first, second, ask("d")}), 3)
            self.assertEqual(ask("first"), "ExpiredToken")

    def test_assumeRole(self) -> None:
        """botocore's provider of a profile with a role."""
        self.renew("work")

    def test_webIdentity(self) -> None:
        """botocore's provider of a file with a token, which is read again."""
        self.renew("web")

    def upload(self, profile: str) -> None:
        """Let aws-cli upload a stream in parts, whose keys end between them."""
        program = needProgram("aws")
        target = f"s3://{self.bucket}/stream"
        with self.running(program, "s3", "cp", "-", target, "--profile", profile) as process:
            process.stdin.write(bytes(PIECE))
            process.stdin.flush()

            def hasPart() -> bool:
                uploads = self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
                return any(
                    self.s3.list_parts(
                        Bucket=self.bucket, Key="stream", UploadId=each["UploadId"]
                    ).get("Parts")
                    for each in uploads
                )

            self.assertTrue(eventually(hasPart), (self.home / "errors").read_text())
            self.passTo(200)
            process.stdin.write(bytes(PIECE))
        found = self.send(Outgoing("HEAD", f"/{self.bucket}/stream", ROOT.plainHeaders()))
        self.assertEqual(found.status, 200)
        self.assertEqual(found.headers["content-length"], str(2 * PIECE))
        [cached] = (self.home / ".aws" / "cli" / "cache").glob("*.json")
        expiration = json.loads(cached.read_text())["Credentials"]["Expiration"]
        ends = time.time() + 200 * MINUTE
        self.assertGreater(expiration, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends)))

    def test_awscliAssumeRole(self) -> None:
        """aws-cli with a profile with a role."""
        self.upload("work")

    def test_awscliWebIdentity(self) -> None:
        """aws-cli with a profile with a file with a token."""
        self.upload("web")
