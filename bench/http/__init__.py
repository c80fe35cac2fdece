"""The HTTP framework: a text, routes, JSON and files, beside other frameworks."""
