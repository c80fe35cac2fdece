"""The framework, without a network."""
