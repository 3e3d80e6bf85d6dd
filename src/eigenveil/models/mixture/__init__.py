"""Private mixtures of Gaussians."""
