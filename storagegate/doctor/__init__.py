"""C{storagegate doctor}: looks at everything that a start and a good night depend on."""
