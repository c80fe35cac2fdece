// The policy of a bucket: what it grants in sentences, its statements as a form, and the same document as JSON beside it.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { AccessCheck } from "./accesscheck.js";
import { APIError, call, has, segment } from "./api.js";
import { ChangeForm, inField } from "./bucketforms.js";
import {
  ACTIONS, CONDITION_NAMES, EMPTY, formOf, hasValue, isOpen, sentenceOf, sentenceText, statementOf, statementsOf, wrongOf,
} from "./bucketstatements.js";
import { addTexts, say } from "./messages.js";
import { shown } from "./objectnames.js";
import { Button, CopyButton, Field, html, Icon, IconButton, Select, useLoad } from "./ui.js";

addTexts({
  "policy.owner": "The account {account} may do everything that no statement denies.",
  "policy.nobodyElse": "No statement lets in another account, or requests without a signature.",
  "policy.notOpen": "No statement lets in requests without a signature.",
  "policy.anyone": "Anyone",
  "policy.noOne": "No one",
  "policy.nobody": "…",
  "policy.anything": "do anything",
  "policy.account": "Account {name}",
  "policy.key": "Key {name} of account {account}",
  "policy.but": "Everyone except {who}",
  "policy.mayDo": "may",
  "policy.mayNot": "may not",
  "policy.may.read": "read",
  "policy.may.list": "list",
  "policy.may.readList": "list all names, and read",
  "policy.may.write": "write",
  "policy.may.delete": "delete",
  "policy.may.all": "do everything with",
  "policy.mayWhole.read": "read any object",
  "policy.mayWhole.list": "list all names",
  "policy.mayWhole.readList": "list all names, and read any object",
  "policy.mayWhole.write": "write any object",
  "policy.mayWhole.delete": "delete any object",
  "policy.mayWhole.all": "do everything",
  "policy.mayOwn": "use {actions}",
  "policy.mayBut": "use everything except {actions}",
  "policy.otherThan": "all other than",
  "policy.when": "when {operator} {key} {value}",
  "policy.when.prefix": "that begin with {value}",
  "policy.when.from": "from {value}",
  "policy.when.notFrom": "from addresses other than {value}",
  "policy.when.secure": "over TLS",
  "policy.when.insecure": "without TLS",
  "policy.statements": "Statements",
  "policy.none": "No policy",
  "policy.noneText": "Only the account that owns the bucket may use it, unless an ACL says otherwise.",
  "policy.statement": "Statement {number}",
  "policy.Allow": "Allow",
  "policy.Deny": "Deny",
  "policy.edit": "Edit {name}",
  "policy.duplicate": "Duplicate {name}",
  "policy.remove": "Remove {name}",
  "policy.asJSON": "The form does not show all of this statement. Change it as JSON.",
  "policy.add": "Add statement",
  "policy.done": "Done",
  "policy.effect": "Effect",
  "policy.who": "Who",
  "policy.who.anyone": "Anyone, without signing in",
  "policy.who.account": "Accounts or keys",
  "policy.names": "Names",
  "policy.namesHelp": "An account, or a key as arn:aws:iam::ACCOUNT:user/KEY. Commas between several.",
  "policy.noNames": "Enter an account or a key",
  "policy.what": "May",
  "policy.what.read": "Read objects",
  "policy.what.list": "List names",
  "policy.what.readList": "Read and list",
  "policy.what.write": "Write objects",
  "policy.what.delete": "Delete objects",
  "policy.what.all": "Everything",
  "policy.where": "Where",
  "policy.whereHelp": "A folder ends with a slash; * stands for any text. Empty for the whole bucket.",
  "policy.condition": "Only if",
  "policy.if.": "Always",
  "policy.if.from": "The address is in",
  "policy.if.notFrom": "The address is not in",
  "policy.if.secure": "The connection has TLS",
  "policy.if.insecure": "The connection has no TLS",
  "policy.value": "Addresses",
  "policy.valueHelp": "Such as 10.0.0.0/8. Commas between several.",
  "policy.noValue": "Enter an address or a network",
  "policy.sid": "Name",
  "policy.sidHelp": "Optional; shown where the statement decides.",
  "policy.discard": "Discard changes",
  "policy.asks": "{sentence}, without signing in.",
  "policy.json": "JSON",
  "policy.limited": "The setting Public access limits this to the account of the owner.",
  "policy.checkText": "By the policy that is saved.",
});

const VERSION = "2012-10-17";

const write = (document) => JSON.stringify(document, null, 2);

function Sentence({ of, bucket }) {
  const { who, verb, what, keys, condition } = sentenceOf(of, bucket);
  return html`<strong>${shown(who)}</strong> ${verb} ${shown(what)}${keys.map((key, at) => html`${at > 0 && ","} <code>${shown(key)}</code>`)}
    ${condition && " " + shown(condition)}`;
}

function Granted({ statements, bucket, account, block }) {
  const lets = statements.filter((each) => each.Effect === "Allow");
  const opens = statements.some(isOpen);
  return html`
    <div class="notice accent" role="status"><${Icon} name="shield" /><p>
      ${say("policy.owner", { account })}${" "}
      ${statements.map((each) => html`<span class=${isOpen(each) ? "warn" : ""}><${Sentence} of=${each} bucket=${bucket} />.</span>${" "}`)}
      ${!opens && say(lets.length ? "policy.notOpen" : "policy.nobodyElse")}
      ${opens && block && say("policy.limited")}</p></div>
  `;
}

const FIELDS = ["Sid", "Effect", "Principal", "Action", "Resource", "Condition"];

// The fields of a statement; `wrong` has texts by elements.
function StatementForm({ form, change, wrong, names, onDone, at }) {
  const set = (name) => (event) => change({ ...form, [name]: event.target.value });
  const options = (all, group) => all.map((each) => [each, say(group + each)]);
  return html`
    <div class="ruleBody statement">
      <datalist id="principals">${names.map((each) => html`<option value=${each} />`)}</datalist>
      <div class="two">
        <${Select} label=${say("policy.effect")} name="effect" value=${form.effect} onChange=${set("effect")} error=${wrong.Effect}
          options=${["Allow", "Deny"].map((each) => [each, say("policy." + each)])} />
        <${Select} label=${say("policy.who")} name="who" value=${form.who} onChange=${set("who")} error=${form.who === "anyone" ? wrong.Principal : ""}
          options=${options(["account", "anyone"], "policy.who.")} />
        ${form.who === "account" && html`
          <${Field} label=${say("policy.names")} help=${say("policy.namesHelp")} name="names" list="principals" value=${form.names}
            error=${wrong.Principal} onInput=${set("names")} />
        `}
        <${Select} label=${say("policy.what")} name="may" value=${form.may} onChange=${set("may")} error=${wrong.Action}
          options=${options(Object.keys(ACTIONS), "policy.what.")} />
        <${Field} label=${say("policy.where")} help=${say("policy.whereHelp")} name="where" value=${form.where} placeholder="2026/"
          error=${wrong.Resource} onInput=${set("where")} />
        <${Select} label=${say("policy.condition")} name="condition" value=${form.condition} onChange=${set("condition")}
          error=${hasValue(form.condition) ? "" : wrong.Condition} options=${options(["", ...CONDITION_NAMES], "policy.if.")} />
        ${hasValue(form.condition) && html`
          <${Field} label=${say("policy.value")} help=${say("policy.valueHelp")} name="value" value=${form.value} placeholder="10.0.0.0/8"
            error=${wrong.Condition} onInput=${set("value")} />
        `}
        <${Field} label=${say("policy.sid")} help=${say("policy.sidHelp")} name="sid" value=${form.sid} error=${wrong.Sid} onInput=${set("sid")} />
      </div>
      <${Button} kind="small" onClick=${onDone} aria-label=${say("policy.done") + " " + at}>${say("policy.done")}<//>
    </div>
  `;
}

// A statement as a line, and as fields while it is edited. `form` is what the fields have, which may not be valid yet.
function Statement({ statement, bucket, number: at, form, isOpen: isEdited, wrong, names, acts }) {
  const name = statement.Sid || say("policy.statement", { number: at });
  const known = form || formOf(statement, bucket);
  const texts = known ? wrong : {};
  return html`
    <li class=${isEdited ? "isEdited" : ""}>
      <div class="row">
        <h3 class="mono">${shown(String(name))}</h3>
        <span class=${statement.Effect === "Deny" ? "badge gone" : "badge ok"}>${statement.Effect === "Deny" ? say("policy.Deny") : say("policy.Allow")}</span>
        <span class="fill"></span>
        ${known && html`<${IconButton} icon="rename" kind="small" label=${say("policy.edit", { name })} aria-expanded=${isEdited} onClick=${acts.edit} />`}
        <${IconButton} icon="copy" kind="small" label=${say("policy.duplicate", { name })} onClick=${acts.duplicate} />
        <${IconButton} icon="trash" kind="small" label=${say("policy.remove", { name })} onClick=${acts.remove} />
      </div>
      <p><${Sentence} of=${statement} bucket=${bucket} /></p>
      ${!known && html`<p class="help">${say("policy.asJSON")}</p>`}
      ${FIELDS.filter((each) => wrong[each] && !(isEdited && texts[each])).map((each) => html`
        <p class="help bad" role="alert">${each}: ${wrong[each]}</p>`)}
      ${isEdited && known && html`<${StatementForm} form=${known} change=${acts.change} wrong=${texts} names=${names} onDone=${acts.edit} at=${at} />`}
    </li>
  `;
}

// Keys and accounts that a statement can name, as far as the caller may list them.
async function loadNames(signal) {
  const { items } = await call("GET", "keys", { query: { limit: 1000 }, signal });
  return { keys: items.map(({ accessKey, note }) => [accessKey, note ? note + " · " + accessKey : accessKey]), names: [...new Set(items.map((each) => each.account))]
    .concat(items.map((each) => "arn:aws:iam::" + each.account + ":user/" + each.accessKey)) };
}

async function loadBlock(bucket, signal) {
  return call("GET", "buckets/" + segment(bucket) + "/settings/publicAccessBlock", { signal }).catch(() => null);
}

// `statement` is the number of one that a link leads to.
export function Policy({ bucket, info, document, save, remove, examples, statement: wanted }) {
  const before = document === undefined ? "" : write(document);
  const [text, setText] = useState(before);
  // The forms of statements that are edited, by their place: they may have what no statement has yet.
  const [forms, setForms] = useState({});
  const [opened, setOpened] = useState(wanted ? wanted - 1 : -1);
  const rows = useRef();
  const [refusal, setRefusal] = useState(null);
  const known = useLoad((signal) => (has("auditor") ? loadNames(signal) : Promise.resolve({ keys: [], names: [] })), []);
  const block = useLoad((signal) => loadBlock(bucket, signal), []);
  let policy = null;
  let fault = "";
  try {
    policy = text.trim() ? JSON.parse(text) : { Version: VERSION, Statement: [] };
  } catch (error) {
    fault = say("setting.notJSON", { message: error.message });
  }
  const statements = statementsOf(policy);
  if (!fault && !statements) fault = say("setting.malformed", { name: say("setting.name.policy") });
  useLayoutEffect(() => setRefusal(null), [text]);
  useLayoutEffect(() => {
    if (wanted && rows.current) rows.current.children[wanted - 1]?.scrollIntoView({ block: "center" });
  }, []);
  const put = (changed) => setText(write({ ...policy, Statement: changed }));
  const drop = () => {
    setForms({});
    setOpened(-1);
  };
  const acts = (statement, at) => ({
    edit: () => setOpened(opened === at ? -1 : at),
    change: (form) => {
      setForms({ ...forms, [at]: form });
      put(statements.with(at, statementOf(form, bucket)));
    },
    duplicate: () => {
      const { Sid, ...copy } = statement;
      put(statements.toSpliced(at + 1, 0, copy));
      setForms({});
      setOpened(at + 1);
    },
    remove: () => {
      put(statements.toSpliced(at, 1));
      drop();
    },
  });
  const add = () => {
    put([...(statements || []), statementOf(EMPTY, bucket)]);
    setForms({ ...forms, [(statements || []).length]: EMPTY });
    setOpened((statements || []).length);
  };
  const old = new Set((statementsOf(document) || []).map((each) => JSON.stringify(each)));
  const opening = (statements || []).filter((each) => isOpen(each) && !old.has(JSON.stringify(each)));
  const wrongAt = (at) => {
    const form = forms[at];
    const own = refusal && refusal.isShown && form ? wrongOf(form) : {};
    return refusal && refusal.details.statement === at + 1 ? { [refusal.details.element]: refusal.message, ...own } : own;
  };
  async function submit() {
    for (const [at, form] of Object.entries(forms)) {
      const [wrong] = Object.entries(wrongOf(form));
      if (wrong) throw inField(new APIError(0, "", wrong[1]), "policy", { statement: Number(at) + 1, element: wrong[0] });
    }
    await (statements.length ? save(policy) : remove());
  }
  const store = async () => {
    try {
      await submit();
    } catch (error) {
      // The statement shows its own refusal.
      if (error.details && error.details.statement) {
        inField(error, "policy");
        setRefusal(error);
        if (statements[error.details.statement - 1]) setOpened(error.details.statement - 1);
      }
      throw error;
    }
  };
  const isBare = !statements || !statements.length;
  return html`
    ${statements && html`<${Granted} statements=${statements} bucket=${bucket} account=${info ? info.account : ""}
      block=${block.data && String(block.data.RestrictPublicBuckets) === "true"} />`}
    <div class="policy">
      <div>
        ${isBare && !fault && html`<p><strong>${say("policy.none")}.</strong> ${say("policy.noneText")}</p>
          <p class="quiet">${say("setting.examples")}</p>
          <div class="buttons">${Object.entries(examples).map(([example, make]) => html`
            <${Button} kind="small" onClick=${() => {
              setText(write(make(bucket)));
              drop();
            }}>${say("setting.example." + example)}<//>
          `)}</div>`}
        ${fault
          ? html`<p class="bad" role="alert">${fault}</p>`
          : html`<ul ref=${rows} class="statements" aria-label=${say("policy.statements")}>${statements.map((statement, at) => html`
              <${Statement} key=${at} statement=${statement} bucket=${bucket} number=${at + 1} form=${forms[at]} isOpen=${opened === at}
                wrong=${wrongAt(at)} names=${known.data ? known.data.names : []} acts=${acts(statement, at)} />
            `)}</ul>
            <${Button} icon="add" kind="small" onClick=${add}>${say("policy.add")}<//>`}
        <${ChangeForm} save=${store} isChanged=${!fault && text !== before && !(isBare && document === undefined)}
          consequence=${opening.map((each) => say("policy.asks", { sentence: sentenceText(each, bucket) })).join(" ")}>
          ${() => text !== before && html`<${Button} kind="bare small" onClick=${() => {
            setText(before);
            drop();
          }}>${say("policy.discard")}<//>`}
        <//>
      </div>
      <div>
        <div class="code"><header><label for="policyText">${say("policy.json")}</label><${CopyButton} text=${text} /></header>
          <textarea id="policyText" spellcheck=${false} value=${text} aria-invalid=${fault ? "true" : undefined} onInput=${(event) => {
            setText(event.target.value);
            drop();
          }}></textarea></div>
        ${known.data && known.data.keys.length > 0 && html`<section class="card"><h2>${say("check.title")}</h2>
          <p class="quiet">${say("policy.checkText")}</p><${AccessCheck} bucket=${bucket} keys=${known.data.keys} /></section>`}
      </div>
    </div>
  `;
}
