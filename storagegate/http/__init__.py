"""The framework: Express-style servers."""
