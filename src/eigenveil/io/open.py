"""Opening any number of files as one source of rows, with the chosen columns in order."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.checks import first_twice
from eigenveil.errors import DataError, FileDialectWarning, callers_level
from eigenveil.files import Place
from eigenveil.io.files import RowFile, expand, reading, state_of
from eigenveil.io.formats.arrays import ArrayFile, NamedArrayFile, SparseArrayFile
from eigenveil.io.formats.parts import PartTable
from eigenveil.io.formats.registry import USUAL, Format, ReadOptions, format_of
from eigenveil.io.formats.tabular import Named, Table
from eigenveil.moments.rows import Block
from eigenveil.moments.source import SPARSE_ROWS, RowSource, block_rows, held_in, part_rows, rechunk
from eigenveil.tables.encode import RowEncoder, labels
from eigenveil.tables.entries import identifiers
from eigenveil.tables.reading import Dialect
from eigenveil.tables.schema import Schema


def select(
    tables: Sequence[Named],
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    *,
    of_words: bool = False,
) -> Sequence[str]:
    """Name the columns wanted of every table: ``columns`` or those of the first table."""
    for name in exclude:
        # a slip here could let in the very column that must stay out
        if not any(table.has(name) for table in tables):
            tables[0].check_names()  # before they are listed
            raise DataError(
                "nothing-to-exclude", path=tables[0].path, column=name, known=tables[0].known
            )
    left_out = frozenset(exclude)
    names = [n for n in (tables[0].columns if columns is None else columns) if n not in left_out]
    if not names:
        raise DataError("no-columns", path=tables[0].path, known=tables[0].known)
    twice = first_twice(names)
    if twice is not None:
        raise DataError("column-requested-twice", column=twice)
    for table in tables:
        found = all(name in table.types for name in names)
        table.check_names(names if found else None, of_words=of_words)
        if not of_words:
            table.check_identifiers([name for name in names if name in table.types])
        for name in names:
            table.require(name)
        wanted = {*names, *exclude}
        extra = next((name for name in table.columns if name not in wanted), None)
        if extra is not None and columns is None:
            raise DataError("extra-column", path=table.path, extra=extra, path_2=tables[0].path)
        for name in names:
            table.require_numeric(name)
    return tuple(names)


# -- Any number of files as one source of rows.


# What an entry of a line was that is no row.
_MALFORMED_NAN = "nan (its line has another number of cells)"


def open_rows(
    paths: Sequence[str | Path | Place],
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    names: Sequence[str] | None = None,
    read: ReadOptions = USUAL,
    schema: Schema | None = None,
    unit: str | None = None,
) -> FileRows:
    """Open files as one source of rows, read a block at a time and as often as wanted.

    Formats go by the ending (docs/formats.md), and may be mixed where the columns agree.

    Parameters
    ----------
    paths : sequence of str or Path
        Files, folders (the readable files in them, by name) and patterns (what matches, by name).
    columns : sequence of str, optional
        The columns wanted, in this order. By default those of the first file with names, which
        every other must then have too, and no more. Files without names have columns in this order.
    exclude : sequence of str
        Columns to leave out. Row labels that pandas adds (an unnamed column in text,
        ``__index_level_0__``) are left out anyway.
    names : sequence of str, optional
        All columns' names, such as a vocabulary, in place of ``columns``: also for files without
        names, whose columns have these in this order.
    read : ReadOptions
        How files are read where their format leaves a choice, such as how text is written.
    schema : Schema, optional
        Which columns are read, and how, in place of all of these; the rows have its encoded ones.
    unit : str, optional
        A column that is no feature, but says which unit (such as a person) a row belongs to.

    Raises
    ------
    DataError
        Naming file and column; for a file that is damaged further inside ``blocks()`` raises it.
        Cells that are no numbers and lines of another length make rows that are not valid, and no
        error. Without a schema, columns that look like identifiers are refused.
    """
    schema, read = as_written(schema, read)
    files = _open_all(expand(paths), read=read)
    if schema is None:
        return _by_names(files, columns, exclude, names, unit, reading=read.dialect)
    if columns is not None or exclude or names is not None or unit is not None:
        raise DataError("schema-and-columns")
    return FileRows(files, None, _encoder_of(schema, _tables(files, "a schema")))


def as_written(schema: Schema | None, read: ReadOptions) -> tuple[Schema | None, ReadOptions]:
    """How files are read: an option stands above what the schema says of the same."""
    if schema is None:
        return None, read
    dialect = read.dialect.over(schema.reading)
    return replace(schema, reading=dialect), replace(read, dialect=dialect)


def _by_names(
    files: Sequence[Table | ArrayFile],
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    names: Sequence[str] | None,
    unit: str | None,
    *,
    reading: Dialect,
) -> FileRows:
    named = [file for file in files if isinstance(file, Named)]
    bare = next((file for file in files if not isinstance(file, Named)), None)
    if names is not None:
        _check_names(files, names)
        columns = names
    if unit is not None:
        if bare is not None:
            raise DataError("no-names", path=bare.path, needs="a unit (--unit)")
        _check_unit(named, unit, columns)
        exclude = [*exclude, unit] if unit not in exclude else exclude
    chosen = select(named, columns, exclude, of_words=names is not None) if named else names
    if chosen is None and (columns is not None or exclude):
        raise DataError("no-names", path=files[0].path, needs="choosing columns by name")
    encoder = None
    if chosen is not None and any(isinstance(file, Table) for file in files):
        encoder = RowEncoder.of_numbers(chosen, unit=unit, reading=reading)
    return FileRows(files, chosen, encoder, unit=unit)


def _encoder_of(schema: Schema, tables: Sequence[Table]) -> RowEncoder:
    for table in tables:
        schema.check_usable(str(table.path))
    encoder = RowEncoder.of_schema(schema)
    check_tables(encoder, tables)
    return encoder


def check_tables(encoder: RowEncoder, tables: Sequence[Table]) -> None:
    for table in tables:
        there = all(name in table.types for name in encoder.columns)
        table.check_names(encoder.columns if there else None)
        for name in encoder.columns:
            table.require(name, "which the schema has")
        table.check_types(encoder)


def open_tables(paths: Sequence[str | Path | Place], *, read: ReadOptions = USUAL) -> list[Table]:
    """Open files of tables."""
    return _tables(_open_all(expand(paths), read=read), "a schema")


def _tables(files: Sequence[Table | ArrayFile], needs: str) -> list[Table]:
    found = []
    for file in files:
        if isinstance(file, Table):
            found.append(file)
        elif isinstance(file, Named):
            raise DataError("not-a-table", path=file.path, needs=needs)
        else:
            raise DataError("no-names", path=file.path, needs=needs)
    return found


def _check_unit(tables: Sequence[Named], unit: str, columns: Sequence[str] | None) -> None:
    for table in tables:
        if not table.has(unit):
            table.check_names()  # before they are listed
        table.require(unit, "which is to say whose each row is (--unit)", of_rows=True)
    if columns is not None and unit in columns:
        raise DataError("unit-is-feature", unit=unit)


def _check_names(files: Sequence[Table | ArrayFile], names: Sequence[str]) -> None:
    """Raise where a file without names has not as many columns as there are names."""
    for file in files:
        if not isinstance(file, ArrayFile) or file.features == len(names):
            continue
        raise DataError(
            "transposed" if file.rows == len(names) else "names-differ",
            path=file.path,
            features=file.features,
            names=len(names),
        )


class FileRows(RowSource):
    """The rows of files, one file after the other; made by :func:`open_rows`.

    ``in_parts`` says whether a file lies in folders that say columns of it, such as ``year=2024``.
    """

    def __init__(
        self,
        files: Sequence[Table | ArrayFile],
        names: Sequence[str] | None,
        encoder: RowEncoder | None,
        *,
        unit: str | None = None,
    ) -> None:
        self._files, self._encoder = files, encoder
        self.paths = tuple(path for file in files for path in file.files)
        self._states = tuple(map(_state, files))
        self._told = set[Any]()  # Files of which it was told what their codes were
        self.newlines_in_cells = any(
            file.newlines_in_cells for file in files if isinstance(file, Table)
        )
        self.in_parts = any(isinstance(file, PartTable) for file in files)
        self.names = names if encoder is None or names is not None else encoder.names
        self.schema = None if encoder is None else encoder.schema
        self.unit = unit if encoder is None else encoder.unit
        self.variables = None if self.schema is None else self.schema.variable_numbers()
        widths = [
            len(self.names or ()) if isinstance(file, Named) else file.features for file in files
        ]
        for file, width in zip(files, widths, strict=True):
            if width != widths[0]:
                raise DataError(
                    "columns-differ",
                    path=file.path,
                    features=width,
                    first=files[0].path,
                    wanted=widths[0],
                )
        self.features, self._step = widths[0], block_rows(widths[0])

    def blocks(self) -> Iterator[Block]:
        return (block for block, _ in self.labelled_blocks(()))

    def sparse_blocks(self) -> Iterator[Block]:
        return (block for block, _ in self.labelled_blocks((), sparse=True))

    def labelled_blocks(
        self, names: Sequence[str], *, sparse: bool = False
    ) -> Iterator[tuple[Block, dict[str, NDArray[np.object_]]]]:
        """The blocks with other columns of their rows beside them, as texts.

        Parameters
        ----------
        names : sequence of str
            Those columns, of :meth:`label_names`; ``None`` is in them where a cell is empty.
        sparse : bool
            Whether values are wanted in scipy's compressed rows.
        """
        names, step = tuple(names), self._step
        for file, state in zip(self._files, self._states, strict=True):
            _check_same(file, state)
            first_row = 0
            if self._encoder is not None:
                self._encoder.found = Counter(dict.fromkeys(self._encoder.found, 0))
            with reading(file.path):
                stays = sparse and isinstance(file, SparseArrayFile)
                parts = self._parts(file, names, step, sparse=stays)
                for part, *found in parts if stays else rechunk(parts, step):
                    units = None if self.unit is None else found.pop(0)
                    block = Block(
                        self._values(part, sparse=sparse),
                        origin=file.origin(),
                        first_row=first_row,
                        nan=file.nan if isinstance(file, Table) else "nan",
                        units=units,
                    )
                    yield block, dict(zip(names, found, strict=True))
                    first_row += part.shape[0]
            self._tell_codes(file)
            for block in self._malformed(file, sparse=sparse):
                empty = np.full(block.values.shape[0], None, dtype=np.object_)
                yield block, dict.fromkeys(names, empty)
            _check_same(file, state)

    def _tell_codes(self, file: Table | ArrayFile) -> None:
        """Tell the owner, once, how many cells of a file each code for missing values was."""
        found = Counter[str]()
        for (code, _), count in ({} if self._encoder is None else self._encoder.found).items():
            found[code] += count
        if found and isinstance(file, Table) and file.path not in self._told:
            self._told.add(file.path)
            counts = ", ".join(f"{code!r} in {n:,} cells" for code, n in found.items())
            warnings.warn(
                f"{file.path}: taken for missing values: {counts}.",
                FileDialectWarning,
                stacklevel=callers_level(),
            )

    def label_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these columns that every file has."""
        named = [file for file in self._files if isinstance(file, Named)]
        if len(named) < len(self._files):
            return ()
        return tuple(name for name in names if all(file.has(name) for file in named))

    def _malformed(self, file: Table | ArrayFile, *, sparse: bool) -> Iterator[Block]:
        """Rows that are no rows, after all others of their file: entries that are no numbers."""
        if not isinstance(file, Table):
            return
        for start in range(0, file.malformed, self._step):
            count = min(self._step, file.malformed - start)
            values = np.full((count, self.features), np.nan)
            yield Block(
                self._values(values, sparse=sparse),
                origin=file.origin_of_malformed(),
                first_row=start,
                nan=_MALFORMED_NAN,
                units=None if self.unit is None else np.full(count, None, dtype=np.object_),
            )

    def _values(self, part: Any, *, sparse: bool) -> Any:
        if scipy.sparse.issparse(part):
            return part
        dense = _in_rows(part, held_in(part.dtype))
        return scipy.sparse.csr_array(dense) if sparse else dense

    def _parts(
        self, file: Table | ArrayFile, names: Sequence[str], step: int, *, sparse: bool
    ) -> Iterator[tuple[Any, ...]]:
        if isinstance(file, ArrayFile):
            yield from self._of_array(file, names, step, sparse=sparse)
            return
        assert self._encoder is not None
        wanted = tuple(dict.fromkeys((*self._encoder.columns, *names)))
        most = part_rows(max(self.features, len(wanted)))
        for batch in file.batches(wanted, most, texts=self._encoder.texts.union(names)):
            plain = self._encoder.without_codes(batch)
            rows, units = self._encoder.rows(plain)
            found = [labels(plain.column(name)) for name in names]
            yield (rows, *found) if units is None else (rows, units, *found)

    def _of_array(
        self, file: ArrayFile, names: Sequence[str], step: int, *, sparse: bool
    ) -> Iterator[tuple[Any, ...]]:
        """The same of an array: its chosen columns, and labels of its rows."""
        places = None
        beside: list[NDArray[np.object_]] = []
        if isinstance(file, NamedArrayFile):
            assert self.names is not None
            wanted = names if self.unit is None else (self.unit, *names)
            beside = [np.array(identifiers(file.row_labels(name)), object) for name in wanted]
            if tuple(self.names) != tuple(file.columns):
                at = {name: place for place, name in enumerate(file.columns)}
                places = np.array([at[name] for name in self.names])
        first = 0
        if sparse and isinstance(file, SparseArrayFile):
            parts = file.sparse_parts(SPARSE_ROWS)
        else:
            parts = file.parts(step)
        for part in parts:
            these = slice(first, first + part.shape[0])
            chosen = part if places is None else part[:, places]
            yield chosen, *(found[these] for found in beside)
            first = these.stop


# Rows of a stored table whose columns are turned at a time: their entries stay in cache.
_TURNED = 128


def _in_rows(part: Any, dtype: Any) -> NDArray[Any]:
    """Rows one after the other in memory, as products need them."""
    if not part.flags.f_contiguous and part.strides[0] >= part.strides[1]:
        return np.ascontiguousarray(part, dtype)
    dense = np.empty(part.shape, dtype)
    for start in range(0, part.shape[0], _TURNED):
        dense[start : start + _TURNED] = part[start : start + _TURNED]
    return dense


def _state(file: Table | ArrayFile) -> tuple[Any, ...]:
    with reading(file.path):
        return tuple(map(state_of, file.files))


def _check_same(file: Table | ArrayFile, state: tuple[Any, ...]) -> None:
    """Raise where a file is not the one that was opened: passes rely on each other."""
    if _state(file) != state:
        raise DataError("file-changed", path=file.path)


def _open_all(files: Sequence[RowFile], *, read: ReadOptions) -> list[Table | ArrayFile]:
    """Files, each with its own reader; those of a format that are opened as one, at the first."""
    groups: dict[Any, tuple[Format, list[RowFile]]] = {}
    for number, file in enumerate(files):
        found = format_of(file.place)
        assert found is not None  # the list of files has those that are read only
        groups.setdefault(found.name if found.together else number, (found, []))[1].append(file)
    return [_opened(found, own, read=read) for found, own in groups.values()]


def _opened(found: Format, files: Sequence[RowFile], *, read: ReadOptions) -> Table | ArrayFile:
    first = files[0]
    opened = found.open(
        [each.place for each in files] if found.together else first.place, read=read
    )
    if not first.keys:
        return opened
    if not isinstance(opened, Table):
        raise DataError("no-names", path=opened.path, needs="a table in folders named key=value")
    return PartTable(opened, first.keys)
