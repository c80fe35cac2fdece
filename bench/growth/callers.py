"""Keys of an account whose requests are compared: its own, a user's, and temporary ones of both."""

import json
import re
from collections.abc import Mapping

from bench.cases import MeasureError
from bench.growth.keyfill import credentialsOf
from bench.processes import Running
from bench.s3.requests import BUCKET
from bench.s3.signing import Credentials, Request, signer, targetOf

CALLERS = ("key", "user", "keysession", "usersession")
"""A key that no policy limits, a key of a user with a policy, and a session of each."""

_VERSIONS = {"iam": "2010-05-08", "sts": "2011-06-15"}
_USER = "bench"
_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": f"arn:aws:s3:::{BUCKET[1:]}/*",
        },
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:CreateBucket"],
            "Resource": f"arn:aws:s3:::{BUCKET[1:]}",
        },
        {
            "Effect": "Deny",
            "Action": "s3:*",
            "Resource": f"arn:aws:s3:::{BUCKET[1:]}/private/*",
        },
    ],
}


def callerOf(running: Running, kind: str) -> Credentials:
    """
    Return the credentials of a caller, which is made with the first request for it.

    @param kind: One of L{CALLERS}.
    """
    known: dict[str, Credentials] = running.notes.setdefault("callers", {"key": credentialsOf(0)})
    if kind not in known:
        parent = known["key"]
        if kind == "user":
            user = {"UserName": _USER}
            _call(running, parent, "iam", "CreateUser", user)
            policy = {"PolicyName": _USER, "PolicyDocument": json.dumps(_POLICY)}
            _call(running, parent, "iam", "PutUserPolicy", {**user, **policy})
            known[kind] = _readPair(_call(running, parent, "iam", "CreateAccessKey", user))
        else:
            parent = callerOf(running, kind.removesuffix("session"))
            known[kind] = _readPair(_call(running, parent, "sts", "GetSessionToken", {}))
    return known[kind]


def _call(
    running: Running,
    credentials: Credentials,
    service: str,
    action: str,
    parameters: Mapping[str, str],
) -> str:
    """Call IAM or STS; return the document of the answer."""
    query = {"Action": action, "Version": _VERSIONS[service], **parameters}
    request = Request("GET", "/", tuple(query.items()))
    fields = signer(credentials, service=service)(request, running.host)
    answer = running.exchange("GET", targetOf(request), None, fields)
    if answer.status != 200:
        raise MeasureError(f"{action}: {answer.status} {answer.body[:300]!r}")
    return answer.body.decode()


def _readPair(document: str) -> Credentials:
    """Read the credentials in an answer of IAM or STS."""
    found = [
        re.findall(f"<{name}>(.*?)</{name}>", document)
        for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
    ]
    return Credentials(*(each[0] for each in found if each))
