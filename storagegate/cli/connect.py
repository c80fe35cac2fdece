"""
C{storagegate connect}: the settings for an S3 client, and the files that hold them.

The access key, the endpoint and the region come from the flags, the environment or a profile, as
for aws-cli; the daemon supplies the endpoint and the region otherwise. The secret key is printed
only on request, because a terminal keeps its output.
"""

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from attrs import frozen

from storagegate.cli.awssettings import AWSSettings
from storagegate.cli.daemonclient import apiOf, localListeners
from storagegate.cli.invocation import MISUSED, CommandError, Invocation
from storagegate.core.addresses import schemeOf
from storagegate.daemon.config import Configuration
from storagegate.net.endpoints import ENCRYPTED

_ACCESS_KEY, _SECRET_KEY = "ACCESS-KEY", "SECRET-KEY"
"""Placeholders for an unknown half of the pair."""

_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@frozen
class ClientAccess:
    """
    The settings of a client.

    @ivar bucket: The bucket of the examples.
    """

    endpoint: str
    region: str
    accessKey: str
    secretKey: str
    bucket: str


@frozen
class Snippet:
    """
    A text and its place.

    @ivar place: The path of a file; C{shell} for commands of a shell.
    """

    place: str
    text: str


def connect(invocation: Invocation) -> int:
    """Print the settings of a client."""
    options = invocation.options
    pair = invocation.credentials
    if options.with_secret and pair is None:
        raise CommandError("--with-secret: no key pair is set", MISUSED)
    if options.with_secret and pair is not None and pair.sessionToken:
        # Most clients have another place for the token, and the daemon issues none.
        raise CommandError("--with-secret: the key pair has a session token", MISUSED)
    given = None if pair is None else pair.accessKey
    if options.with_secret and options.accessKey not in (None, given):
        raise CommandError("--with-secret: the pair has another --access-key", MISUSED)
    endpoint, region = _service(invocation)
    access = ClientAccess(
        endpoint=endpoint,
        region=region,
        accessKey=options.accessKey or given or _ACCESS_KEY,
        secretKey=pair.secretKey if options.with_secret and pair is not None else _SECRET_KEY,
        bucket=options.bucket,
    )
    parts = list(_TOOLS[options.tool](access))
    document = {
        "tool": options.tool,
        "endpoint": endpoint,
        "region": region,
        "accessKey": access.accessKey,
        "parts": [{"place": each.place, "text": each.text} for each in parts],
    }
    invocation.output.result(document, _lines(parts))
    return 0


def _lines(parts: list[Snippet]) -> Iterator[str]:
    for part in parts:
        yield f"# {'in a shell' if part.place == 'shell' else part.place}"
        yield from part.text.splitlines()
        yield ""


def _service(invocation: Invocation) -> tuple[str, str]:
    """
    Return the URL of S3 and its region.

    @raise CommandError: The URL is unknown.
    """
    options = invocation.options
    given = options.endpoint or invocation.amazon(AWSSettings.endpoint)
    if invocation.isRemote:
        api = apiOf(invocation)
        values = {row["key"]: row["value"] for row in api.get("config")}
        s3 = str(values["s3"] or "")
        # The listener is on that machine; a different host must be configured.
        configured = (
            given or values.get("s3Url") or _ofDescription(s3, urlsplit(api.url).hostname or "")
        )
        region = values["region"]
    else:
        configured, region = _local(invocation.configuration)
        configured = given or configured
    wanted = options.region or invocation.amazon(AWSSettings.region)
    if wanted and wanted != region:
        invocation.output.note(
            f"storagegate: the region is {wanted}, but the daemon accepts only {region}"
        )
    region = wanted or region
    if not configured:
        raise CommandError("the URL of S3 is unknown: use --endpoint URL, or set the key s3Url")
    return checkedAddress(str(configured).rstrip("/")), checkedAddress(str(region))


def _local(configuration: Configuration) -> tuple[str, str]:
    """
    Return the URL of S3 on this machine and its region: of the running daemon, otherwise of the
    configuration. The URL is empty if it is unknown.
    """
    running = localListeners(configuration)
    if running is None:
        values = dict(configuration.values)
        url = values.get("s3Url") or _ofDescription(values["s3"] or "", "")
        return str(url), configuration.s3.region
    listener = running.listeners.get("s3")
    return running.s3Url or (listener and listener.url) or "", running.region


def checkedAddress(text: str) -> str:
    """
    Validate a URL or a region for use in shell commands.

    @raise CommandError: The text has other characters, which a remote daemon may have sent.
    """
    if not re.fullmatch(r"[A-Za-z0-9._~:/%@\[\]-]+", text):
        raise CommandError(f"invalid URL of S3 or region: {text!a}")
    return text


def _ofDescription(description: str, machine: str) -> str:
    """
    Return the URL of a listener; empty if its description does not determine it.

    @param machine: The host of a listener on all addresses.
    """
    fields = description.split(":")
    port = next((each for each in fields[1:] if each.isdecimal()), "0")
    named = [each.removeprefix("port=") for each in fields if each.startswith("port=")]
    port = named[0] if named else port
    isEncrypted = description.startswith(ENCRYPTED)
    if not (isEncrypted or description.startswith("tcp:")) or not int(port):
        return ""
    interface = re.search(r"interface=((?:\\:|[^:])+)", description)
    host = interface.group(1).replace("\\:", ":") if interface else ""
    host = machine if machine and host in _WILDCARDS else _WILDCARDS.get(host, host)
    scheme = schemeOf(isEncrypted)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _variables(access: ClientAccess) -> str:
    return (
        f"export AWS_ACCESS_KEY_ID='{access.accessKey}'\n"
        f"export AWS_SECRET_ACCESS_KEY='{access.secretKey}'\n"
        f"export AWS_DEFAULT_REGION='{access.region}'\n"
    )


def _aws(access: ClientAccess) -> Iterator[Snippet]:
    """Settings for aws-cli 2.13 and newer, and for all tools with Amazon's libraries."""
    yield Snippet(
        "~/.aws/credentials",
        f"[storagegate]\naws_access_key_id = {access.accessKey}\n"
        f"aws_secret_access_key = {access.secretKey}\n",
    )
    yield Snippet(
        "~/.aws/config",
        f"[profile storagegate]\nregion = {access.region}\nendpoint_url = {access.endpoint}\n",
    )
    yield Snippet("shell", f"aws --profile storagegate s3 ls s3://{access.bucket}\n")


def _rclone(access: ClientAccess) -> Iterator[Snippet]:
    yield Snippet(
        "~/.config/rclone/rclone.conf",
        "[storagegate]\ntype = s3\nprovider = Other\n"
        f"endpoint = {access.endpoint}\nregion = {access.region}\n"
        f"access_key_id = {access.accessKey}\nsecret_access_key = {access.secretKey}\n",
    )
    yield Snippet("shell", f"rclone ls storagegate:{access.bucket}\n")


def _mc(access: ClientAccess) -> Iterator[Snippet]:
    # mc prompts for both halves, so neither appears in ps or in the shell's history.
    yield Snippet(
        "shell",
        f"printf '%s\\n%s\\n' '{access.accessKey}' '{access.secretKey}' |"
        f" mc alias set storagegate {access.endpoint} --api S3v4 --path on\n"
        f"mc ls storagegate/{access.bucket}\n",
    )


def _restic(access: ClientAccess) -> Iterator[Snippet]:
    yield Snippet(
        "shell",
        f"{_variables(access)}"
        f"export RESTIC_REPOSITORY='s3:{access.endpoint}/{access.bucket}'\n"
        "restic init\n",
    )


def _s5cmd(access: ClientAccess) -> Iterator[Snippet]:
    yield Snippet(
        "shell",
        f"{_variables(access)}export S3_ENDPOINT_URL='{access.endpoint}'\n"
        f"s5cmd ls s3://{access.bucket}\n",
    )


def _boto3(access: ClientAccess) -> Iterator[Snippet]:
    yield Snippet(
        "storagegate.py",
        "import boto3\n\n"
        "s3 = boto3.client(\n"
        '    "s3",\n'
        f"    endpoint_url={access.endpoint!r},\n"
        f"    region_name={access.region!r},\n"
        f"    aws_access_key_id={access.accessKey!r},\n"
        f"    aws_secret_access_key={access.secretKey!r},\n"
        ")\n"
        f"print(s3.list_objects_v2(Bucket={access.bucket!r}).get('KeyCount'))\n",
    )


_TOOLS: dict[str, Callable[[ClientAccess], Iterator[Snippet]]] = {
    "aws": _aws,
    "rclone": _rclone,
    "mc": _mc,
    "restic": _restic,
    "s5cmd": _s5cmd,
    "boto3": _boto3,
}
