"""The providers of master keys: a file, and the transit engine of Vault or OpenBao."""
