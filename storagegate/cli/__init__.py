"""The C{storagegate} command."""
