"""How far off released numbers may be: intervals that follow from a saved result alone."""
