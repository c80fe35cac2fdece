// minio-js with temporary keys: given ones, and ones that its provider gets from STS.
// Arguments: port, access key, secret key, session token, bucket; access key and secret key of a user.

const assert = require("node:assert");
const { Client } = require("minio");
const { AssumeRoleProvider } = require("minio/dist/main/AssumeRoleProvider.js");

const [port, accessKey, secretKey, sessionToken, bucket, userKey, userSecret] = process.argv.slice(2);
const place = { endPoint: "127.0.0.1", port: Number(port), useSSL: false, region: "us-east-1" };

async function read(client, name) {
  const chunks = [];
  for await (const chunk of await client.getObject(bucket, name)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function main() {
  const given = new Client({ ...place, accessKey, secretKey, sessionToken });
  const large = Buffer.alloc(6 << 20, "0123456789abcdef");
  given.partSize = 5 << 20;
  await given.putObject(bucket, "large", large, large.length);
  assert.ok((await read(given, "large")).equals(large));

  const credentialsProvider = new AssumeRoleProvider({
    stsEndpoint: `http://127.0.0.1:${port}`,
    accessKey: userKey,
    secretKey: userSecret,
    region: "us-east-1",
  });
  const provided = new Client({ ...place, credentialsProvider });
  assert.ok((await read(provided, "large")).equals(large));
  const credentials = await credentialsProvider.getCredentials();
  assert.ok(credentials.getSessionToken());
  await assert.rejects(
    provided.putObject(bucket, "other", "x"),
    (error) => error.code === "AccessDenied",
  );
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
