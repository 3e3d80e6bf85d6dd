"""Studies over a tree of sites."""
