"""Streams over UDP, with datagrams in memory."""

from hypothesis import given
from hypothesis import strategies as st

from storagegate.gateway.messages.frames import CLIENT_END, CLIENT_ITEM, END, ITEM, RESPONSE
from storagegate.gateway.transports.udp.peer import WINDOW, ReorderBuffer
from tests.gateway.udpcase import UDPCase


class StreamTests(UDPCase):
    """Streams both ways."""

    def test_server(self) -> None:
        """Items are numbered from 0, and the end says how many there were."""
        self.call("count", data={"to": 2})
        self.assertEqual(
            self.answers,
            [
                (ITEM, {"id": "1", "seq": 0, "data": {"number": 0}}),
                (ITEM, {"id": "1", "seq": 1, "data": {"number": 1}}),
                (END, {"id": "1", "seq": 2}),
            ],
        )

    def test_paced(self) -> None:
        """A long stream goes out some at a time."""
        self.call("count", data={"to": 100})
        self.assertEqual(len(self.answers), 32)
        self.clock.advance(0.001)
        self.assertEqual(len(self.answers), 32)
        self.clock.pump([0.001] * 5)
        self.assertEqual(len(self.answers), 37)

    def test_client(self) -> None:
        """Items in any order, some twice, make the stream that was sent."""
        self.call("collect")
        for seq, text in ((1, "b"), (0, "a"), (1, "b"), (2, "c"), (0, "a")):
            self.send(CLIENT_ITEM, {"id": "1", "seq": seq, "data": {"text": text}})
        self.send(CLIENT_END, {"id": "1", "seq": 3})
        self.assertEqual(
            self.answers, [(RESPONSE, {"id": "1", "data": {"texts": ["a", "b", "c"]}})]
        )
        self.assertEqual(self.adapter.dropped["item"], 2)

    def test_endFirst(self) -> None:
        """An end that overtakes items waits for them."""
        self.call("collect")
        self.send(CLIENT_END, {"id": "1", "seq": 1})
        self.assertEqual(self.answers, [])
        self.send(CLIENT_ITEM, {"id": "1", "seq": 0, "data": {"text": "a"}})
        self.assertEqual(self.answers, [(RESPONSE, {"id": "1", "data": {"texts": ["a"]}})])

    def test_leftOut(self) -> None:
        """An end whose number leaves out items that were sent, before or behind it, is an error."""
        self.call("collect")
        for seq in (0, 1):
            self.send(CLIENT_ITEM, {"id": "1", "seq": seq, "data": {"text": "a"}})
        self.send(CLIENT_END, {"id": "1", "seq": 1})
        self.call("collect", "2")
        self.send(CLIENT_END, {"id": "2", "seq": 1})
        self.send(CLIENT_ITEM, {"id": "2", "seq": 1, "data": {"text": "b"}})
        answers = self.answers
        self.assertEqual([payload["id"] for _, payload in answers], ["1", "2"])
        self.assertEqual({payload["error"] for _, payload in answers}, {"INVALID_ARGUMENT"})

    def test_firstItem(self) -> None:
        """data of the opening frame is the first item."""
        self.call("collect", data={"text": "z"})
        self.send(CLIENT_ITEM, {"id": "1", "seq": 0, "data": {"text": "a"}})
        self.send(CLIENT_END, {"id": "1", "seq": 1})
        self.assertEqual(self.answers[0][1]["data"], {"texts": ["z", "a"]})

    def test_chat(self) -> None:
        """Both at once."""
        self.call("chat")
        self.send(CLIENT_ITEM, {"id": "1", "seq": 0, "data": {"text": "a"}})
        self.send(CLIENT_END, {"id": "1", "seq": 1})
        self.assertEqual([type for type, _ in self.answers], [ITEM, ITEM, END])

    def test_noId(self) -> None:
        """A stream without an id is refused: nobody could put it in order."""
        self.call("count", None)
        self.assertEqual(self.answers[0][1]["error"], "INVALID_ARGUMENT")

    def test_brokenOff(self) -> None:
        """A stream whose client fell silent ends as broken off."""
        self.adapter._watch.start(30, now=False)
        self.call("collect")
        self.clock.pump([31] * 4)
        self.assertEqual(self.answers[-1][1]["error"], "INVALID_ARGUMENT")
        self.adapter._watch.stop()

    @given(st.permutations(range(12)), st.lists(st.integers(0, 11)))
    def test_order(self, order: list[int], again: list[int]) -> None:
        """However items arrive, they are taken once and in order."""
        reorder = ReorderBuffer()
        taken = []
        reorder.end(12)
        for seq in [*again[:3], *order, *again]:
            reorder.put(seq, seq)
            while reorder.hasNext:
                taken.append(reorder.take())
        self.assertEqual(taken, list(range(12)))
        self.assertTrue(reorder.isAtEnd)

    def test_window(self) -> None:
        """An item too far ahead is not held."""
        reorder = ReorderBuffer()
        self.assertTrue(reorder.put(WINDOW - 1, "a"))
        self.assertFalse(reorder.put(WINDOW, "b"))
