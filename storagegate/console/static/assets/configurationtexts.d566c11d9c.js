// Texts of the page of the configuration.

import { addTexts } from "./messages.5d7ca40ed1.js";

addTexts({
  "configuration.find": "Find a key, a value or a meaning",
  "configuration.onlyChanged": "Only what is not the default",
  "configuration.key": "Key",
  "configuration.value": "Value",
  "configuration.origin": "From",
  "configuration.default": "Default",
  "configuration.change": "A change applies",
  "configuration.sighup": "by a reload",
  "configuration.restart": "by a restart",
  "configuration.none": "No key is so",
  "configuration.notSet": "not set",
  "configuration.hidden": "hidden",
  "configuration.reload": "Read it again",
  "configuration.reloadText": "As by SIGHUP. If the file has an error, nothing is changed.",
  "configuration.nothing": "Nothing has changed.",
  "configuration.applied": "Applied: {keys}",
  "configuration.needRestart": "Takes a restart: {keys}",
  "configuration.replacing": "{count} workers are being replaced, one after the other.",
  "configuration.done": "The configuration was read again",
});
