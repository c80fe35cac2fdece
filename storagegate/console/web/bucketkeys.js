// The keys that reach a bucket, each with what it may do there.

import { call, segment } from "./api.js";
import { addTexts, say } from "./messages.js";
import { link } from "./router.js";
import { Button, Heads, html, Loaded, useAction, useLoad } from "./ui.js";

addTexts({
  "bucketKeys.title": "Keys that reach this bucket",
  "bucketKeys.all": "All keys",
  "bucketKeys.key": "Key",
  "bucketKeys.by": "By",
  "bucketKeys.by.owner": "Owner",
  "bucketKeys.by.policy": "Policy",
  "bucketKeys.by.acl": "ACL",
  "bucketKeys.by.user": "User policies",
  "bucketKeys.may": "May",
  "bucketKeys.may.all": "Everything",
  "bucketKeys.may.list": "list",
  "bucketKeys.may.read": "read",
  "bucketKeys.may.write": "write",
  "bucketKeys.may.delete": "delete",
  "bucketKeys.may.admin": "change settings",
  "bucketKeys.more": "and more",
  "bucketKeys.limited": "limited to",
  "bucketKeys.none": "No key reaches this bucket.",
  "bucketKeys.noneYet": "None of the keys so far reaches this bucket.",
  "bucketKeys.text": "By the saved settings. The root key may do everything. Conditions and denials of some objects are not counted: check one access for these.",
});

const LIMIT = 50;
const ALL_RIGHTS = 5;
const series = new Intl.ListFormat("en");

const load = (bucket, after, signal) => call("GET", "buckets/" + segment(bucket) + "/keys", { query: { after, limit: LIMIT }, signal });

// What a key may do, as a sentence without a subject.
function May({ of: { may, patterns, keyPattern, isMore } }) {
  if (may.length === ALL_RIGHTS && !patterns.length && !keyPattern) return say("bucketKeys.may.all");
  const text = series.format(may.map((each) => say("bucketKeys.may." + each)));
  const code = (name, at) => html`${at > 0 && ","} <code>${name}</code>`;
  return html`${text[0].toUpperCase() + text.slice(1)}${patterns.map(code)}${isMore && " " + say("bucketKeys.more")}
    ${keyPattern && html`${patterns.length > 0 && ", " + say("bucketKeys.limited")} <code>${keyPattern}</code>`}`;
}

// `info` is the bucket, whose settings have been saved when it is another one.
export function BucketKeys({ bucket, info }) {
  const found = useLoad((signal) => load(bucket, "", signal), [info]);
  const [more, busy, error] = useAction(async () => {
    const page = await load(bucket, found.data.next);
    found.change((before) => ({ ...page, items: [...before.items, ...page.items] }));
  });
  return html`
    <section class="card flush">
      <header class="row"><h2 class="fill">${say("bucketKeys.title")}</h2><a href=${link(["keys"])}>${say("bucketKeys.all")}</a></header>
      <${Loaded} of=${found} rows=${3}>
        ${({ items, next }) => html`
          ${items.length > 0 && html`<div class="cards"><table><${Heads} names=${["key", "by", "may"]} text=${(name) => say("bucketKeys." + name)} />
            <tbody>${items.map((each) => html`<tr key=${each.accessKey}>
              <th scope="row"><a href=${link(["keys", each.accessKey])}>${each.note || html`<code>${each.accessKey}</code>`}</a> <small>${each.account}</small></th>
              <td class="quiet">${say("bucketKeys.by." + each.by)}</td><td><${May} of=${each} /></td></tr>`)}</tbody></table></div>`}
          <p class="cardText quiet">${!items.length && say(next ? "bucketKeys.noneYet" : "bucketKeys.none") + " "}${say("bucketKeys.text")}</p>
          ${next && html`<p class="cardText"><${Button} kind="small" busy=${busy} onClick=${more}>${say("app.more")}<//></p>`}
          ${error && html`<p class="cardText bad" role="alert">${error.message}</p>`}
        `}
      <//>
    </section>
  `;
}
