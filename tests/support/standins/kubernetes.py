"""
A stand-in for the API of Kubernetes: the EndpointSlices of a namespace, listed and watched, as
U{https://kubernetes.io/docs/reference/using-api/api-concepts/} documents it.

C{PUT} and C{DELETE /standin/slices/NAME} change a slice; C{POST /standin} does the rest:
C{{"compact": true}} forgets all earlier versions, C{{"bookmark": true}} sends a bookmark to all
watches, C{{"cut": true}} ends them gracefully, C{{"token": "x"}} requires this token, C{{"late":
true}} reports an expired version in the stream, not by the status.
"""

import json
import time
from typing import Any

from tests.support.standins.answering import Answering, serve

_SLICES = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"

_GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

Query = dict[str, list[str]]


class API(Answering):
    """Answers like the API."""

    def arrived(self) -> None:
        """Record the number of cuts first: a test that sees the watch request may end the watch."""
        self._cuts = self.state.known["cuts"]

    def answer(self, path: str, query: Query, message: Any) -> None:
        """Answer a request."""
        token = self.state.known["token"]
        if path.startswith("/standin/slices/"):
            with self.state.changed:
                self._put(path.rpartition("/")[2], message)
            self.give(200, {})
        elif path == "/standin":
            with self.state.changed:
                self._control(message)
            self.give(200, {})
        elif token and self.headers.get("Authorization") != f"Bearer {token}":
            self.give(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif path != _SLICES:
            self.give(404, {"kind": "Status", "code": 404, "message": "not found"})
        elif query.get("watch") == ["true"]:
            self._watch(query)
        else:
            self._list(query)

    def _put(self, name: str, found: Any) -> None:
        known = self.state.known
        known["version"] += 1
        kind = "DELETED" if found is None else "MODIFIED" if name in known["slices"] else "ADDED"
        if found is None:
            found = known["slices"].pop(name)
        else:
            known["slices"][name] = found
        found["metadata"] = {
            **found.get("metadata", {}),
            "name": name,
            "resourceVersion": str(known["version"]),
        }
        known["events"].append([known["version"], kind, json.loads(json.dumps(found))])
        self.state.save()

    def _control(self, message: Any) -> None:
        known = self.state.known
        if message.pop("compact", False):
            known["version"] += 1
            known["oldest"] = known["version"]
            known["events"].clear()
        if message.pop("bookmark", False):
            known["version"] += 1
            bookmark = {"metadata": {"resourceVersion": str(known["version"])}}
            known["events"].append([known["version"], "BOOKMARK", bookmark])
        if message.pop("cut", False):
            known["cuts"] += 1
        known.update(message)
        self.state.save()

    def _list(self, query: Query) -> None:
        with self.state.changed:
            items = [each for each in self.state.known["slices"].values() if _meant(each, query)]
            version = str(self.state.known["version"])
        self.give(
            200,
            {
                "kind": "EndpointSliceList",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": version},
                "items": items,
            },
        )

    def _watch(self, query: Query) -> None:
        version = int(query["resourceVersion"][0])
        with self.state.changed:
            known = self.state.known
            isGone = version < known["oldest"]
        if isGone and not known["late"]:
            self.give(410, _GONE)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isGone:
            self._send({"type": "ERROR", "object": _GONE})
        end = time.monotonic() + float(query["timeoutSeconds"][0])
        with self.state.changed:
            while not isGone:
                for at, kind, found in known["events"]:
                    if at > version and (kind == "BOOKMARK" or _meant(found, query)):
                        self._send({"type": kind, "object": found})
                version = max(version, known["version"])
                if known["cuts"] != self._cuts or time.monotonic() > end:
                    break
                self.state.changed.wait(0.2)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()


def _meant(found: Any, query: Query) -> bool:
    label, _, name = query["labelSelector"][0].partition("=")
    return bool(found["metadata"].get("labels", {}).get(label) == name)


if __name__ == "__main__":
    serve(
        API,
        {
            "version": 10,
            "oldest": 0,
            "slices": {},
            "events": [],
            "token": "",
            "cuts": 0,
            "late": False,
        },
    )
