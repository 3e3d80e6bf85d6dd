"""What files with named columns have in common, whether of a table or of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.origins import FileOrigin
from eigenveil.tables.names import check_identifiers, check_names


class Named:
    """Columns by name, and errors about them."""

    path: Place  # Named in messages as it was given
    files: Sequence[Place]  # What is read: the same, or several that are one
    columns: Sequence[str]  # The columns that can be features, in order
    types: Mapping[str, Any]  # What each stored column holds, in the order stored
    # What is stored about rows beside the columns, such as the person of each cell
    label_names: Sequence[str] = ()

    def origin(self) -> FileOrigin:
        """Where its rows are, for messages."""
        return FileOrigin(str(self.path))

    def check_names(self, names: Sequence[str] | None = None, *, of_words: bool = False) -> None:
        """Raise a DataError where one of these names (all by default) reads as a value."""
        wanted = self.columns if names is None else names
        place = {name: index for index, name in enumerate(self.types)}
        check_names(
            FileOrigin(str(self.path)),
            wanted,
            places=[place[name] for name in wanted],
            of_words=of_words,
        )

    def check_identifiers(self, names: Sequence[str]) -> None:
        """Raise a DataError where columns look like identifiers, by their names and types."""
        check_identifiers(str(self.path), names, text=self.text_columns(names))

    def has(self, name: str) -> bool:
        """Whether there is such a column, or such a label of rows."""
        return name in self.types or name in self.label_names

    def require(self, name: str, why: str = "", *, of_rows: bool = False) -> None:
        """Raise a DataError unless there is such a column; names are checked before.

        With ``of_rows`` a label of rows will do.
        """
        if name not in self.types and not (of_rows and name in self.label_names):
            raise DataError(
                "missing-column",
                path=self.path,
                column=name,
                why=f", {why}" if why else "",
                known=self.known,
            )

    @property
    def known(self) -> str:
        """The columns that there are, in a sentence."""
        shown = ", ".join(repr(name) for name in self.columns[:20])
        more = f" and {len(self.columns) - 20} more" if len(self.columns) > 20 else ""
        labels = ", ".join(repr(name) for name in self.label_names[:20])
        beside = f" Its rows have {labels}." if labels else ""
        return f"Its columns are {shown}{more}.{beside}"

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column unless it is numeric; here all are."""

    def text_columns(self, names: Sequence[str]) -> set[str]:
        """Those of these columns that are not numeric; here none."""
        del names
        return set()
