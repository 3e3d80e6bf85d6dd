"""Drawing noise: the randomness source, the release grid, and one module a distribution."""
