"""The script of pages in development."""

PREFIX = "/__storagegate/"
EVENTS_PATH = PREFIX + "hmr"
SCRIPT_PATH = PREFIX + "hmr.js"

# Listens while its page is seen: a browser has six connections to a server, and a dozen pages that
# are open in the background would leave none. A page that comes back learns the version that it has
# missed. All styles are set by properties: a content policy may forbid the others.
SCRIPT = (
    """\
(function () {
  "use strict";
  if (window.storagegateHmr) return;
  window.storagegateHmr = true;
  var script = document.currentScript;
  var version = script && new URL(script.src).searchParams.get("v");
  var source = null, overlay = null, timer = null, failures = 0;

  function hide() {
    if (overlay) overlay.remove();
    overlay = null;
  }

  function add(parent, text, style) {
    var element = document.createElement(style.whiteSpace ? "pre" : "div");
    for (var name in style) element.style[name] = style[name];
    element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  function show(report) {
    hide();
    overlay = add(document.documentElement, "", {
      position: "fixed", inset: "0", zIndex: "2147483647", overflow: "auto", padding: "2em",
      background: "rgba(20, 20, 24, 0.95)", color: "#ddd", font: "14px/1.5 monospace",
      textAlign: "left"
    });
    add(overlay, report.title, {color: "#ff6b6b", fontSize: "18px", fontWeight: "bold"});
    if (report.file) {
      add(overlay, report.file + (report.line ? ":" + report.line : ""), {color: "#7cc7ff"});
    }
    add(overlay, report.text, {whiteSpace: "pre-wrap", margin: "1em 0"});
    add(overlay, "The old code goes on serving. Escape hides this.", {color: "#888"});
  }

  function reload() {
    close();
    location.reload();
  }

  function close() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }

  function open() {
    close();
    source = new EventSource("EVENTS_PATH");
    source.addEventListener("hello", function (event) {
      var current = JSON.parse(event.data).version;
      failures = 0;
      if (version && version !== current) reload();
      version = current;
    });
    source.addEventListener("reload", reload);
    source.addEventListener("error", function (event) {
      if (event.data !== undefined) {
        show(JSON.parse(event.data));
      } else if (source && source.readyState === EventSource.CLOSED && ++failures < 30) {
        timer = setTimeout(open, 1000);
      }
    });
  }

  function look() {
    if (document.hidden) close(); else open();
  }

  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("visibilitychange", look);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", function (event) {
    if (event.persisted) look();
  });
  look();
})();
"""
).replace("EVENTS_PATH", EVENTS_PATH)
"""The script itself; its address has the version of the code that has made the page."""
