"""Transports: they only carry messages."""
