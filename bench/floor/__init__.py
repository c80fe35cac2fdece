"""
The floors: small programs that do the hard parts of a hot trip, and nothing of what a product must.

They are peers of the benches: how far above the floor a server is says how much its limits, checks,
hooks and figures cost.
"""
