"""PCA of streams: the tracker, and private releases of it."""
