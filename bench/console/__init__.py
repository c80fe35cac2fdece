"""The console: its cost for requests beside it, its lists, and objects that its API moves."""
