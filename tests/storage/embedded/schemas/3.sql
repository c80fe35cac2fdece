-- A store with schema 3, written by the last program that had it; see test_schemas.py.
-- blobs/store-id: "db142b7aacb6c4aa549f0ead37ee0ffb\n"
-- blobs/95/78/95780f9e4863b7531e2314ba00e82bf5: "bytes in a blob"
-- blobs/95/78/957824a04c81e898570194c2022bee87: "first"
-- blobs/95/78/9578fa0833590ad5d0542151ae2b2eef: "second"
BEGIN TRANSACTION;
CREATE TABLE accessKeys (
        accessKey TEXT PRIMARY KEY,
        secretKey TEXT NOT NULL,
        account TEXT NOT NULL,
        policy TEXT NOT NULL,
        bucketPattern TEXT NOT NULL,
        prefixPattern TEXT NOT NULL,
        email TEXT NOT NULL,
        createdMs INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "accessKeys" VALUES('EH5FP06YHE1ZKVQ8KB7Z','secret','ann','readonly','photos','','',1795921765243);
CREATE TABLE blobs (
        id TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        damaged INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "blobs" VALUES('95780f9e4863b7531e2314ba00e82bf5',15,2920557681,2,0);
INSERT INTO "blobs" VALUES('957824a04c81e898570194c2022bee87',5,2319360336,1,0);
INSERT INTO "blobs" VALUES('9578fa0833590ad5d0542151ae2b2eef',6,2063438888,1,0);
CREATE TABLE buckets (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        account TEXT NOT NULL,
        createdMs INTEGER NOT NULL,
        region TEXT NOT NULL
    , ownership TEXT NOT NULL DEFAULT '') STRICT
    ;
INSERT INTO "buckets" VALUES(1,'photos','root',1795921762072,'us-east-1','');
INSERT INTO "buckets" VALUES(2,'owned','root',1795921762103,'us-east-1','BucketOwnerEnforced');
CREATE TABLE inline (
        sequence INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL
    ) STRICT
    ;
INSERT INTO "inline" VALUES(1,X'6120736D616C6C20626F6479');
INSERT INTO "inline" VALUES(2,X'6120736D616C6C20626F6479');
CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "meta" VALUES('keysGeneration',1);
INSERT INTO "meta" VALUES('secret',X'EEC86B7429A76B5C095A306A65759B730EB144F44FBFA9AA40801A1001B5D446');
INSERT INTO "meta" VALUES('sequence',512);
CREATE TABLE objects (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        versionId TEXT NOT NULL,
        deleteMarker INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        modifiedMs INTEGER NOT NULL,
        account TEXT NOT NULL,
        storageClass TEXT NOT NULL,
        checksumAlgorithm TEXT NOT NULL,
        checksumKind TEXT NOT NULL,
        storageChecksum INTEGER,
        attributes TEXT NOT NULL,
        segments TEXT,
        PRIMARY KEY (bucketId, key, sequence DESC)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "objects" VALUES(1,X'323032362F636166C3A92E747874',1,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921762131,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL);
INSERT INTO "objects" VALUES(1,X'636F7079',2,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921762198,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL);
INSERT INTO "objects" VALUES(1,X'7061727473',3,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921762505,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"},"number":3,"size":15}]}','[["95780f9e4863b7531e2314ba00e82bf5",0,15]]');
INSERT INTO "objects" VALUES(1,X'706172747320616761696E',4,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921762527,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"},"number":3,"size":15}]}','[["95780f9e4863b7531e2314ba00e82bf5",0,15]]');
CREATE TABLE parts (
        uploadId TEXT NOT NULL,
        number INTEGER NOT NULL,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        modifiedMs INTEGER NOT NULL,
        checksum TEXT,
        segments TEXT,
        PRIMARY KEY (uploadId, number)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "parts" VALUES('2c016863136ff6a5feb988e7eb4aa343de517bc2d93e3713',1,5,'8b04d5e3775d298e78455efc5ca404d5',1795921762602,'{"algorithm":"CRC32","value":"knHuVw==","kind":"FULL_OBJECT"}','[["957824a04c81e898570194c2022bee87",0,5]]');
INSERT INTO "parts" VALUES('2c016863136ff6a5feb988e7eb4aa343de517bc2d93e3713',2,6,'a9f0e61a137d86aa9db53465e0801612',1795921762642,'{"algorithm":"CRC32","value":"th8RaQ==","kind":"FULL_OBJECT"}','[["9578fa0833590ad5d0542151ae2b2eef",0,6]]');
CREATE TABLE uploads (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        uploadId TEXT NOT NULL,
        account TEXT NOT NULL,
        startedMs INTEGER NOT NULL,
        checksumAlgorithm TEXT NOT NULL,
        checksumKind TEXT NOT NULL,
        attributes TEXT NOT NULL,
        PRIMARY KEY (bucketId, key, uploadId)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "uploads" VALUES(1,X'70656E64696E67','2c016863136ff6a5feb988e7eb4aa343de517bc2d93e3713','root',1795921762569,'','','{"contentType":"binary/octet-stream","metadata":{"by":"bob"}}');
CREATE TABLE usage (
        bucketId INTEGER PRIMARY KEY,
        objects INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        uploads INTEGER NOT NULL,
        uploadBytes INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "usage" VALUES(1,4,54,1,11);
CREATE INDEX bucketsByAccount ON buckets (account, name);
CREATE INDEX blobsUnnamed ON blobs (id) WHERE refs = 0;
CREATE INDEX blobsDamaged ON blobs (id) WHERE damaged;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('buckets',2);
COMMIT;
PRAGMA user_version = 3;
