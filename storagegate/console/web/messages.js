// All texts. A name in braces is replaced.
const TEXTS = {
  "app.name": "storagegate",
  "app.skip": "Skip to content",
  "app.offline": "The server does not answer. The page continues when it does.",
  "app.menu": "Pages",
  "app.where": "Path",
  "app.system": "System",
  "app.moreActions": "More",
  "app.version": "Version {version}",
  "app.palette": "Search or jump to",
  "app.keys": "Keyboard shortcuts",
  "app.signOut": "Sign out",
  "app.theme": "Theme",
  "app.theme.system": "System",
  "app.theme.light": "Light",
  "app.theme.dark": "Dark",
  "app.loading": "Loading",
  "app.setting": "Show the configuration",
  "app.settingAsk": "Ask an administrator.",
  "app.retry": "Retry",
  "app.reload": "Reload",
  "app.all": "Show all",
  "app.missing": "A part of the console is missing, as after an update. Reload the whole page.",
  "app.cancel": "Cancel",
  "app.close": "Close",
  "app.save": "Save",
  "app.delete": "Delete",
  "app.copy": "Copy",
  "app.notCopied": "The browser does not allow copying. Select the text instead.",
  "app.copied": "Copied",
  "app.more": "Show more",
  "app.clear": "Clear the field",
  "app.noPage": "Page not found",
  "app.never": "Never",
  "app.none": "None",
  "app.typeName": "Type {name} to confirm",
  "app.stale": "As of {age}",
  "app.code": "Code {code}",
  "app.trace": "Trace {id}",
  "app.forbidden": "Your role does not include this page",
  "app.forbiddenRole": "It requires the role {role}; yours is {own}.",
  "app.actions": "Actions",
  "error.413": "The request is too large for a proxy in front: in nginx raise client_max_body_size.",
  "signIn.title": "Sign in",
  "signIn.accessKey": "Access key",
  "signIn.secretKey": "Secret key",
  "signIn.to": "Sign in to {host}",
  "signIn.see": "Show the secret key",
  "signIn.where": "The first key pair is in the file",
  "signIn.directory": "of the daemon's data directory.",
  "signIn.submit": "Sign in",
  "signIn.with": "Sign in with {label}",
  "signIn.again": "Your session has ended. Sign in to continue; the page keeps what you have typed.",
  "signIn.failed": "The access key or the secret key is wrong.",
  "signIn.wait": "Too many attempts have failed. Try again in {seconds} s.",
  "nav.overview": "Overview",
  "nav.live": "Live",
  "nav.buckets": "Objects",
  "nav.transfers": "Transfers",
  "nav.keys": "Keys",
  "nav.users": "Users",
  "nav.gateway": "Gateway",
  "nav.jobs": "Jobs",
  "nav.maintenance": "Maintenance",
  "nav.configuration": "Configuration",
  "nav.about": "About",
  "nav.sessions": "Sessions",
};

export function say(name, values) {
  const text = TEXTS[name];
  if (text === undefined) return name;
  if (!values) return text;
  return text.replace(/\{(\w+)\}/g, (all, key) => (key in values ? String(values[key]) : all));
}

export function addTexts(texts) {
  Object.assign(TEXTS, texts);
}

const numbers = new Intl.NumberFormat();
// The texts are English, and a date takes one line of a table.
const dates = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
});
export const exactClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const ages = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const number = (value) => numbers.format(value);

// How many, in a list of one text, or of none where there is none.
export const counted = (count, one, many) => (count ? [say(count === 1 ? one : many, { count: number(count) })] : []);

// The value of a field for a date and a time.
export const localTime = (ms) => (ms ? new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 16) : "");

export const date = (ms) => (ms ? dates.format(ms) : say("app.never"));

export function age(ms, now = Date.now()) {
  const seconds = Math.round((ms - now) / 1000);
  const steps = [["day", 86400], ["hour", 3600], ["minute", 60]];
  for (const [unit, size] of steps)
    if (Math.abs(seconds) >= size) return ages.format(Math.trunc(seconds / size), unit);
  return ages.format(seconds, "second");
}

export function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit && value < 100 ? 1 : 0;
  return new Intl.NumberFormat(undefined, { maximumFractionDigits: digits }).format(value) + " " + UNITS[unit];
}

// A change of a value, with its sign.
export const signed = (value, format) => (value > 0 ? "+" : value < 0 ? "−" : "") + format(Math.abs(value));
