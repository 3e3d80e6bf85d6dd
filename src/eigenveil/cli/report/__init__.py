"""The report of a result: one page of HTML, made of what was released and nothing else."""
