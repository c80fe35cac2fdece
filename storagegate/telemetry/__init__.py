"""
Where calls and requests are traced to: spans by the conventions of OpenTelemetry.

The reactor's thread decides whether a call is recorded and keeps a small tuple of it; a thread of
its own makes spans of those and sends them to a collector. OpenTelemetry's packages are imported
in that thread, and not at all while nothing is traced.
"""
