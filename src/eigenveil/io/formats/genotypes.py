"""Genotypes: PLINK's two binary formats.  A row is a sample, a column counts one allele's copies.

A file stores variant after variant, and rows are samples.  So a band of samples is read over all
variants at once, of at most ``_BAND_BYTES``, and the file as often as it has bands.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.checks import library
from eigenveil.errors import DataError, short_name
from eigenveil.files import Place
from eigenveil.io.files import reading
from eigenveil.io.formats.arrays import Header, NamedArrayFile
from eigenveil.io.formats.variants import (
    Manifest,
    Variant,
    VariantColumns,
    all_variants,
    match,
    read_manifest,
    variant_of,
)
from eigenveil.moments.source import block_rows
from eigenveil.tables.names import MOST_VARIANTS

_BAND_BYTES = 1 << 27
# Entries that are made from counts at a time: they stay in the processor's cache.
_CACHED = 1 << 16
NO_FAMILY = "0"
"""Instead of a family's name."""
EXTRA = "genotypes"
"""The extra that brings the libraries."""


class GenotypeFile(NamedArrayFile):
    """Samples by variants: counts, 0 to 2. An entry follows from its own row and public numbers."""

    label_names: Sequence[str] = ("FID", "IID")
    most_columns = MOST_VARIANTS

    def __init__(self, path: Path, *, variants: Path | None = None) -> None:
        manifest = None if variants is None else read_manifest(variants)
        with reading(path):
            self._samples = list(self._read_samples(path))
            self._chosen = self._choose(path, manifest)
        present = np.flatnonzero(self._chosen.places >= 0)
        self._present = None if present.size == self._chosen.places.size else present
        self._stored_places = self._chosen.places[present]
        super().__init__(path)

    def _choose(self, path: Path, manifest: Manifest | None) -> VariantColumns:
        found = self._read_variants(path)
        return all_variants(path, found) if manifest is None else match(path, found, manifest)

    @property
    def listed(self) -> Sequence[Variant]:
        return self._chosen.listed

    def count_frequencies(self) -> NDArray[np.float64]:
        """Of the counted alleles, exact: of public samples only; NaN where nothing was called."""
        total, called = np.zeros((2, self.features))
        for part in self.parts(block_rows(self.features)):
            total += np.nansum(part, axis=0, dtype=np.float64)
            called += np.count_nonzero(~np.isnan(part), axis=0)
        found = np.full(self.features, np.nan)
        np.divide(total, 2 * called, out=found, where=called > 0)
        return found

    def row_labels(self, name: str) -> Sequence[Any]:
        """A sample's ``IID``, or ``FID``: None for a sample of no family."""
        if name == "IID":
            return [individual for _, individual in self._samples]
        return [None if family == NO_FAMILY else family for family, _ in self._samples]

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        width = self._stored_places.size
        size = max(1, _BAND_BYTES // (max(1, width) * self._entry_bytes))
        for first in range(0, self.rows, size):
            counts = self._band(first, min(first + size, self.rows), self._stored_places)
            for start in range(0, counts.shape[0], step):
                yield self._entries(np.ascontiguousarray(counts[start : start + step]))

    def _entries(self, counts: NDArray[Any]) -> NDArray[np.float32]:
        """Entries of some samples, from counts of the alleles that the file counts."""
        chosen, every = self._chosen, slice(None)
        columns: Any = every if self._present is None else self._present
        rows = np.empty((counts.shape[0], chosen.places.size), np.float32)
        fill = np.float32(np.nan if chosen.frequencies is None else 0.0)
        if self._present is not None:
            rows[:, chosen.places < 0] = fill
        swapped = chosen.swapped[columns]
        sign, base = np.where(swapped, -1.0, 1.0), np.where(swapped, 2.0, 0.0)
        turned = (sign.astype(np.float32), base.astype(np.float32)) if swapped.any() else None
        factors = self._standard(columns)
        some = max(1, _CACHED // max(1, counts.shape[1]))
        for start in range(0, counts.shape[0], some):
            given = counts[start : start + some]
            made = given.astype(np.float32)
            if turned is not None:  # exact: counts are multiples of 2**-14
                made *= turned[0]
                made += turned[1]
            if factors is not None:
                made -= factors[0]
                made *= factors[1]
            # not given >= 0: neither a negative number nor one that is not a number
            np.copyto(made, fill, where=~(given >= 0))
            rows[start : start + some, columns] = made
        return rows

    def _standard(self, columns: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """What is taken off each count, and what it is multiplied by then."""
        if self._chosen.frequencies is None:
            return None
        p = self._chosen.frequencies[columns]
        factors = 1.0 / np.sqrt(2.0 * p * (1.0 - p))
        return (2.0 * p).astype(np.float32), factors.astype(np.float32)

    def _header(self) -> Header:
        shape = (len(self._samples), self._chosen.places.size)
        return Header(shape, fortran=False, dtype=np.dtype(np.float32))

    def _names(self) -> Sequence[str]:
        return self._chosen.names

    _entry_bytes = 1
    """Of a count, as :meth:`_band` gives it."""

    @abstractmethod
    def _read_samples(self, path: Path) -> Iterator[tuple[str, str]]:
        """Family and individual of every sample, in order."""

    @abstractmethod
    def _read_variants(self, path: Path) -> Iterator[Variant]:
        """The variants, in order."""

    @abstractmethod
    def _band(self, first: int, last: int, places: NDArray[np.int64]) -> NDArray[Any]:
        """Counts of some samples, shape (last - first, D); below 0 or NaN: not called."""


class BedFile(GenotypeFile):
    """PLINK 1: counts of allele A1, the fifth column of the ``.bim`` beside it."""

    _MAGIC = bytes([0x6C, 0x1B])

    def __init__(self, path: Path, *, variants: Path | None = None) -> None:
        self._count = 0
        super().__init__(path, variants=variants)
        with reading(path):
            self._check()

    def _check(self) -> None:
        with self.path.open("rb") as file:
            start = file.read(3)
        if start[:2] != self._MAGIC or len(start) < 3 or start[2] > 1:
            raise unreadable(self.path, "does not begin as a .bed of PLINK does")
        if start[2] == 0:
            raise DataError("stored-by-samples", path=self.path)
        wanted = 3 + self._count * -(-self.rows // 4)
        size = Path(self.path).stat().st_size
        if size != wanted:
            problem = (
                f"has {size:,} bytes, and {self._count:,} variants (.bim) of {self.rows:,} samples "
                f"(.fam) take {wanted:,}"
            )
            raise DataError("files-of-other-runs", path=self.path, problem=problem)

    def _read_samples(self, path: Path) -> Iterator[tuple[str, str]]:
        yield from _fam(_beside(path, ".fam"))

    def _read_variants(self, path: Path) -> Iterator[Variant]:
        for variant in _bim(_beside(path, ".bim")):
            self._count += 1
            yield variant

    def _band(self, first: int, last: int, places: NDArray[np.int64]) -> NDArray[Any]:
        reader = library("bed_reader", extra=EXTRA, what="A .bed file")
        # the counts of samples and variants are known: its own readings of .fam and .bim are not
        # needed
        with reader.open_bed(self.path, iid_count=self.rows, sid_count=self._count) as bed:
            counts: NDArray[Any] = bed.read(np.s_[first:last, places], dtype="int8", order="C")
        return counts


class PgenFile(GenotypeFile):
    """PLINK 2: counts of the alternate allele, or dosages where they are stored."""

    _entry_bytes = 4

    def __init__(self, path: Path, *, variants: Path | None = None) -> None:
        self._count = 0
        self._many: dict[int, int] = {}
        self._all = variants is None
        super().__init__(path, variants=variants)
        with reading(path):
            self._open(0, min(1, self.rows)).close()  # finds most of what is wrong

    def _read_samples(self, path: Path) -> Iterator[tuple[str, str]]:
        yield from _psam(_beside(path, ".psam"))

    def _read_variants(self, path: Path) -> Iterator[Variant]:
        for variant in _pvar(_beside(path, ".pvar", ".pvar.zst")):
            alternatives = variant.counted.count(",") + 1
            if alternatives > 1:
                if self._all:
                    place = f"{variant.chrom}:{variant.position}"
                    name = short_name(variant.id)
                    raise DataError("several-alleles", path=path, variant=name, place=place)
                self._many[self._count] = alternatives
            self._count += 1
            yield variant

    def _open(self, first: int, last: int) -> Any:
        library_ = library("pgenlib", extra=EXTRA, what="A .pgen file")
        offsets = None
        if self._many:
            alleles = np.full(self._count + 1, 2, dtype=np.uintp)
            alleles[0] = 0
            for place, alternatives in self._many.items():
                alleles[place + 1] = 1 + alternatives
            offsets = np.cumsum(alleles, dtype=np.uintp)
        opened = library_.PgenReader(
            str(self.path).encode(),
            raw_sample_ct=self.rows,
            variant_ct=self._count,
            sample_subset=np.arange(first, last, dtype=np.uint32),
            allele_idx_offsets=offsets,
        )
        if opened.get_variant_ct() != self._count:
            opened.close()
            problem = f"has {opened.get_variant_ct():,} variants, and its .pvar {self._count:,}"
            raise DataError("files-of-other-runs", path=self.path, problem=problem)
        return opened

    def _band(self, first: int, last: int, places: NDArray[np.int64]) -> NDArray[Any]:
        counts = np.empty((places.size, last - first), np.float32)
        reader = self._open(first, last)
        try:
            reader.read_dosages_list(places.astype(np.uint32), counts)
        finally:
            reader.close()
        return counts.T


# -- The lists of samples and of variants beside a file.


def is_variant_list(path: Path) -> bool:
    return path.name.lower().endswith((".bim", ".pvar", ".pvar.zst"))


def listed_variants(path: Path) -> Iterator[Variant]:
    with reading(path):
        yield from _bim(path) if path.suffix.lower() == ".bim" else _pvar(path)


def _beside(path: Path, *endings: str) -> Path:
    for ending in endings:
        place = path.with_name(path.name[: -len(path.suffix)] + ending)
        if place.exists():
            return place
    raise DataError("no-lists-beside", path=path, lists=" or ".join(endings))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text by number, without those that are empty."""
    packed = "zstd" if path.suffix == ".zst" else None
    with reading(path), pa.input_stream(str(path), compression=packed) as stream:
        rest = b""
        number = 0
        while True:
            piece = stream.read(1 << 20)
            *lines, rest = (rest + piece).split(b"\n")
            if not piece and rest:
                lines, rest = [rest], b""
            for line in lines:
                number += 1
                if text := line.decode("utf-8").strip("\r"):
                    yield number, text
            if not piece:
                return


def _fam(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in _lines(path):
        cells = line.split()
        if len(cells) < 2:
            raise unreadable(path, f"has no individual in line {number}")
        yield cells[0], cells[1]


def _psam(path: Path) -> Iterator[tuple[str, str]]:
    lines = (each for each in _lines(path) if not each[1].startswith("##"))
    first = next(lines, None)
    if first is None:
        raise unreadable(path, "is empty")
    number, line = first
    if not line.startswith(("#FID", "#IID")):  # as a .fam
        yield from _fam(path)
        return
    header = line[1:].split()
    if "IID" not in header:
        raise unreadable(path, f"names no column IID in line {number}")
    family = header.index("FID") if "FID" in header else None
    individual = header.index("IID")
    for number, line in lines:
        cells = line.split()
        if len(cells) < len(header):
            raise unreadable(path, f"has too few columns in line {number}")
        yield NO_FAMILY if family is None else cells[family], cells[individual]


def _bim(path: Path) -> Iterator[Variant]:
    for number, line in _lines(path):
        cells = line.split()
        if len(cells) < 5:
            raise unreadable(path, f"has too few columns in line {number}")
        chrom, name, *_, position, counted, other = cells[:6]
        yield variant_of(path, number, name, chrom, position, counted, other)


def _pvar(path: Path) -> Iterator[Variant]:
    lines = (each for each in _lines(path) if not each[1].startswith("##"))
    first = next(lines, None)
    if first is None:
        return
    number, line = first
    if not line.startswith("#CHROM"):  # as a .bim
        yield from _bim(path)
        return
    header = line[1:].split()
    wanted = ("CHROM", "POS", "ID", "REF", "ALT")
    if missing := [name for name in wanted if name not in header]:
        raise unreadable(path, f"names no column {missing[0]} in line {number}")
    at = [header.index(name) for name in wanted]
    for number, line in lines:
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < len(header):
            raise unreadable(path, f"has too few columns in line {number}")
        chrom, position, name, other, counted = (cells[place] for place in at)
        yield variant_of(path, number, name, chrom, position, counted, other)


def unreadable(path: Place, problem: str) -> DataError:
    """The error of a damaged file; ``problem`` goes on after its path."""
    return DataError("bad-genotypes", path=path, problem=problem)
