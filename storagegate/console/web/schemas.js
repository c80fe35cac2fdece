// JSON Schema: references, examples, and the fields that a form can have.

const SIMPLE = new Set(["string", "integer", "number", "boolean", "texts"]);
const MOST_FIELDS = 20;
const DEEPEST = 6;
const DEEPEST_FIELDS = 2;
const MOST_ROWS = 60;
const MOST_FAULTS = 8;

// What a reference into `schemas` leads to; "#/components/schemas/NAME/..." is one.
export function resolved(schema, schemas) {
  let found = schema;
  for (let step = 0; found && typeof found.$ref === "string" && step < DEEPEST; step += 1) {
    const parts = found.$ref.split("/").slice(3);
    found = parts.reduce(
      (at, part) => at && at[decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~")], schemas,
    );
  }
  return found || {};
}

const typeOf = (schema) =>
  Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type;

function text(schema) {
  if (schema.format === "date-time") return new Date().toISOString();
  if (schema.format === "date") return new Date().toISOString().slice(0, 10);
  if (schema.format === "email") return "ada@example.com";
  if (schema.format === "uuid") return crypto.randomUUID();
  return "text".padEnd(Math.min(schema.minLength || 0, 1000), "x").slice(0, schema.maxLength);
}

// A value that fits a schema, as far as it can be told from it.
export function example(schema, schemas, depth = 0) {
  const found = resolved(schema, schemas);
  for (const name of ["const", "default"]) if (name in found) return found[name];
  if (found.examples && found.examples.length) return found.examples[0];
  if (found.enum) return found.enum[0];
  if (depth > DEEPEST) return null;
  if (found.allOf) return Object.assign({}, ...found.allOf.map((each) => example(each, schemas, depth + 1)));
  const choice = (found.anyOf || found.oneOf || []).find((each) => typeOf(resolved(each, schemas)) !== "null");
  if (choice) return example(choice, schemas, depth + 1);
  const type = typeOf(found) || (found.properties ? "object" : undefined);
  if (type === "string") return text(found);
  if (type === "integer" || type === "number") return found.minimum ?? Math.min(1, found.maximum ?? 1);
  if (type === "boolean") return true;
  if (type === "array") return found.items ? [example(found.items, schemas, depth + 1)] : [];
  if (type !== "object") return depth ? null : {};
  const entries = Object.entries(found.properties || {});
  return Object.fromEntries(entries.map(([name, each]) => [name, example(each, schemas, depth + 1)]));
}

// The kind of a value in words: "string, at most 64 characters".
export function hintOf(schema, schemas) {
  const found = resolved(schema, schemas);
  const choice = (found.anyOf || found.oneOf || []).map((each) => resolved(each, schemas)).find((each) => typeOf(each) !== "null");
  if (choice) return hintOf(choice, schemas);
  const parts = [typeOf(found) || (found.properties ? "object" : "any value")];
  if (parts[0] === "array" && found.items) parts[0] = "list of " + hintOf(found.items, schemas);
  if (found.format) parts.push(found.format);
  const between = (least, most, unit) => {
    if (least !== undefined && most !== undefined) parts.push(`${least} to ${most}${unit}`);
    else if (least !== undefined) parts.push(`at least ${least}${unit}`);
    else if (most !== undefined) parts.push(`at most ${most}${unit}`);
  };
  between(found.minimum, found.maximum, "");
  between(found.minLength || undefined, found.maxLength, " characters");
  between(found.minItems || undefined, found.maxItems, " items");
  if (found.pattern) parts.push("matches " + found.pattern);
  if (found.default !== undefined && found.default !== null && found.default !== "") parts.push("default " + JSON.stringify(found.default));
  return parts.join(", ");
}

// The fields of a schema and of what it contains: [{name, hint, choices, required, text}].
export function fieldsOf(schema, schemas, start = "", depth = 0) {
  const found = resolved(schema, schemas);
  return Object.entries(found.properties || {}).flatMap(([name, each]) => {
    const own = resolved(each, schemas);
    const inner = typeOf(own) === "array" ? resolved(own.items || {}, schemas) : own;
    const full = start + name;
    const row = {
      name: full, hint: hintOf(each, schemas), choices: own.enum || inner.enum,
      required: (found.required || []).includes(name), text: each.description || own.description || "",
    };
    const isDeep = depth < DEEPEST_FIELDS && inner.properties;
    return [row, ...(isDeep ? fieldsOf(inner, schemas, full + (inner === own ? "." : "[]."), depth + 1) : [])];
  }).slice(0, MOST_ROWS);
}

const KINDS = {
  string: (value) => typeof value === "string", boolean: (value) => typeof value === "boolean",
  integer: Number.isInteger, number: (value) => typeof value === "number", array: Array.isArray,
  null: (value) => value === null, object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

// What a value lacks of a schema, as far as it can be told: [[place, kind, detail]].
export function faultsOf(value, schema, schemas, place = "", depth = 0) {
  const found = resolved(schema, schemas);
  const choices = found.anyOf || found.oneOf;
  if (depth > DEEPEST) return [];
  if (choices) {
    const faults = choices.map((each) => faultsOf(value, each, schemas, place, depth + 1));
    return faults.reduce((one, other) => (other.length < one.length ? other : one));
  }
  const types = [found.type || []].flat();
  if (types.length && !types.some((type) => !KINDS[type] || KINDS[type](value))) return [[place, "type", types.join(" or ")]];
  if (found.enum && !found.enum.includes(value)) return [[place, "enum", found.enum.join(", ")]];
  if (KINDS.array(value)) return value.flatMap((each, at) => faultsOf(each, found.items || {}, schemas, `${place}[${at}]`, depth + 1));
  if (!KINDS.object(value)) return [];
  const inside = (name) => (place ? place + "." : "") + name;
  const properties = found.properties || {};
  return [
    ...(found.required || []).filter((name) => !(name in value)).map((name) => [inside(name), "missing", ""]),
    ...Object.entries(value).flatMap(([name, each]) => {
      if (properties[name]) return faultsOf(each, properties[name], schemas, inside(name), depth + 1);
      return found.additionalProperties === false ? [[inside(name), "unknown", ""]] : [];
    }),
  ].slice(0, MOST_FAULTS);
}

// The fields of a form: [{name, type, choices, required, hint, text}]; null if a form cannot have them all.
export function formFields(schema, schemas) {
  const found = resolved(schema, schemas);
  const entries = Object.entries(found.properties || {});
  if (typeOf(found) !== "object" || !entries.length || entries.length > MOST_FIELDS) return null;
  const fields = entries.map(([name, each]) => {
    const own = resolved(each, schemas);
    const isTexts = typeOf(own) === "array" && typeOf(resolved(own.items || {}, schemas)) === "string";
    return {
      name, type: isTexts ? "texts" : typeOf(own), choices: own.enum, required: (found.required || []).includes(name),
      hint: hintOf(each, schemas), text: each.description || own.description || "",
    };
  });
  return fields.every((field) => SIMPLE.has(field.type)) ? fields : null;
}
