"""
Where calls and requests are traced to: spans by the conventions of OpenTelemetry.

The reactor's thread decides whether a call is recorded and keeps a small tuple of it. A thread
hands those over to a process that makes spans of them and sends them to a collector: to do so in
Python takes 40 microseconds a span, which a gateway that answers ten thousand calls a second does
not have. OpenTelemetry's packages are imported in that process only.
"""
