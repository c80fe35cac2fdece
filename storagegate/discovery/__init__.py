"""Where the instances of services are, and how others learn where ours are."""
