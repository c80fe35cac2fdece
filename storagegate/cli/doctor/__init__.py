"""C{storagegate doctor}: checks of the machine and the configuration."""
