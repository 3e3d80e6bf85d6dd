"""Parties of a study between organisations, whatever carries their messages."""
