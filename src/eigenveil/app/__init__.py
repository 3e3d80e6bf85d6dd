"""What the commands and the console do, as functions that return values."""
