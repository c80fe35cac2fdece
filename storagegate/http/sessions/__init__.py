"""Sessions: what a handler sees of one, the options, and where they are kept."""
