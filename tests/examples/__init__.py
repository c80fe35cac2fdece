"""The programs in C{examples/}, run and used as their readers do."""
