"""Formats that rows come in, one module each."""
