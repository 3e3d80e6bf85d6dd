"""Prepared rows and mergeable sums over them."""
