"""The pages, a section for each kind of person."""
