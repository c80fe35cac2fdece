"""The console of the admin listener: its API and its pages, imported with its first request."""
