"""
A stand-in for a Consul agent: service health with blocking queries, and registration, as
U{https://developer.hashicorp.com/consul/api-docs} documents them.

C{POST /standin} triggers behaviour that the API cannot trigger: C{{"index": 3}} returns to an
earlier index, C{{"forget": true}} forgets every service, C{{"token": "x"}} requires this token,
C{{"late": true}} lets every check expire.
"""

import time
from typing import Any
from urllib.parse import unquote

from tests.support.standins.answering import Answering, serve

Query = dict[str, list[str]]


class Agent(Answering):
    """Answers like an agent."""

    def answer(self, path: str, query: Query, message: Any) -> None:
        """Answer a request."""
        known = self.state.known
        with self.state.changed:
            if path == "/standin":
                self._control(message)
            elif known["token"] and self.headers.get("X-Consul-Token") != known["token"]:
                self.give(403, "Permission denied")
            elif path.startswith("/v1/health/service/"):
                self._health(path.rpartition("/")[2], query)
            elif path == "/v1/agent/service/register":
                self._register(message)
            elif path.startswith("/v1/agent/service/deregister/"):
                found = known["services"].pop(_last(path), None)
                self._next()
                self.give(200 if found else 404, "")
            elif path.startswith("/v1/agent/check/pass/"):
                self._passes(_last(path))
            else:
                self.give(404, "")

    def _control(self, message: Any) -> None:
        if message.pop("forget", False):
            self.state.known["services"].clear()
            self._next()
        if message.pop("late", False):
            for service in self.state.known["services"].values():
                service["until"] = 0
            self._next()
        self.state.known.update(message)
        self.state.save()
        self.give(200, {})

    def _register(self, message: Any) -> None:
        check = message.get("Check") or {}
        seconds = float(check.get("TTL", "1000000s")[:-1])
        message["ttl"] = seconds
        message["until"] = time.time() + seconds if check.get("Status") == "passing" else 0
        self.state.known["services"][message["ID"]] = message
        self._next()
        self.give(200, "")

    def _passes(self, check: str) -> None:
        for service in self.state.known["services"].values():
            if (service.get("Check") or {}).get("CheckID") == check:
                service["until"] = time.time() + service["ttl"]
                self.give(200, "")
                return
        self.give(404, f'Unknown check ID "{check}"')

    def _health(self, name: str, query: Query) -> None:
        index = int(query.get("index", ["0"])[0])
        wait = float(query.get("wait", ["300000ms"])[0].removesuffix("ms")) / 1000
        end = time.monotonic() + wait
        shown = self._entries(name, query)
        while self.state.known["index"] == index and index:
            left = end - time.monotonic()
            if left <= 0 or self._entries(name, query) != shown:
                break
            # Short enough to notice an expired check.
            self.state.changed.wait(min(left, 0.2))
        entries = self._entries(name, query)
        if entries != shown and self.state.known["index"] == index:
            self._next()
        self.give(200, entries, X_Consul_Index=str(self.state.known["index"]))

    def _entries(self, name: str, query: Query) -> list[Any]:
        return [
            {
                "Node": {"Node": "here", "Address": "10.9.9.9"},
                "Service": {
                    "ID": each["ID"],
                    "Service": name,
                    "Address": each.get("Address", ""),
                    "Port": each.get("Port", 0),
                    "Tags": each.get("Tags", []),
                    "Meta": each.get("Meta", {}),
                    "Weights": each.get("Weights", {"Passing": 1, "Warning": 1}),
                },
                "Checks": [],
            }
            for each in self.state.known["services"].values()
            if each["Name"] == name
            and set(query.get("tag", ())) <= set(each.get("Tags", ()))
            and ("passing" not in query or each["until"] > time.time())
        ]

    def _next(self) -> None:
        self.state.known["index"] += 1
        self.state.save()


def _last(path: str) -> str:
    return unquote(path.rpartition("/")[2])


if __name__ == "__main__":
    serve(Agent, {"index": 10, "services": {}, "token": ""})
