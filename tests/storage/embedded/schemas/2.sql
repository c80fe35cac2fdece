-- A store with schema 2, written by the last program that had it; see test_schemas.py.
-- blobs/store-id: "31d7a20195d8f7ad1e98f9e16a10a0de\n"
-- blobs/bc/62/bc626fdd56e8e0738d93cae02d3164fa: "second"
-- blobs/bc/62/bc629b93eb6d45a493ebd431888d4e15: "bytes in a blob"
-- blobs/bc/62/bc62d7f26b7ecab83c6419cf841e3307: "first"
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
INSERT INTO "accessKeys" VALUES('3LEOHEXVXSDERFVRNZ6A','secret','ann','readonly','photos','','',1795921754493);
CREATE TABLE blobs (
        id TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        damaged INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "blobs" VALUES('bc626fdd56e8e0738d93cae02d3164fa',6,2063438888,1,0);
INSERT INTO "blobs" VALUES('bc629b93eb6d45a493ebd431888d4e15',15,2920557681,2,0);
INSERT INTO "blobs" VALUES('bc62d7f26b7ecab83c6419cf841e3307',5,2319360336,1,0);
CREATE TABLE buckets (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        account TEXT NOT NULL,
        createdMs INTEGER NOT NULL,
        region TEXT NOT NULL
    , ownership TEXT NOT NULL DEFAULT '') STRICT
    ;
INSERT INTO "buckets" VALUES(1,'photos','root',1795921751899,'us-east-1','');
INSERT INTO "buckets" VALUES(2,'owned','root',1795921751955,'us-east-1','BucketOwnerEnforced');
CREATE TABLE inline (
        sequence INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL
    ) STRICT
    ;
INSERT INTO "inline" VALUES(1,X'6120736D616C6C20626F6479');
INSERT INTO "inline" VALUES(513,X'6120736D616C6C20626F6479');
CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "meta" VALUES('keysGeneration',1);
INSERT INTO "meta" VALUES('secret',X'68772497D34636F1CB1E25C44DEE187BC832374EE2FDCD400711A70877B38FE7');
INSERT INTO "meta" VALUES('sequence',2048);
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
INSERT INTO "objects" VALUES(1,X'323032362F636166C3A92E747874',1,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921752010,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"6qCDiA=="},"storageClass":"STANDARD_IA"}',NULL);
INSERT INTO "objects" VALUES(1,X'636F7079',513,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921752085,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"6qCDiA=="},"storageClass":"STANDARD_IA"}',NULL);
INSERT INTO "objects" VALUES(1,X'7061727473',1025,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921752303,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","kind":"COMPOSITE","value":"iOjV1w==-1"},"parts":[{"checksum":{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"8j20eQ=="},"number":3,"size":15}]}','[["bc629b93eb6d45a493ebd431888d4e15",0,15]]');
INSERT INTO "objects" VALUES(1,X'706172747320616761696E',1537,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921752342,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","kind":"COMPOSITE","value":"iOjV1w==-1"},"parts":[{"checksum":{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"8j20eQ=="},"number":3,"size":15}]}','[["bc629b93eb6d45a493ebd431888d4e15",0,15]]');
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
INSERT INTO "parts" VALUES('a04dcc715fbfe108dae433653232b00987dc8fcb94a6cb3e',1,5,'8b04d5e3775d298e78455efc5ca404d5',1795921752403,'{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"knHuVw=="}','[["bc62d7f26b7ecab83c6419cf841e3307",0,5]]');
INSERT INTO "parts" VALUES('a04dcc715fbfe108dae433653232b00987dc8fcb94a6cb3e',2,6,'a9f0e61a137d86aa9db53465e0801612',1795921752454,'{"algorithm":"CRC32","kind":"FULL_OBJECT","value":"th8RaQ=="}','[["bc626fdd56e8e0738d93cae02d3164fa",0,6]]');
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
INSERT INTO "uploads" VALUES(1,X'70656E64696E67','a04dcc715fbfe108dae433653232b00987dc8fcb94a6cb3e','root',1795921752362,'','','{"metadata":{"by":"bob"}}');
CREATE INDEX bucketsByAccount ON buckets (account, name);
CREATE INDEX blobsUnnamed ON blobs (id) WHERE refs = 0;
CREATE INDEX blobsDamaged ON blobs (id) WHERE damaged;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('buckets',2);
COMMIT;
PRAGMA user_version = 2;
