"""C{Request}, C{Response} and C{Headers} of the Fetch standard."""
