"""Carriers: each one file and one entry point of the group ``eigenveil.carriers``."""
