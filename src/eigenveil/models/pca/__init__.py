"""Private PCA."""
