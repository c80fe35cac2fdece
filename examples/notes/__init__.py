"""
A notes application: accounts, notes with attachments, a live feed, and the same service over gRPC.

    cd examples && python -m notes 3000 50051

Types are written once, in C{models.py}; C{accounts.py} has one login for HTTP, WebSocket and gRPC.
"""
