"""Growth: many objects, keys, versions and connections, work beside, monitoring, workers."""
