// What this browser keeps: the colours.

const NAME = "storagegate-settings";

export function settings() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) || {};
  } catch {
    return {};
  }
}

export function changeSettings(values) {
  localStorage.setItem(NAME, JSON.stringify({ ...settings(), ...values }));
  applySettings();
}

export function applySettings() {
  document.documentElement.dataset.theme = settings().theme || "system";
}
