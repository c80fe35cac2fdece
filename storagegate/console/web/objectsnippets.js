// How other programs fetch an object, as text to copy: quoted for any key, and never with a secret.

import { shown } from "./objectnames.js";

// Each byte but letters, digits and four signs; slashes stay.
const encoded = (key) =>
  encodeURIComponent(key).replace(/%2F/g, "/").replace(/[!'()*]/g, (each) =>
    "%" + each.charCodeAt(0).toString(16).toUpperCase());

// A word of a POSIX shell; with what cannot be seen, of bash and zsh.
export function quoted(text) {
  if (/^[\w.,:/@%+-]+$/.test(text)) return text;
  if (shown(text) === text) return "'" + text.replace(/'/g, "'\\''") + "'";
  const written = text.replace(/[\\']/g, "\\$&");
  const bytes = (each) =>
    Array.from(new TextEncoder().encode(each), (byte) => "\\x" + byte.toString(16).padStart(2, "0")).join("");
  return "$'" + Array.from(written, (each) => (shown(each) === each ? each : bytes(each))).join("") + "'";
}

const literal = (text) =>
  Array.from(JSON.stringify(text), (each) =>
    shown(each) === each ? each : "\\u" + each.charCodeAt(0).toString(16).padStart(4, "0")).join("");

function fileName(key) {
  const last = key.replace(/\/+$/, "").split("/").pop();
  return last.replace(/[^\w.-]/g, "_").replace(/^[.-]+/, "").slice(0, 100) || "object";
}

// rclone takes a path to pieces and cleans it.
const isPath = (key) =>
  shown(key) === key && !key.split("/").some((part) => part === "" || part === "." || part === "..");

// {endpoint, region} say where S3 is. Returns {aws, rclone, curl, python}; empty: it cannot name the key.
export function snippets({ endpoint, region, bucket, key, versionId }) {
  const file = fileName(key);
  const hasNull = key.includes("\0");
  // Of a value that begins with a scheme, the program would read a file or an address.
  const named = /^(https?|fileb?):/.test(key)
    ? "--cli-input-json " + quoted(JSON.stringify({ Bucket: bucket, Key: key }))
    : "--bucket " + bucket + " --key=" + quoted(key);
  const version = versionId ? " --version-id=" + quoted(versionId) : "";
  const query = versionId ? "?versionId=" + encodeURIComponent(versionId) : "";
  const more = versionId ? ", VersionId=" + literal(versionId) : "";
  return {
    aws: hasNull ? "" : "aws --endpoint-url " + quoted(endpoint) + " --region " + quoted(region) +
      " s3api get-object \\\n  " + named + version + " " + file,
    rclone: !isPath(key) || versionId ? "" :
      "rclone --s3-provider Other --s3-env-auth --s3-endpoint " + quoted(endpoint) +
      " --s3-region " + quoted(region) + " \\\n  copyto " + quoted(":s3:" + bucket + "/" + key) + " " + file,
    curl: "curl --fail --path-as-is --globoff --aws-sigv4 " + quoted("aws:amz:" + region + ":s3") +
      " \\\n  --user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" \\\n" +
      "  --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --output " + file + " " +
      quoted(endpoint + "/" + bucket + "/" + encoded(key) + query),
    python: "import boto3\n\ns3 = boto3.client(\"s3\", endpoint_url=" + literal(endpoint) +
      ", region_name=" + literal(region) + ")\nfound = s3.get_object(Bucket=" + literal(bucket) +
      ", Key=" + literal(key) + more + ")\nwith open(" + literal(file) + ", \"wb\") as file:\n" +
      "    for chunk in found[\"Body\"].iter_chunks():\n        file.write(chunk)",
  };
}
