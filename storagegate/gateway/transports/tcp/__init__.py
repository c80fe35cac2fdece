"""The gateway over framed TCP."""
