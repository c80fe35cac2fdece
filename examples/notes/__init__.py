"""
A notes application: accounts, notes with attachments, a live feed, and the same service over gRPC.

C{docs/tutorial.rst} builds it in nine steps, and C{cd examples && python -m notes} serves it.
"""
