"""The REST API of C{examples/jsonapi.py}."""

from typing import Any

from tests.examples.support import ExampleCase

ADA = {"Authorization": "Bearer ada-token"}
BOB = {"Authorization": "bearer bob-token"}


class JSONAPITests(ExampleCase):
    """What a client of the API sees."""

    name = "jsonapi"

    async def answer(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Ask for something, and give status and JSON of the answer."""
        response = await self.ask(method, path, **options)
        return response.code, await response.json()

    async def test_notes(self) -> None:
        """A note is added, found, listed and removed, by its owner only."""
        tea = {"id": "1", "owner": "ada", "text": "tea"}
        response = await self.ask("POST", "/notes", headers=ADA, json={"text": "tea"})
        self.assertEqual((response.code, await response.json()), (201, tea))
        self.assertEqual(response.headers.getRawHeaders("location"), ["/notes/1"])
        self.assertEqual(await self.answer("GET", "/notes/1", headers=ADA), (200, tea))
        self.assertEqual(await self.answer("GET", "/notes", headers=ADA), (200, [tea]))
        self.assertEqual(await self.answer("GET", "/notes", headers=BOB), (200, []))
        missing = 404, {"error": "There is no such note"}
        self.assertEqual(await self.answer("DELETE", "/notes/1", headers=BOB), missing)
        self.assertEqual((await self.ask("DELETE", "/notes/1", headers=ADA)).code, 204)
        self.assertEqual(await self.answer("GET", "/notes/1", headers=ADA), missing)

    async def test_stranger(self) -> None:
        """Without a token, or with one that is unknown, the answer is 401 and says so."""
        for headers in (
            {},
            {"Authorization": "Bearer nobody"},
            {"Authorization": "Bearer caf\xe9"},
            {"Authorization": "Basic ada-token"},
        ):
            status, body = await self.answer("GET", "/notes", headers=headers)
            self.assertEqual((status, body), (401, {"error": "Unknown token"}))

    async def test_invalid(self) -> None:
        """What cannot be a note is 400, and says why; so is what is no JSON."""
        told = 400, {"error": "text has 1 to 1000 characters"}
        for body in ({}, {"text": ""}, {"text": "x" * 1001}, {"text": 1}, ["text"]):
            self.assertEqual(await self.answer("POST", "/notes", headers=ADA, json=body), told)
        headers = {**ADA, "Content-Type": "application/json"}
        status, body = await self.answer("POST", "/notes", headers=headers, data=b"{")
        self.assertEqual(status, 400)
        self.assertIn("cannot be parsed", body["error"])

    async def test_unknownRoute(self) -> None:
        """Other paths, and methods that a path does not have, end at the catch-all."""
        for method, path in (("GET", "/nothing"), ("PATCH", "/notes")):
            told = {"error": "Not Found", "path": path, "method": method}
            self.assertEqual(await self.answer(method, path, headers=ADA), (404, told))

    async def test_aroundRoutes(self) -> None:
        """Pages of other origins may ask; requests are counted and logged."""
        response = await self.ask(
            "OPTIONS",
            "/notes",
            headers={"Origin": "http://page.example", "Access-Control-Request-Method": "POST"},
        )
        self.assertEqual(response.code, 204)
        self.assertEqual(response.headers.getRawHeaders("access-control-allow-origin"), ["*"])
        for remaining in ("99", "98"):
            response = await self.ask("GET", "/notes", headers=ADA)
            left = response.headers.getRawHeaders("x-ratelimit-remaining")
            self.assertEqual(left, [remaining])
        self.example.waitForLog(r"GET /notes \S*200\S* 2 - [\d.]+ ms\n")

    async def test_stop(self) -> None:
        """SIGTERM ends it in order."""
        # It says where it listens a moment before the signal means anything to it.
        await self.answer("GET", "/notes")
        self.assertEqual(self.example.stop(), 0)
