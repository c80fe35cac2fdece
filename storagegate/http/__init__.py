"""The framework: Express-style HTTP applications."""
