"""The figures and tables of the papers, measured anew beside the sound algorithms."""
