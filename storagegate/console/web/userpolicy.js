// The editor of the policy of a user, a group or a role: JSON, with the place of an error.

import { useRef, useState } from "preact/hooks";
import { addTexts, say } from "./messages.js";
import { Dialog, Field, Form, html } from "./ui.js";

addTexts({
  "userPolicy.title": "Policy {name}",
  "userPolicy.new": "New inline policy",
  "userPolicy.name": "Name",
  "userPolicy.document": "Policy",
  "userPolicy.help": "JSON with Version 2012-10-17; without Principal.",
  "userPolicy.place": "Statement {statement}, {element}: {message}",
  "userPolicy.statement": "Statement {statement}: {message}",
});

const EXAMPLE = {
  Version: "2012-10-17",
  Statement: [{ Effect: "Allow", Action: ["s3:GetObject", "s3:ListBucket"], Resource: ["arn:aws:s3:::BUCKET", "arn:aws:s3:::BUCKET/*"] }],
};

// Where the statement of a number, from 1, begins and ends in a text, or where JSON ceases to be valid.
function placeOf(text, { statement }, fault) {
  if (fault) {
    const found = /position (\d+)/.exec(fault.message);
    const at = found ? Number(found[1]) : text.length;
    return [at, at + 1];
  }
  let depth = 0;
  let count = 0;
  let from = -1;
  for (const { index, 0: token } of text.matchAll(/"(?:\\.|[^"\\])*"|[{}]/g)) {
    if (token === "{" && ++depth === 2 && ++count === statement) from = index;
    if (token === "}" && depth-- === 2 && count === statement && from >= 0) return [from, index + 1];
  }
  return null;
}

function messageOf(error) {
  const { statement, element } = error.details || {};
  const values = { statement, element, message: error.message };
  if (!statement) return error.message;
  return say(element ? "userPolicy.place" : "userPolicy.statement", values);
}

// `of` has the name and the document, empty for new ones, and `save(name, document)`.
export function PolicyDialog({ of, onClose }) {
  const [name, setName] = useState(of.name);
  const [text, setText] = useState(of.document || JSON.stringify(EXAMPLE, null, 2));
  const [wrong, setWrong] = useState("");
  const area = useRef();
  function show(error, fault) {
    const place = placeOf(text, error.details || {}, fault);
    if (place) {
      area.current.focus();
      area.current.setSelectionRange(...place);
    }
    setWrong(fault ? fault.message : messageOf(error));
    error.isShown = true;
  }
  async function submit() {
    try {
      JSON.parse(text);
    } catch (fault) {
      show(fault, fault);
      return;
    }
    try {
      await of.save(name, text);
    } catch (error) {
      if (error.code === "MalformedPolicyDocument") show(error);
      throw error;
    }
    onClose();
  }
  return html`
    <${Dialog} wide title=${of.title || (of.name ? say("userPolicy.title", { name: of.name }) : say("userPolicy.new"))} onClose=${onClose}>
      <${Form} submit=${submit} label=${say("app.save")} onCancel=${onClose}>
        ${!of.name && html`<${Field} label=${say("userPolicy.name")} required value=${name} onInput=${(event) => setName(event.target.value)} />`}
        <${Field} label=${say("userPolicy.document")} help=${say("userPolicy.help")} error=${wrong}>
          ${(given) => html`<textarea ...${given} ref=${area} name="policy" spellcheck=${false} rows="16" value=${text}
            aria-invalid=${wrong ? "true" : undefined} onInput=${(event) => {
              setText(event.target.value);
              setWrong("");
            }}></textarea>`}
        <//>
      <//>
    <//>
  `;
}
