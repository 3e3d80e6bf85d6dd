"""Private topic models."""
