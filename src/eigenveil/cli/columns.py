"""Which columns of files a command uses, and under which names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eigenveil.cli.options import WrongOption, read_names
from eigenveil.errors import DataError
from eigenveil.io import FileRows, open_rows, read_vocabulary


@dataclass(frozen=True)
class WantedColumns:
    """The wishes of ``--columns``, ``--exclude``, ``--vocabulary`` and ``--no-header``.

    ``names`` are all columns' names, also of files without any; ``header`` is whether text begins
    with a line of names.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    names: Sequence[str] | None = None
    header: bool = True

    def open(self, files: Sequence[str]) -> FileRows:
        """The rows of files with these columns."""
        return open_rows(
            files,
            columns=self.columns,
            exclude=self.exclude,
            names=self.names,
            header=self.header,
        )

    def open_like(self, files: Sequence[str]) -> FileRows:
        """The same; files without names have the columns in this order."""
        if self.names is None and self.columns is not None:
            try:
                return self.open(files)
            except DataError as error:
                if error.code != "no-names":
                    raise
            return open_rows(files, header=self.header)
        return self.open(files)


def read_columns(
    columns: str | None, exclude: str | None, vocabulary: Path | None, *, header: bool
) -> WantedColumns:
    """The wishes as they are typed.

    Raises
    ------
    WrongOption, DataError
        When two of them say which columns, or the vocabulary cannot be one.
    """
    if vocabulary is None:
        return WantedColumns(read_names(columns), read_names(exclude) or (), header=header)
    if columns is not None or exclude is not None:
        raise WrongOption(
            "--vocabulary and --columns or --exclude both say which columns.",
            hint="Give the wanted words as the vocabulary.",
        )
    return WantedColumns(names=read_vocabulary(vocabulary), header=header)


def open_for_model(names: Sequence[str] | None, files: Sequence[str], *, header: bool) -> FileRows:
    """A model's columns by name; by position where files have no names, or the model has none."""
    return WantedColumns(names, header=header).open_like(files)
