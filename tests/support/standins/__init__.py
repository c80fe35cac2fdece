"""Processes that stand in for servers which no package gives: they speak the documented API."""
