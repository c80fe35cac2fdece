// The state of an upload in words.

import { say } from "./messages.js";
import "./transfertexts.js";
import { percent } from "./uploadstate.js";

const messageOf = (error) => {
  if (error.code === "FILE_CHANGED") return say("transfers.changed");
  return error.code === "HTTP_413" ? say("error.413") : error.message;
};

export function stateOf(item) {
  const share = percent(item.sent, item.size);
  if (item.state === "waiting" && item.error)
    return say("transfers.state.retry", { error: messageOf(item.error) });
  return say("transfers.state." + item.state, {
    percent: share, error: item.error ? messageOf(item.error) : "",
  });
}
