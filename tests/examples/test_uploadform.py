"""The form of C{examples/uploadform.py}."""

import re

from tests.examples.support import ExampleCase

ADA = {"user": "ada", "password": "lovelace"}
ALAN = {"user": "alan", "password": "turing"}


class UploadFormTests(ExampleCase):
    """What a browser does there."""

    name = "uploadform"

    async def logIn(self, form: dict[str, str]) -> None:
        """Log in, and arrive at the list of files."""
        response = await self.ask("POST", "/login", data=form)
        self.assertEqual(response.code, 200)
        self.assertEqual(response.request.absoluteURI.decode(), self.example.base + "/")

    async def listed(self) -> list[tuple[str, str]]:
        """Give paths and names of the files that the page lists."""
        page = await (await self.ask("GET", "/")).text()
        return re.findall(r"<li><a href=(/[0-9a-f]{32})>(.*?)</a>", page)

    async def test_files(self) -> None:
        """A file is uploaded, listed and downloaded under its own name; others do not see it."""
        await self.logIn(ADA)
        content = bytes(range(256)) * 1000
        name = "<Übersicht> 1.bin"
        response = await self.ask("POST", "/", files={"file": (name, content)})
        self.assertEqual(response.code, 200)
        [(path, shown)] = await self.listed()
        self.assertEqual(shown, "&lt;Übersicht&gt; 1.bin")
        response = await self.ask("GET", path)
        self.assertEqual(await response.content(), content)
        [disposition] = response.headers.getRawHeaders("content-disposition")
        self.assertIn("filename*=UTF-8''%3C%C3%9Cbersicht%3E%201.bin", disposition)
        self.assertEqual([f.name for f in (self.directory / "uploads").iterdir()], [path[1:]])

        await self.ask("POST", "/logout")
        await self.logIn(ALAN)
        self.assertEqual(await self.listed(), [])
        response = await self.ask("GET", path)
        self.assertEqual(response.code, 404)
        self.assertEqual(await response.json(), {"error": "There is no such file"})

    async def test_logIn(self) -> None:
        """Who is not logged in is led to the login; a wrong password does not do, nor none."""
        for path in ("/", f"/{'0' * 32}"):
            page = await (await self.ask("GET", path)).text()
            self.assertIn("type=password", page)
        for form in ({**ADA, "password": "turing"}, {"user": "nobody", "password": "x"}, {}):
            response = await self.ask("POST", "/login", data=form)
            self.assertEqual(response.code, 401)
            self.assertEqual(await response.json(), {"error": "Wrong name or password"})

    async def test_newSession(self) -> None:
        """A login gives another session: an id that was known before gets nobody in."""
        await self.logIn(ADA)
        [before] = list(self.client._cookiejar)
        await self.logIn(ADA)
        [after] = list(self.client._cookiejar)
        self.assertNotEqual(before.value, after.value)
        self.assertTrue(after.has_nonstandard_attr("HttpOnly"))
        old = {"Cookie": f"{before.name}={before.value}"}
        response = await self.makeClient().get(self.example.base + "/", headers=old)
        self.assertIn("type=password", await response.text())

    async def test_logOut(self) -> None:
        """After the logout the cookie is worth nothing."""
        await self.logIn(ADA)
        page = await (await self.ask("POST", "/logout")).text()
        self.assertIn("type=password", page)
        self.assertEqual(await self.listed(), [])

    async def test_refusedUploads(self) -> None:
        """A file over 10 MB, a form without one and a request of another site leave nothing."""
        await self.logIn(ADA)
        large = {"file": ("large", bytes(10 * 1024 * 1024 + 1))}
        self.assertEqual((await self.ask("POST", "/", files=large)).code, 413)
        self.assertEqual((await self.ask("POST", "/", data={"file": "text"})).code, 400)
        small = {"file": ("small", b"content")}
        foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}
        response = await self.ask("POST", "/", files=small, headers=foreign)
        self.assertEqual(response.code, 403)
        self.assertEqual(await self.listed(), [])
        self.assertEqual(list((self.directory / "uploads").iterdir()), [])

    async def test_headers(self) -> None:
        """Browsers are told to be careful, but not to ask for TLS, which is not there."""
        response = await self.ask("GET", "/login")
        [policy] = response.headers.getRawHeaders("content-security-policy")
        self.assertIn("default-src 'self'", policy)
        self.assertNotIn("upgrade-insecure-requests", policy)
        self.assertEqual(response.headers.getRawHeaders("x-content-type-options"), ["nosniff"])
