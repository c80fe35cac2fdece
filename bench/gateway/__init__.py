"""The gateway: one call over each transport, and the invoker alone, beside other servers."""
