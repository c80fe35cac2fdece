// Texts of the page of the configuration.

import { addTexts } from "./messages.js";

addTexts({
  "configuration.find": "Find a key or a value",
  "configuration.onlyChanged": "Only changed",
  "configuration.key": "Key",
  "configuration.value": "Value",
  "configuration.origin": "Source",
  "configuration.default": "Default",
  "configuration.change": "Applies on",
  "configuration.sighup": "reload",
  "configuration.restart": "restart",
  "configuration.none": "No key matches",
  "configuration.notSet": "Not configured",
  "configuration.hidden": "hidden",
  "configuration.reload": "Reload configuration",
  "configuration.reloadText": "Same as SIGHUP. A file with an error changes nothing.",
  "configuration.nothing": "Nothing has changed.",
  "configuration.applied": "Applied: {keys}",
  "configuration.needRestart": "Requires a restart: {keys}",
  "configuration.replacing": "{count} workers are being replaced, one after the other.",
  "configuration.done": "The configuration is reloaded",
});
