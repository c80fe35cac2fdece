"""The checks of C{storagegate doctor}, each with something that is really broken."""
