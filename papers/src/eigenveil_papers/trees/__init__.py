"""Trees of sites with faults, played by all parties in one process."""
