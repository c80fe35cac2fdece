"""The package as the type checkers of its users see it."""
