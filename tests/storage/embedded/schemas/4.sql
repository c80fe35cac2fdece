-- A store with schema 4, written by the last program that had it; see test_schemas.py.
-- blobs/store-id: "99098f459880ec1d0d3b545505e152b0\n"
-- blobs/5e/b4/5eb4115aca8b90ebcc5e3e883aa9ff1e: "first"
-- blobs/5e/b4/5eb46fc18a9cb313a43088a974043caa: "bytes in a blob"
-- blobs/5e/b4/5eb4b622d26bd44ddbe07179f4224c30: "second"
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
INSERT INTO "accessKeys" VALUES('4E0TY2O4GQ7RGYKRTYYH','secret','ann','readonly','photos','','',1795921805675);
CREATE TABLE blobs (
        id TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        damaged INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "blobs" VALUES('5eb4115aca8b90ebcc5e3e883aa9ff1e',5,2319360336,1,0);
INSERT INTO "blobs" VALUES('5eb46fc18a9cb313a43088a974043caa',15,2920557681,2,0);
INSERT INTO "blobs" VALUES('5eb4b622d26bd44ddbe07179f4224c30',6,2063438888,1,0);
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
INSERT INTO "buckets" VALUES(1,'photos','root',1795921802478,'us-east-1','','',0,15);
INSERT INTO "buckets" VALUES(2,'owned','root',1795921802526,'us-east-1','BucketOwnerEnforced','',0,0);
INSERT INTO "buckets" VALUES(3,'kept','root',1795921803009,'us-east-1','','Enabled',1,9);
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
CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "meta" VALUES('keysGeneration',1);
INSERT INTO "meta" VALUES('secret',X'CF1265322B32A22CAC7BF6C45881AC0625EBECCD752BF205347966A158120441');
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
INSERT INTO "objects" VALUES(1,X'323032362F636166C3A92E747874',1,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921802558,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL,'a=1',NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'636F7079',2,'null',0,12,'84d9c34bbc57e8109eed86bd804b1ec3',1795921802639,'root','STANDARD_IA','CRC32','FULL_OBJECT',1985366612,'{"contentType":"text/plain","headers":{"cache-control":"max-age=60"},"metadata":{"by":"ann"},"checksum":{"algorithm":"CRC32","value":"6qCDiA==","kind":"FULL_OBJECT"},"storageClass":"STANDARD_IA"}',NULL,'a=1','[["b5639d2e73a17b2a84b51f61a41d6c3a39ac4d78a7cafddea12917ec18e0184c","FULL_CONTROL"],["http://acs.amazonaws.com/groups/global/AllUsers","READ"]]',NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'7061727473',3,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921802808,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"number":3,"size":15,"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"}}],"uploadId":"221b62025c89e97f76b34d780883fc1ac7a322f66245866b"}','[["5eb46fc18a9cb313a43088a974043caa",0,15]]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(1,X'706172747320616761696E',4,'null',0,15,'1f86e4b4f8cb18bae768148a6a620413-1',1795921802838,'root','STANDARD','CRC32','COMPOSITE',NULL,'{"contentType":"video/x","checksum":{"algorithm":"CRC32","value":"iOjV1w==-1","kind":"COMPOSITE"},"parts":[{"number":3,"size":15,"checksum":{"algorithm":"CRC32","value":"8j20eQ==","kind":"FULL_OBJECT"}}]}','[["5eb46fc18a9cb313a43088a974043caa",0,15]]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "objects" VALUES(3,X'6E6F77',8,'rVrYFFZX7Yzvl5mFV7oi_Z9L7gi5ax4o',0,5,'35d6d33467aae9a2e3dccb4b6b027878',1795921803159,'root','STANDARD','CRC32','FULL_OBJECT',474239420,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"RsXY9Q==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "parts" VALUES('907e77213559d7b8c97d8d513d2290b95a15d22c86bde6c1',1,5,'8b04d5e3775d298e78455efc5ca404d5',1795921802947,'{"algorithm":"CRC32","value":"knHuVw==","kind":"FULL_OBJECT"}','[["5eb4115aca8b90ebcc5e3e883aa9ff1e",0,5]]');
INSERT INTO "parts" VALUES('907e77213559d7b8c97d8d513d2290b95a15d22c86bde6c1',2,6,'a9f0e61a137d86aa9db53465e0801612',1795921802993,'{"algorithm":"CRC32","value":"th8RaQ==","kind":"FULL_OBJECT"}','[["5eb4b622d26bd44ddbe07179f4224c30",0,6]]');
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
INSERT INTO "uploads" VALUES(1,X'70656E64696E67','907e77213559d7b8c97d8d513d2290b95a15d22c86bde6c1','root',1795921802885,'','','{"contentType":"binary/octet-stream","metadata":{"by":"bob"}}');
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
INSERT INTO "versions" VALUES(3,X'6B',7,'GqdZdzPixmE-b0-KAM1s6jrnXXLy2uZP',1,0,'',1795921803081,'root','','','',NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "versions" VALUES(3,X'6B',6,'jTYl5CtH2l4Rfcu7Jg8Ej4KHrYtfKaTA',0,3,'b8a9f715dbb64fd5c56e7783c6820a61',1795921803051,'root','STANDARD','CRC32','FULL_OBJECT',1389933475,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"EcqKZg==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,NULL,NULL,1,1795921803081);
INSERT INTO "versions" VALUES(3,X'6B',5,'Oouf9-BjdjI9_FHELQh5zQ6OtlJebUzC',0,3,'f97c5d29941bfb1b2fdab0874906ab82',1795921803029,'root','STANDARD','CRC32','FULL_OBJECT',714388201,'{"contentType":"binary/octet-stream","checksum":{"algorithm":"CRC32","value":"emyG8Q==","kind":"FULL_OBJECT"}}',NULL,NULL,NULL,'GOVERNANCE',4070908800000,NULL,1795921803051);
CREATE INDEX bucketsByAccount ON buckets (account, name);
CREATE INDEX blobsUnnamed ON blobs (id) WHERE refs = 0;
CREATE INDEX blobsDamaged ON blobs (id) WHERE damaged;
CREATE UNIQUE INDEX versionsNull ON versions (bucketId, key) WHERE versionId = 'null';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('buckets',3);
COMMIT;
PRAGMA user_version = 4;
