"""Authorisation of requests: policies, ACLs and the decision."""
