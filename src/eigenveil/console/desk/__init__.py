"""What runs in the process beside the console: it reads folders, ledgers, studies and results.

Every answer is of plain JSON values, so that the console's own process needs nothing else.
"""
