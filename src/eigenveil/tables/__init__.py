"""Tables: units of privacy, and what is public about columns."""
