"""
The documents of settings: Amazon's names and rules, between typed values and the text of a wire.

S3 writes a L{Document<storagegate.objects.documents.tree.Document>} as XML, the console as JSON;
each setting has one reader and one writer here, which both use.
"""
