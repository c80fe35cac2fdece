// Who besides its owner may use a bucket, in a word.

import { addTexts, say } from "./messages.js";
import { html, Icon } from "./ui.js";

addTexts({
  "access.private": "Private",
  "access.shared": "Shared",
  "access.publicList": "Public list",
  "access.publicRead": "Public read",
  "access.publicWrite": "Public write",
});

const KINDS = { publicList: "warn", publicRead: "warn", publicWrite: "gone" };

export const AccessBadge = ({ access }) => access && html`
  <span class=${"badge " + (KINDS[access] || "")}><${Icon} name=${KINDS[access] ? "globe" : "lock"} />${say("access." + access)}</span>
`;

// In a table a private bucket is what is expected, so that it has no badge.
export const Access = ({ access }) => (access === "private"
  ? html`<span class="quiet">${say("access.private")}</span>`
  : html`<${AccessBadge} access=${access} />`);
