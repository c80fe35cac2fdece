-- A store with schema 5, written by the last program that had it; see test_schemas.py.
-- blobs/store-id: "2b37e3e14f25338674e96a1441450396\n"
-- blobs/55/f6/55f61521e0bc82b7276df5d14105cc79: "second"
-- blobs/55/f6/55f63f06a90650956c3f9a9ebe85ca2a: "bytes in a blob"
-- blobs/55/f6/55f64a910f27778e834b9c46b19650a7: "first"
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
    , role TEXT NOT NULL DEFAULT 'none', expiresMs INTEGER NOT NULL DEFAULT 0, disabled INTEGER NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID
    ;
INSERT INTO "accessKeys" VALUES('AUNAXWD799V2RVHU6560','secret','ann','readonly','photos','','',1795921817627,'none',0,0,'');
CREATE TABLE blobs (
        id TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        damaged INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "blobs" VALUES('55f61521e0bc82b7276df5d14105cc79',6,2063438888,1,0);
INSERT INTO "blobs" VALUES('55f63f06a90650956c3f9a9ebe85ca2a',15,2920557681,2,0);
INSERT INTO "blobs" VALUES('55f64a910f27778e834b9c46b19650a7',5,2319360336,1,0);
CREATE TABLE bucketSettings (
        bucketId INTEGER NOT NULL,
        name TEXT NOT NULL,
        document BLOB NOT NULL,
        PRIMARY KEY (bucketId, name)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "bucketSettings" VALUES(1,'cors',X'5B7B226578706F736564223A5B5D2C2268656164657273223A5B5D2C226964223A22222C226D6178416765223A36302C226D6574686F6473223A5B22474554225D2C226F726967696E73223A5B2268747470733A2F2F6578616D706C652E636F6D225D7D5D');
INSERT INTO "bucketSettings" VALUES(1,'lifecycle',X'5B7B226964223A226F6C64222C226973456E61626C6564223A747275652C22707265666978223A22323032362F222C2264617973223A3430307D5D');
INSERT INTO "bucketSettings" VALUES(1,'policy',X'7B2256657273696F6E223A2022323031322D31302D3137222C202253746174656D656E74223A205B7B22456666656374223A2022416C6C6F77222C20225072696E636970616C223A20222A222C2022416374696F6E223A202273333A4765744F626A656374222C20225265736F75726365223A202261726E3A6177733A73333A3A3A70686F746F732F2A227D5D7D');
INSERT INTO "bucketSettings" VALUES(1,'publicAccessBlock',X'7B22626C6F636B5075626C696341636C73223A747275652C22626C6F636B5075626C6963506F6C696379223A66616C73652C2269676E6F72655075626C696341636C73223A66616C73652C2272657374726963745075626C69634275636B657473223A66616C73657D');
INSERT INTO "bucketSettings" VALUES(1,'tagging',X'7465616D3D726564');
INSERT INTO "bucketSettings" VALUES(3,'objectLock',X'7B226D6F6465223A22474F5645524E414E4345222C2264617973223A317D');
CREATE TABLE buckets (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        account TEXT NOT NULL,
        createdMs INTEGER NOT NULL,
        region TEXT NOT NULL
    , ownership TEXT NOT NULL DEFAULT '', versioning TEXT NOT NULL DEFAULT '', lockEnabled INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0) STRICT
    ;
INSERT INTO "buckets" VALUES(1,'photos','root',1795921813167,'us-east-1','','',0,15);
INSERT INTO "buckets" VALUES(2,'owned','root',1795921813195,'us-east-1','BucketOwnerEnforced','',0,0);
INSERT INTO "buckets" VALUES(3,'kept','root',1795921813850,'us-east-1','','Enabled',1,9);
CREATE TABLE inline (
        sequence INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL
    ) STRICT
    ;
INSERT INTO "inline" VALUES(1,X'6120736D616C6C20626F6479');
INSERT INTO "inline" VALUES(2,X'6120736D616C6C20626F6479');
INSERT INTO "inline" VALUES(5,X'6F6E65');
INSERT INTO "inline" VALUES(6,X'74776F');
INSERT INTO "inline" VALUES(8,X'7468726565');
CREATE TABLE keyUses (
        accessKey TEXT PRIMARY KEY,
        lastUsedMs INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "meta" VALUES('keysGeneration',1);
INSERT INTO "meta" VALUES('secret',X'D0C82389E6311F622221300E8F0E39A7FFBA832F895D604729B546BCCAAD37A4');
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
        segments TEXT, tags TEXT, acl TEXT, retainMode TEXT, retainUntilMs INTEGER, legalHold INTEGER,
        PRIMARY KEY (bucketId, key, sequence DESC)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "objects" VALUES(1,X'323032362F636166C3A92E747874',1,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921813231,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL,'a=1',NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'636F7079',2,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921813470,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL,'a=1','[["b5639d2e73a17b2a84b51f61a41d6c3a39ac4d78a7cafddea12917ec18e0184c","FULL_CONTROL"],["http://acs.amazonaws.com/groups/global/AllUsers","READ"]]',NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'7061727473',3,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921813638,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"number":3,"size":15,"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"}}],"uploadId":"d1c21421c495652df403ee5c05cf69894e664c04fec58f50"}','[["55f63f06a90650956c3f9a9ebe85ca2a",0,15]]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'706172747320616761696E',4,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921813662,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"number":3,"size":15,"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"}}]}','[["55f63f06a90650956c3f9a9ebe85ca2a",0,15]]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(3,X'6E6F77',8,'BmBIqBM-FN0tqZI_UIzlScyLyaVSC-0k',0,5,'35d6d33467aae9a2e3dccb4b6b027878',1795921814072,'root','STANDARD','CRC32','FULL_OBJECT',474239420,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"RsXY9Q==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "parts" VALUES('c53307c3208b6b8a7a58542760f6de2d5f455677ea6ce361',1,5,'8b04d5e3775d298e78455efc5ca404d5',1795921813763,'{"algorithm":"CRC32","value":"knHuVw==","kind":"FULL_OBJECT"}','[["55f64a910f27778e834b9c46b19650a7",0,5]]');
INSERT INTO "parts" VALUES('c53307c3208b6b8a7a58542760f6de2d5f455677ea6ce361',2,6,'a9f0e61a137d86aa9db53465e0801612',1795921813792,'{"algorithm":"CRC32","value":"th8RaQ==","kind":"FULL_OBJECT"}','[["55f61521e0bc82b7276df5d14105cc79",0,6]]');
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
INSERT INTO "uploads" VALUES(1,X'70656E64696E67','c53307c3208b6b8a7a58542760f6de2d5f455677ea6ce361','root',1795921813678,'','','{"contentType":"binary/octet-stream","metadata":{"by":"bob"}}');
CREATE TABLE usage (
        bucketId INTEGER PRIMARY KEY,
        objects INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        uploads INTEGER NOT NULL,
        uploadBytes INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "usage" VALUES(1,4,54,1,11);
INSERT INTO "usage" VALUES(3,3,11,0,0);
CREATE TABLE versions (
        bucketId INTEGER NOT NULL,
        key BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        versionId TEXT NOT NULL,
        deleteMarker INTEGER NOT NULL,
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
        tags TEXT,
        acl TEXT,
        retainMode TEXT,
        retainUntilMs INTEGER,
        legalHold INTEGER,
        noncurrentMs INTEGER,
        PRIMARY KEY (bucketId, key, sequence DESC)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "versions" VALUES(3,X'6B',7,'nA8X5HKAwTl28f8Lrtt2GGZ0jmccHT2T',1,0,'',1795921813978,'root','','','',NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "versions" VALUES(3,X'6B',6,'C6iH_v6ELZJW7WnxCQX6rkAYKORM8cdH',0,3,'b8a9f715dbb64fd5c56e7783c6820a61',1795921813933,'root','STANDARD','CRC32','FULL_OBJECT',1389933475,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"EcqKZg==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,NULL,NULL,1,1795921813978);
INSERT INTO "versions" VALUES(3,X'6B',5,'q55QWM1Hv8dQLYcS0hDOMuuNZSwALyKK',0,3,'f97c5d29941bfb1b2fdab0874906ab82',1795921813873,'root','STANDARD','CRC32','FULL_OBJECT',714388201,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"emyG8Q==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,'GOVERNANCE',4070908800000,NULL,1795921813933);
CREATE INDEX bucketsByAccount ON buckets (account, name);
CREATE INDEX blobsUnnamed ON blobs (id) WHERE refs = 0;
CREATE INDEX blobsDamaged ON blobs (id) WHERE damaged;
CREATE UNIQUE INDEX versionsNull ON versions (bucketId, key) WHERE versionId = 'null';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('buckets',3);
COMMIT;
PRAGMA user_version = 5;
