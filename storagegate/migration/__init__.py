"""The migration of a store from one machine to a cluster and back, while it serves."""
