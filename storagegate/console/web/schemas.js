// JSON Schema: references, examples, and the fields that a form can have.

const SIMPLE = new Set(["string", "integer", "number", "boolean"]);
const MOST_FIELDS = 20;
const DEEPEST = 6;

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

// The fields of a form: [{name, type, choices, required}]; null if a form cannot have them all.
export function formFields(schema, schemas) {
  const found = resolved(schema, schemas);
  const entries = Object.entries(found.properties || {});
  if (typeOf(found) !== "object" || !entries.length || entries.length > MOST_FIELDS) return null;
  const fields = entries.map(([name, each]) => {
    const own = resolved(each, schemas);
    return { name, type: typeOf(own), choices: own.enum, required: (found.required || []).includes(name) };
  });
  return fields.every((field) => SIMPLE.has(field.type)) ? fields : null;
}
