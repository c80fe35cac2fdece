"""The trunk: transports, endpoints, the HTTP channel and the request that Resource trees see."""
