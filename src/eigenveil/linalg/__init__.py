"""Linear algebra that knows nothing of privacy: everything here is free post-processing."""
