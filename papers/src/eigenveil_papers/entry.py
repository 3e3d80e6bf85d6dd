"""What this package adds to the command line of :mod:`eigenveil`."""

from eigenveil.cli.app import Command

SIMULATE_TREE = Command(
    "eigenveil_papers.trees.command:simulate_tree",
    "Simulate a tree of sites, on made-up rows: time, bytes and error of every level.",
)

REPRODUCE = Command(
    "eigenveil_papers.command:reproduce",
    "Measure figures and tables of the papers again, beside this package's sound algorithms.",
)
