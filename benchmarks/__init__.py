"""Measured numbers: ``make bench`` runs them all and writes a table."""
