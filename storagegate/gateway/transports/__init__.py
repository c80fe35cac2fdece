"""One module or package for each transport, and their registry."""
