from twisted.application.service import ServiceMaker

storagegate = ServiceMaker("storagegate", "storagegate.tap", "A durable S3 server.", "storagegate")
