"""The daemon: configuration, components, processes, signals, health and logs."""
