"""Secure aggregation: masks, keys, dropouts."""
