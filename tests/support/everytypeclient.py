"""
A client of C{tests.support.everytype} with the stubs that C{protoc} makes of the printed file.

Usage: C{python everytypeclient.py STUBS ADDRESS}. It prints its findings as JSON.
"""

import json
import sys
from typing import Any


def main(stubs: str, address: str) -> None:
    """Call each method."""
    sys.path.insert(0, stubs)
    import grpc
    import notes_pb2 as messages  # type: ignore[import-not-found]
    import notes_pb2_grpc as services  # type: ignore[import-not-found]

    with grpc.insecure_channel(address) as channel:
        stub = services.NotesStub(channel)
        note: Any = stub.Get(messages.NoteId(id=2), timeout=20)
        echoed = stub.Echo(note, timeout=20)
        found = {
            "isSame": echoed == note,
            "made": note.made.ToJsonString(),
            "took": note.took.ToTimedelta().total_seconds(),
            "color": messages.Color.Name(note.color),
            "shape": [note.WhichOneof("shape"), note.shape_square.side],
            "byNumber": note.by_number[7].values[0].seconds,
            "child": note.children[0].id,
            "maybe": [note.HasField("maybe"), note.children[0].HasField("maybe")],
            "watched": [each == note for each in stub.Watch(messages.NoteId(id=2), timeout=20)],
            "added": stub.Add(iter([note, note]), timeout=20).count,
            "chatted": [each == note for each in stub.Chat(iter([note, note]), timeout=20)],
            "tags": [each.name for each in stub.Tags(messages.NoteId(id=2), timeout=20).values],
            "found": [
                stub.Find(messages.NoteId(id=id), timeout=20).HasField("value") for id in (0, 1)
            ],
        }
        try:
            stub.Get(messages.NoteId(), timeout=20)
        except grpc.RpcError as error:
            found["error"] = [error.code().name, error.details()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
