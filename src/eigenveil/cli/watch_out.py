"""Where ``eigenveil watch`` writes at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.cli.results import check_free, check_place, new_folder, write_result
from eigenveil.errors import OutputError
from eigenveil.io.write import ENDINGS, write_columns

_MODEL = ".npz"


class WatchOut:
    """A file or folder that can be written; checked before any row is read.

    Raises
    ------
    OutputError
        When it exists, is of an unknown kind, or its folder is missing.
    """

    def __init__(self, path: Path, *, private: bool, overwrite: bool) -> None:
        self.path = path
        kind = path.suffix.lower()
        self._folder = private and not kind
        if self._folder:
            check_free(path, overwrite=overwrite)
            return
        known = (*ENDINGS, _MODEL) if private else ENDINGS
        if kind not in known:
            raise OutputError(
                f"{path} is not of a format that can be written.",
                hint=f"Its name must end in one of {', '.join(known)}.",
                code="unknown-format",
            )
        check_place(path, overwrite=overwrite)

    def write(self, model: Any, names: Sequence[str] | None) -> None:
        """Write the whole result, the model, or a line of loadings a feature."""
        if self._folder:
            with new_folder(self.path) as folder:
                write_result(model, folder, figures=True)
        elif self.path.suffix.lower() == _MODEL:
            model.save(self.path)
        else:
            columns: list[tuple[str, Any]] = [
                (f"PC{index + 1}", component) for index, component in enumerate(model.components_)
            ]
            if names is not None and self.path.suffix.lower() != ".npy":
                columns.insert(0, ("feature", np.array(names, dtype=object)))
            write_columns(self.path, columns)
