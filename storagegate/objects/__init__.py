"""Buckets and objects: the domain that all front ends share."""
