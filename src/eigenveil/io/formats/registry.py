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

from eigenveil.files import Place
from eigenveil.io.query import NAME
from eigenveil.tables.reading import PLAIN, Dialect

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
        How delimited text is written, and which cells of any table stand for missing values.
    layer : str or None
        Of single cells: a layer in place of ``X``.
    mask : Path or None
        Of images: a public image whose entries that are not 0 say which voxels are columns.
    regions : bool
        Of images: the mask's entries number regions, and a column is the mean over each.
    sheet : str, optional
        Of .xlsx files: the name of the sheet that is read, by default the first.
    variants : Path, optional
        Of genotypes: a public manifest of the variants that are the columns
        (:mod:`~eigenveil.io.formats.variants`).
    """

    dialect: Dialect = PLAIN
    layer: str | None = None
    mask: Path | None = None
    variants: Path | None = None
    regions: bool = False
    sheet: str | None = None


USUAL = ReadOptions()
"""Nothing is chosen."""


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    endings: tuple[str, ...]  # How the names of its files end, in lower case
    # `module:name` of what opens a file: called with the path, it returns a
    # :class:`~eigenveil.io.formats.tabular.Table` or an
    # :class:`~eigenveil.io.formats.arrays.ArrayFile`
    reader: str
    # A regular expression of whole names, for a format that has no ending of its own
    pattern: str = ""
    takes: tuple[str, ...] = ()  # Fields of :class:`ReadOptions` that the reader takes, by keyword
    # `module:name` of what lists the files that belong to one, such as the names of its rows
    beside: str = ""
    # Whether all files of the format are opened as one: the reader is called with their list
    together: bool = False
    folder: bool = False  # Whether a folder of such a name is one file
    inside: bool = True  # Whether files of it are read where their folder is named, not they
    # `module:name` of what writes blocks of columns (see :func:`~eigenveil.io.write.write_blocks`)
    # to an open file, as they come; empty where it is not written
    writer: str = ""
    written: tuple[str, ...] = ()  # The endings that it is written with
    # Labels of rows that a written file begins with, where the rows have them
    labels: tuple[str, ...] = ()

    def fits(self, path: Place) -> bool:
        """Whether a file's name is one of this format."""
        name = path.name.lower()
        if self.pattern and re.fullmatch(self.pattern, name):
            return True
        return any(name.endswith(ending) and name != ending for ending in self.endings)

    def open(self, path: Place | list[Place], *, read: ReadOptions) -> Table | ArrayFile:
        """The rows of a file, or of several that are opened as one."""
        opened: Table | ArrayFile = _named(self.reader)(
            path, **{name: getattr(read, name) for name in self.takes}
        )
        return opened

    def belonging(self, path: Path) -> tuple[Path, ...]:
        """Files that are parts of one, and are not read by themselves."""
        return tuple(_named(self.beside)(path)) if self.beside else ()

    def write(self, file: Any, blocks: Any) -> None:
        _named(self.writer)(file, blocks)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_HERE = "eigenveil.io.formats"
_WRITE = "eigenveil.io.write"
_OWN = (
    # the bags of words of UCI are known by how their names begin
    Format("bag-of-words", (), f"{_HERE}.tenx:BagOfWordsFile",
           pattern=r"docword\.(.+\.)?txt(\.gz)?"),
    Format("text", (".csv", ".csv.gz", ".tsv", ".tsv.gz"), f"{_HERE}.text:DelimitedTable",
           takes=("dialect",), writer=f"{_WRITE}:write_text", written=(".csv",)),
    Format("txt", (".txt", ".txt.gz"), f"{_HERE}.text:DelimitedTable", takes=("dialect",),
           inside=False),  # most are no tables
    Format("sheet", (".xlsx",), f"{_HERE}.sheets:SheetTable", takes=("dialect", "sheet")),
    Format("statistics", (".sav", ".zsav", ".dta", ".sas7bdat"),
           f"{_HERE}.statistics:StatisticsTable", takes=("dialect",)),
    Format("rds", (".rds",), f"{_HERE}.statistics:RdsTable"),
    Format("parquet", (".parquet",), f"{_HERE}.tabular:ParquetTable",
           writer=f"{_WRITE}:write_parquet", written=(".parquet",)),
    Format("arrow", (".arrow", ".feather", ".ipc"), f"{_HERE}.tabular:ArrowTable",
           writer=f"{_WRITE}:write_arrow", written=(".arrow", ".feather")),
    Format("npy", (".npy",), f"{_HERE}.arrays:NpyFile",
           writer=f"{_WRITE}:write_npy", written=(".npy",)),
    Format("npz", (".npz",), f"{_HERE}.arrays:open_archive"),
    Format("database", (), f"{_HERE}.databases:open_query", pattern=NAME),
    Format("matrix-market", (".mtx", ".mtx.gz"), f"{_HERE}.tenx:open_market",
           beside=f"{_HERE}.tenx:beside"),
    Format("nifti", (".nii", ".nii.gz"), f"{_HERE}.images:NiftiImages",
           takes=("mask", "regions"), together=True),
    Format("dicom", (".dcm",), f"{_HERE}.images:DicomImages", takes=("mask", "regions"),
           together=True),
    Format("10x", (".h5",), f"{_HERE}.tenx:TenXFile"),
    Format("h5ad", (".h5ad",), f"{_HERE}.cells:open_cells", takes=("layer",)),
    Format("zarr", (".zarr",), f"{_HERE}.cells:open_cells", takes=("layer",), folder=True),
    Format("plink1", (".bed",), f"{_HERE}.genotypes:BedFile", takes=("variants",)),
    Format("plink2", (".pgen",), f"{_HERE}.genotypes:PgenFile", takes=("variants",),
           writer=f"{_WRITE}:write_eigenvec", written=(".eigenvec",), labels=("FID", "IID")),
    Format("vcf", (".vcf", ".vcf.gz", ".bcf"), f"{_HERE}.vcf:open_vcf", takes=("variants",)),
)  # fmt: skip


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name: the package's own, and those that installed packages add.

    A package adds one as an entry point of the group ``eigenveil.formats``: a :class:`Format`.
    """
    others = (point.load() for point in entry_points(group="eigenveil.formats"))
    return {each.name: each for each in (*others, *_OWN)}


def format_of(path: Place) -> Format | None:
    """The format of a file by its name; ``None`` if it is not read."""
    return next((each for each in formats().values() if each.fits(path)), None)


def readable() -> tuple[str, ...]:
    """The endings of all files that are read."""
    return tuple(ending for each in formats().values() for ending in each.endings)


def writers() -> dict[str, Format]:
    """The formats that are written, by the ending of the file."""
    return {ending: each for each in formats().values() for ending in each.written}
