"""What a fit would give and cost, before any data is touched."""
