"""The formats that rows come in, one object each, found by the name of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenveil.io.formats.dialect import PLAIN, Dialect

if TYPE_CHECKING:  # a format's module is imported when a file of it is opened
    from eigenveil.io.formats.arrays import ArrayFile
    from eigenveil.io.formats.tabular import Table


@dataclass(frozen=True)
class ReadOptions:
    """How files are read, where their format leaves a choice.

    A format takes those that its :attr:`Format.takes` names.

    Parameters
    ----------
    dialect : Dialect
        How delimited text is written.
    variants : Path, optional
        Of genotypes: a public manifest of the variants that are the columns
        (:mod:`~eigenveil.io.formats.variants`).
    """

    dialect: Dialect = PLAIN
    variants: Path | None = None


USUAL = ReadOptions()
"""Nothing is chosen."""


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes
    ----------
    name : str
    endings : tuple of str
        How the names of its files end, in lower case.
    reader : str
        ``module:name`` of what opens a file: called with the path, it returns a
        :class:`~eigenveil.io.formats.tabular.Table` or an
        :class:`~eigenveil.io.formats.arrays.ArrayFile`.
    pattern : str
        A regular expression of whole names, for a format that has no ending of its own.
    takes : tuple of str
        Fields of :class:`ReadOptions` that the reader takes, by keyword.
    writer : str
        ``module:name`` of what writes columns to an open file; empty where it is not written.
    written : tuple of str
        The endings that it is written with.
    labels : tuple of str
        Labels of rows that a written file begins with, where the rows have them.
    """

    name: str
    endings: tuple[str, ...]
    reader: str
    pattern: str = ""
    takes: tuple[str, ...] = ()
    writer: str = ""
    written: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def fits(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        name = path.name.lower()
        if self.pattern and re.fullmatch(self.pattern, name):
            return True
        return any(name.endswith(ending) and name != ending for ending in self.endings)

    def open(self, path: Path, *, read: ReadOptions) -> Table | ArrayFile:
        """The rows of a file."""
        opened: Table | ArrayFile = _named(self.reader)(
            path, **{name: getattr(read, name) for name in self.takes}
        )
        return opened

    def write(self, file: Any, columns: Any) -> None:
        """Columns into an open file."""
        _named(self.writer)(file, columns)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_HERE = "eigenveil.io.formats"
_OWN = (
    Format(
        "text",
        (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
        f"{_HERE}.text:TextTable",
        takes=("dialect",),
        writer="eigenveil.io.write:write_text",
        written=(".csv",),
    ),
    Format(
        "parquet",
        (".parquet",),
        f"{_HERE}.tabular:ParquetTable",
        writer="eigenveil.io.write:write_parquet",
        written=(".parquet",),
    ),
    Format(
        "arrow",
        (".arrow", ".feather", ".ipc"),
        f"{_HERE}.tabular:ArrowTable",
        writer="eigenveil.io.write:write_arrow",
        written=(".arrow", ".feather"),
    ),
    Format(
        "npy",
        (".npy",),
        f"{_HERE}.arrays:NpyFile",
        writer="eigenveil.io.write:write_npy",
        written=(".npy",),
    ),
    Format("npz", (".npz",), f"{_HERE}.arrays:open_archive"),
    Format("matrix-market", (".mtx", ".mtx.gz"), f"{_HERE}.counts:MatrixMarketFile"),
    Format("plink1", (".bed",), f"{_HERE}.genotypes:BedFile", takes=("variants",)),
    Format(
        "plink2",
        (".pgen",),
        f"{_HERE}.genotypes:PgenFile",
        takes=("variants",),
        writer=f"{_HERE}.eigenvec:write_eigenvec",
        written=(".eigenvec",),
        labels=("FID", "IID"),
    ),
    Format("vcf", (".vcf", ".vcf.gz", ".bcf"), f"{_HERE}.vcf:open_vcf", takes=("variants",)),
    # the bags of words of UCI are known by how their names begin
    Format(
        "bag-of-words",
        (),
        f"{_HERE}.counts:BagOfWordsFile",
        pattern=r"docword\.(.+\.)?txt(\.gz)?",
    ),
)


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name: the package's own, and those that installed packages add.

    A package adds one as an entry point of the group ``eigenveil.formats``: a :class:`Format`.
    """
    others = (point.load() for point in entry_points(group="eigenveil.formats"))
    return {each.name: each for each in (*others, *_OWN)}


def format_of(path: Path) -> Format | None:
    """The format of a file by its name; ``None`` if it is not read."""
    return next((each for each in formats().values() if each.fits(path)), None)


def readable() -> tuple[str, ...]:
    """The endings of all files that are read."""
    return tuple(ending for each in formats().values() for ending in each.endings)


def writers() -> dict[str, Format]:
    """The formats that are written, by the ending of the file."""
    return {ending: each for each in formats().values() for ending in each.written}
