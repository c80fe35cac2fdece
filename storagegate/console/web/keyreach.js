// What a key reaches today, in one sentence.

import { useEffect, useState } from "preact/hooks";
import { call } from "./api.js";
import { addTexts, bytes, number, say } from "./messages.js";
import { html, Icon } from "./ui.js";

addTexts({
  "reach.may.readonly": "May read {what} of {account}: {count} today, {size}.",
  "reach.may.readwrite": "May read, write and delete {what} of {account}: {count} today, {size}.",
  "reach.may.writeonly": "May write {what} of {account}, but not read it: {count} today, {size}.",
  "reach.one": "1 object",
  "reach.objects": "{count} objects",
  "reach.more": "{count} or more objects",
  "reach.nothing": "The key reaches no object today: {account} owns no bucket. Choose the account that owns the bucket, or allow {account} in the policy of a bucket.",
  "reach.nothingYet": "It can create buckets of its own.",
  "reach.none": "The key reaches no object today: {what} of {account} is empty.",
  "reach.all": "every bucket",
  "reach.noBucket": "The key reaches no object today: no bucket of {account} matches {bucket}.",
  "reach.auditor": "It may also see every page of this console.",
  "reach.adminRole": "It may also administer this console.",
});

const DELAY_MS = 200;

export function useReach({ account, bucket, prefix }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const aborter = new AbortController();
    const timer = setTimeout(() => {
      call("POST", "reach", { body: { account, bucket, prefix }, signal: aborter.signal }).then(setFound, () => {});
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [account, bucket, prefix]);
  return found;
}

export function Sentence({ values, reach }) {
  if (!reach) return null;
  const { bucket, prefix, policy, role } = values;
  const account = "\u0001" + (values.account || "…") + "\u0001";
  const what = bucket || prefix ? "\u0002" + (bucket || "*") + "/" + (prefix || "*") + "\u0002" : say("reach.all");
  let text = "";
  if (!reach.owned.length) text = say("reach.nothing", { account });
  else if (!reach.buckets.length) text = say("reach.noBucket", { account, bucket });
  else if (!reach.objects) text = say("reach.none", { what, account });
  else {
    const key = reach.isMore ? "reach.more" : reach.objects === 1 ? "reach.one" : "reach.objects";
    const count = say(key, { count: number(reach.objects) });
    text = say("reach.may." + policy, { what, account, count, size: bytes(reach.bytes) });
  }
  // The account and the pattern stand out.
  const parts = text.split(/(\u0001[^\u0001]*\u0001|\u0002[^\u0002]*\u0002)/).map((part, at) => {
    if (at % 2 === 0) return part;
    const inner = part.slice(1, -1);
    return part[0] === "\u0001" ? html`<strong>${inner}</strong>` : html`<code class="pattern">${inner}</code>`;
  });
  return html`
    <p>${parts}${!reach.owned.length && policy === "readwrite" && !bucket && " " + say("reach.nothingYet")}
      ${role !== "none" && " " + say(role === "auditor" ? "reach.auditor" : "reach.adminRole")}</p>
  `;
}

// The sentence of a key that exists.
export function Reach({ values }) {
  const reach = useReach(values);
  return html`<div class="notice accent" role="status"><${Icon} name="key" /><${Sentence} values=${values} reach=${reach} /></div>`;
}
