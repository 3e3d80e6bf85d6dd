"""What a table is before its rows are numbers: its columns, the units its rows belong to."""
