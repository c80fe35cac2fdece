// Statements of a policy as the form has them, and as sentences. A statement is what the form has only if the form makes
// the very same statement of it; another one is shown as a sentence, and changed as JSON.

import { say } from "./messages.js";

const BUCKET = "arn:aws:s3:::";
const IDENTITY = "arn:aws:iam::";

// What a statement may name, by what people call it.
export const ACTIONS = {
  read: ["s3:GetObject"],
  list: ["s3:ListBucket"],
  readList: ["s3:GetObject", "s3:ListBucket"],
  write: ["s3:PutObject"],
  delete: ["s3:DeleteObject"],
  all: ["s3:*"],
};

const ON_BUCKET = new Set(["list", "readList"]);

const CONDITIONS = {
  from: ["IpAddress", "aws:SourceIp"],
  notFrom: ["NotIpAddress", "aws:SourceIp"],
  secure: ["Bool", "aws:SecureTransport", "true"],
  insecure: ["Bool", "aws:SecureTransport", "false"],
};

export const CONDITION_NAMES = Object.keys(CONDITIONS);

export const hasValue = (condition) => condition === "from" || condition === "notFrom";

export const list = (value) => (value === undefined || value === "" ? [] : [].concat(value));

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

const one = (values) => (values.length === 1 ? values[0] : values);

export const EMPTY = { sid: "", effect: "Allow", who: "account", names: "", may: "read", where: "", condition: "", value: "" };

// A folder stands for all that is below it.
const patternOf = (where) => (!where || where.endsWith("/") ? where + "*" : where);

export function statementOf(form, bucket) {
  const found = form.sid ? { Sid: form.sid } : {};
  found.Effect = form.effect;
  found.Principal = form.who === "anyone" ? "*" : { AWS: one(words(form.names)) };
  found.Action = one(ACTIONS[form.may]);
  const pattern = patternOf(form.where);
  const resources = [];
  if (ON_BUCKET.has(form.may) || (form.may === "all" && !form.where)) resources.push(BUCKET + bucket);
  if (form.may !== "list") resources.push(BUCKET + bucket + "/" + pattern);
  found.Resource = one(resources);
  const conditions = {};
  if (form.may === "list" && form.where) conditions.StringLike = { "s3:prefix": pattern };
  if (form.condition) {
    const [operator, key, fixed] = CONDITIONS[form.condition];
    conditions[operator] = { [key]: fixed || one(words(form.value)) };
  }
  if (Object.keys(conditions).length) found.Condition = conditions;
  return found;
}

// A text that is the same for statements that mean the same.
function normal(value) {
  if (Array.isArray(value)) return value.length === 1 ? normal(value[0]) : JSON.stringify(value.map(normal).sort());
  if (value && typeof value === "object")
    return "{" + Object.keys(value).sort().map((name) => name + ":" + normal(value[name])).join() + "}";
  return JSON.stringify([JSON.stringify(value)]);
}

function mayOf(actions) {
  const sorted = [...actions].sort().join();
  const found = Object.entries(ACTIONS).find(([, names]) => [...names].sort().join() === sorted);
  return found ? found[0] : "";
}

// The form of a statement; null if the form cannot have it.
export function formOf(statement, bucket) {
  if (!statement || typeof statement !== "object") return null;
  const { Sid = "", Effect, Principal, Action, Resource, Condition = {} } = statement;
  const isAnyone = Principal === "*";
  const names = isAnyone || !Principal ? [] : list(Principal.AWS);
  const may = mayOf(list(Action));
  if (!may || typeof Sid !== "string" || [...names, ...list(Resource)].some((each) => typeof each !== "string")) return null;
  const below = list(Resource).filter((each) => each.startsWith(BUCKET + bucket + "/"));
  const key = below.length ? below[0].slice((BUCKET + bucket + "/").length) : "";
  const prefix = may === "list" && Condition.StringLike ? Condition.StringLike["s3:prefix"] : "";
  const text = may === "list" ? prefix || "" : key;
  const form = { ...EMPTY, sid: Sid, effect: Effect, who: isAnyone ? "anyone" : "account", names: names.join(", "), may };
  if (typeof text !== "string") return null;
  form.where = text === "*" ? "" : text.endsWith("/*") && !/[*?]/.test(text.slice(0, -1)) ? text.slice(0, -1) : text;
  for (const [name, [operator, condition, fixed]] of Object.entries(CONDITIONS)) {
    const value = Condition[operator] && Condition[operator][condition];
    if (value === undefined || (fixed && String(value) !== fixed)) continue;
    form.condition = name;
    if (!fixed) form.value = list(value).join(", ");
  }
  return normal(statementOf(form, bucket)) === normal(statement) ? form : null;
}

// What is wrong with a form: {element: text}, by the elements of statements.
export function wrongOf(form) {
  const found = {};
  if (form.who !== "anyone" && !words(form.names).length) found.Principal = say("policy.noNames");
  if (hasValue(form.condition) && !words(form.value).length) found.Condition = say("policy.noValue");
  return found;
}

function nameOf(text) {
  if (typeof text !== "string") return "?";
  if (!text.startsWith(IDENTITY)) return text === "*" ? say("policy.anyone") : say("policy.account", { name: text });
  const at = text.lastIndexOf(":");
  const account = text.slice(IDENTITY.length, at);
  const user = text.slice(at + 1).replace(/^user\//, "");
  return user === "root" ? say("policy.account", { name: account }) : say("policy.key", { name: user, account });
}

function whoOf({ Principal, NotPrincipal }) {
  const named = Principal === undefined ? NotPrincipal : Principal;
  let text = "?";
  if (named === "*") text = say("policy.anyone");
  else if (named && typeof named === "object") text = Object.values(named).flatMap(list).map(nameOf).join(", ") || say("policy.nobody");
  return Principal === undefined ? say("policy.but", { who: text }) : text;
}

// [words, the patterns of keys or actions that they end with].
function whatOf({ Action, NotAction, Resource, NotResource }, bucket) {
  const may = Action === undefined ? "" : mayOf(list(Action));
  const resources = list(Resource === undefined ? NotResource : Resource).map(String);
  const start = BUCKET + bucket + "/";
  const keys = resources.filter((each) => each.startsWith(start)).map((each) => each.slice(start.length));
  const isWhole = Resource !== undefined && (keys.includes("*") || resources.includes(BUCKET + bucket + "*"));
  if (!may) {
    const actions = list(Action === undefined ? NotAction : Action).join(", ");
    return [say(Action === undefined ? "policy.mayBut" : "policy.mayOwn", { actions }),
      NotResource === undefined ? (isWhole ? [] : keys) : [say("policy.otherThan"), ...keys]];
  }
  if (NotResource !== undefined) return [say("policy.may." + may), [say("policy.otherThan"), ...keys]];
  if (may === "list" || (isWhole && may !== "all")) return [say("policy.mayWhole." + may), []];
  return isWhole ? [say("policy.mayWhole.all"), []] : [say("policy.may." + may), keys];
}

function conditionOf({ Condition }) {
  const found = Object.entries(Condition || {}).flatMap(([operator, keys]) =>
    Object.entries(keys || {}).map(([key, value]) => [operator, key, list(value).join(", ")]));
  return found.map(([operator, key, value]) => {
    if (operator === "StringLike" && key === "s3:prefix") return say("policy.when.prefix", { value });
    const known = Object.entries(CONDITIONS).find(([, [o, k, fixed]]) => o === operator && k === key && (!fixed || fixed === value));
    return known ? say("policy.when." + known[0], { value }) : say("policy.when", { operator, key, value });
  }).join(" ");
}

// {who, verb, what, keys, condition} of a statement: the parts of the sentence that says what it does.
export function sentenceOf(statement, bucket) {
  const [what, keys] = whatOf(statement, bucket);
  const who = whoOf(statement);
  const isDeny = statement.Effect === "Deny";
  // "Anyone may not" would mean that someone may.
  const isNoOne = isDeny && who === say("policy.anyone");
  const all = say("policy.mayWhole.all");
  return {
    who: isNoOne ? say("policy.noOne") : who, verb: say(isDeny && !isNoOne ? "policy.mayNot" : "policy.mayDo"),
    what: isDeny && what === all ? say("policy.anything") : what, keys, condition: conditionOf(statement),
  };
}

export const sentenceText = (statement, bucket) => {
  const { who, verb, what, keys, condition } = sentenceOf(statement, bucket);
  return [who, verb, what, keys.join(", "), condition].filter(Boolean).join(" ");
};

const NARROW = new Set(["IpAddress", "StringEquals", "StringLike", "ArnLike", "ArnEquals"]);

// Whether a statement lets in requests without a signature, or of any account. A condition on who asks may narrow it.
export const isOpen = (statement) =>
  statement.Effect === "Allow" && (statement.NotPrincipal !== undefined || statement.Principal === "*" ||
    list(statement.Principal && statement.Principal.AWS).includes("*")) &&
  !Object.entries(statement.Condition || {}).some(([operator, keys]) =>
    NARROW.has(operator) && Object.keys(keys || {}).some((key) => key.startsWith("aws:")));

// The statements of a document; null if it has none that can be read.
export function statementsOf(document) {
  if (!document || typeof document !== "object" || Array.isArray(document)) return null;
  const found = document.Statement === undefined ? [] : list(document.Statement);
  return found.every((each) => each && typeof each === "object") ? found : null;
}
