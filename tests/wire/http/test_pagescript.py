"""The script of pages, run by Node in a page of which only the needed parts exist."""

import json
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.development.livereload import SCRIPT
from tests.support.programs import findProgram, needs

NODE = findProgram("node")

# Long for a busy machine; Node starts in a tenth of a second.
NODE_SECONDS = 60

PAGE = """
const log = [], listeners = {}, timers = [];
let source = null;
function element(name) {
  const made = {name, style: {}, children: [], textContent: "", removed: false};
  made.appendChild = (child) => made.children.push(child);
  made.remove = () => { made.removed = true; log.push("hide"); };
  return made;
}
const listen = (type, listener) => { listeners[type] = listener; };
globalThis.window = globalThis;
globalThis.addEventListener = listen;
globalThis.document = {
  hidden: false,
  currentScript: {src: "http://localhost:3000/__storagegate/hmr.js?v=a.1"},
  documentElement: element("html"),
  createElement: element,
  addEventListener: listen,
};
globalThis.location = {reload() { log.push("reload"); }};
globalThis.setTimeout = (callback) => timers.push(callback);
globalThis.clearTimeout = () => {};
globalThis.EventSource = class {
  constructor(url) {
    this.listeners = {};
    this.readyState = 1;
    source = this;
    log.push("open " + url);
  }
  addEventListener(type, listener) { this.listeners[type] = listener; }
  close() { log.push("close"); }
};
EventSource.CLOSED = 2;
function tell(type, data) { source.listeners[type]({data: JSON.stringify(data)}); }
function lose() { source.readyState = 2; source.listeners.error({}); }
function text(parent) { return parent.textContent + parent.children.map(text).join("|"); }
function overlay() { return document.documentElement.children.at(-1); }
"""


@needs("node")
class PageScriptTests(SynchronousTestCase):
    """What the script does."""

    def play(self, actions: str) -> list[Any]:
        """Run the script, then some actions, and give what has happened."""
        program = f"{PAGE}\n{SCRIPT}\n{actions}\nconsole.log(JSON.stringify(log));"
        assert NODE is not None
        result = subprocess.run(
            [NODE, "-"],
            input=program,
            capture_output=True,
            text=True,
            timeout=NODE_SECONDS,
            check=False,
        )
        self.assertEqual(result.stderr, "")
        happened: list[Any] = json.loads(result.stdout)
        self.assertEqual(happened.pop(0), "open /__storagegate/hmr")
        return happened

    def test_reload(self) -> None:
        """A page reloads when it is told to, having left its stream."""
        self.assertEqual(self.play('tell("reload", {version: "a.2"})'), ["close", "reload"])

    def test_version(self) -> None:
        """It reloads too if it missed that, and not if it missed nothing."""
        self.assertEqual(self.play('tell("hello", {version: "a.1"})'), [])
        self.assertEqual(self.play('tell("hello", {version: "b.0"})'), ["close", "reload"])

    def test_error(self) -> None:
        """An error is shown as text, with its place; Escape hides it, and the next replaces it."""
        error = '{title: "E: <x>", file: "a.py", line: 3, text: "trace"}'
        shown, *rest = self.play(
            f'tell("error", {error}); log.push(text(overlay()));'
            f'tell("error", {error}); listeners.keydown({{key: "a"}});'
            'listeners.keydown({key: "Escape"});'
        )
        self.assertTrue(shown.startswith("E: <x>|a.py:3|trace|"), shown)
        self.assertEqual(rest, ["hide", "hide"])

    def test_hidden(self) -> None:
        """A page that nobody sees keeps no connection; when it is seen it has one again."""
        happened = self.play(
            "document.hidden = true; listeners.visibilitychange();"
            "document.hidden = false; listeners.visibilitychange();"
        )
        self.assertEqual(happened, ["close", "open /__storagegate/hmr"])

    def test_lost(self) -> None:
        """A stream that cannot be had is tried again, but not for ever; a pause is no end."""
        self.assertEqual(self.play("source.listeners.error({})"), [])
        happened = self.play(
            "for (let i = 0; i < 100; i++) { lose(); if (timers.length) timers.pop()(); }"
        )
        self.assertEqual(happened.count("open /__storagegate/hmr"), 29)

    def test_once(self) -> None:
        """A page that has the script twice listens once."""
        self.assertEqual(self.play(SCRIPT), [])
