// minio-js stores, reads and copies objects of each kind of encryption, and configures a bucket.
// Arguments: port, access key, secret key, bucket.

const assert = require("node:assert");
const crypto = require("node:crypto");
const { Client } = require("minio");

const [port, accessKey, secretKey, bucket] = process.argv.slice(2);
const client = new Client({
  endPoint: "127.0.0.1", port: Number(port), useSSL: false, accessKey, secretKey,
});

const key = Buffer.from([...Array(32).keys()]);
const customer = {
  SSECustomerAlgorithm: "AES256",
  SSECustomerKey: key.toString("base64"),
  SSECustomerKeyMD5: crypto.createHash("md5").update(key).digest("base64"),
};
const PREFIX = "X-Amz-Server-Side-Encryption";
const headers = {
  [PREFIX + "-Customer-Algorithm"]: customer.SSECustomerAlgorithm,
  [PREFIX + "-Customer-Key"]: customer.SSECustomerKey,
  [PREFIX + "-Customer-Key-MD5"]: customer.SSECustomerKeyMD5,
};

async function read(name, options) {
  const chunks = [];
  for await (const chunk of await client.getObject(bucket, name, options)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function main() {
  const small = Buffer.from("from minio-js");
  await client.putObject(bucket, "c", small, small.length, headers);
  assert.deepStrictEqual(await read("c", customer), small);
  const part = await client.getPartialObject(bucket, "c", 5, 5, customer);
  assert.strictEqual((await part.toArray()).join(""), "minio");
  await assert.rejects(read("c"), (error) => error.code === "InvalidRequest");

  const large = Buffer.alloc(70 << 20, "0123456789abcdef");
  for (const [name, kind] of [["s3", "AES256"], ["kms", "aws:kms"]]) {
    for (const body of [small, large]) {
      await client.putObject(bucket, name, body, body.length, { [PREFIX]: kind });
      assert.ok((await read(name)).equals(body));
    }
  }

  await client.setBucketEncryption(bucket, {
    Rule: [{ ApplyServerSideEncryptionByDefault: { SSEAlgorithm: "aws:kms", KMSMasterKeyID: "default" } }],
  });
  const found = await client.getBucketEncryption(bucket);
  assert.ok(JSON.stringify(found).includes("aws:kms"), JSON.stringify(found));
  await client.putObject(bucket, "default", small, small.length);
  await client.removeBucketEncryption(bucket);
  await assert.rejects(
    client.getBucketEncryption(bucket),
    (error) => error.code === "ServerSideEncryptionConfigurationNotFoundError",
  );
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
