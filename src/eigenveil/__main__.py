"""``python -m eigenveil``: the command line where its own command is not on the path."""

from eigenveil.cli.app import main

if __name__ == "__main__":
    main()
