"""What this package adds to the command line of :mod:`eigenveil`."""

from eigenveil.cli.app import Command

REPRODUCE = Command(
    "eigenveil_papers.command:reproduce",
    "Measure figures and tables of the papers again, beside this package's sound algorithms.",
)
