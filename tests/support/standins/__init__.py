"""
Stand-ins for servers that no package provides, as processes that implement the documented API.
"""
