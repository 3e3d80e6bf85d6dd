"""Genotypes in VCF and BCF: the calls (GT) of the variants of a manifest."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from eigenveil.checks import library
from eigenveil.errors import DataError
from eigenveil.io.formats.genotypes import EXTRA, NO_FAMILY, GenotypeFile, unreadable
from eigenveil.io.formats.variants import Manifest, Variant, VariantColumns, chromosome

_MISSING = -1
# At the end of a file in blocks of gzip, as of the specification of SAM and BAM.
_LAST_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
# In cyvcf2's arrays of alleles: not called, and none (of a haploid call beside diploid ones).
_NOT_CALLED, _NO_ALLELE = -1, -2


class VcfFile(GenotypeFile):
    """A ``.vcf``, ``.vcf.gz`` or ``.bcf``: counts of alternate alleles.

    Its text is parsed once, when it is opened, into an unnamed temporary file of one byte a call,
    which every pass reads.

    Notes
    -----
    Phase is not looked at. A haploid call counts twice, as in PLINK's files. A call of which one
    allele is missing, or with more than two, is missing. A variant with several alternate alleles
    is one variant for each of them, in which calls with a third allele are missing.
    """

    label_names = ("IID",)

    def __init__(self, path: Path, *, variants: Path | None = None) -> None:
        self._counts = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object is there
        weakref.finalize(self, self._counts.close)
        self._lines: dict[int, int] = {}
        self._wanted: frozenset[tuple[str, int]] | None = None
        super().__init__(path, variants=variants)

    def _choose(self, path: Path, manifest: Manifest | None) -> VariantColumns:
        if manifest is not None:
            self._wanted = frozenset((each.chrom, each.position) for each in manifest.variants)
        return super()._choose(path, manifest)

    def _open(self, path: Path) -> Any:
        cyvcf2 = library("cyvcf2", extra=EXTRA, what="A .vcf file")
        with path.open("rb") as file:  # htslib says nothing of why it cannot
            _check_whole(path, file)
        with _of_library(path):
            return cyvcf2.VCF(str(path))

    def _read_samples(self, path: Path) -> Iterator[tuple[str, str]]:
        opened = self._open(path)
        try:
            yield from ((NO_FAMILY, name) for name in opened.samples)
        finally:
            opened.close()

    def _read_variants(self, path: Path) -> Iterator[Variant]:
        opened, number = self._open(path), 0
        try:
            for record in _records(path, opened):
                place = (chromosome(record.CHROM), int(record.POS))
                taken = self._wanted is None or place in self._wanted
                alleles = _alleles(path, record) if taken and self._samples else None
                for alternative, name in enumerate(record.ALT or ["."], start=1):
                    if alleles is not None:
                        self._lines[number] = len(self._lines)
                        self._counts.write(_counts(alleles, alternative).tobytes())
                    yield Variant(*place, record.ID or ".", name.upper(), record.REF.upper())
                    number += 1
        finally:
            opened.close()
        self._counts.flush()

    def _band(self, first: int, last: int, places: NDArray[np.int64]) -> NDArray[Any]:
        counts = np.empty((places.size, last - first), np.int8)
        file = self._counts.fileno()
        for row, place in zip(counts, places, strict=True):
            start = self._lines[int(place)] * self.rows + first
            if os.preadv(file, [row.data], start) != row.size:
                raise EOFError("its temporary copy is too short")
        return counts.T


def open_vcf(path: Path, *, variants: Path | None = None) -> VcfFile:
    if variants is None:
        raise DataError("no-manifest", path=path)
    return VcfFile(path, variants=variants)


def _check_whole(path: Path, file: BinaryIO) -> None:
    """Raise where a file in blocks of gzip lacks the empty one at its end: it was cut."""
    start = file.read(16)
    if start[:2] != b"\x1f\x8b" or start[12:14] != b"BC":
        return
    file.seek(max(0, path.stat().st_size - len(_LAST_BLOCK)))
    if file.read() != _LAST_BLOCK:
        raise unreadable(path, "was cut: it lacks its last block")


@contextmanager
def _of_library(path: Path) -> Iterator[None]:
    """Name the file in what the library raises, which has no type of its own."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise unreadable(path, f"cannot be read: {str(error)[:200].rstrip('. ')}") from None


def _records(path: Path, opened: Any) -> Iterator[Any]:
    records = iter(opened)
    while True:
        with _of_library(path):
            record = next(records, None)
        if record is None:
            return
        yield record


def _alleles(path: Path, record: Any) -> NDArray[np.int16]:
    """The two alleles of every sample, shape (n, 2); not called where there are more."""
    if "GT" not in (record.FORMAT or ()):
        raise DataError("no-genotypes", path=path, place=f"{record.CHROM}:{record.POS}")
    with _of_library(path):
        alleles: NDArray[np.int16] = record.genotype.array()[:, :-1]  # the last tells of phase
    if alleles.shape[1] == 1:
        alleles = np.repeat(alleles, 2, axis=1)
    second = np.where(alleles[:, 1] == _NO_ALLELE, alleles[:, 0], alleles[:, 1])
    found: NDArray[np.int16] = np.stack([alleles[:, 0], second], axis=1)
    found[(alleles[:, 2:] != _NO_ALLELE).any(axis=1)] = _NOT_CALLED
    return found


def _counts(alleles: NDArray[np.int16], alternative: int) -> NDArray[np.int8]:
    """Copies of one alternate allele, beside the reference only."""
    count = np.count_nonzero(alleles == alternative, axis=1).astype(np.int8)
    known = ((alleles == 0) | (alleles == alternative)).all(axis=1)
    return np.where(known, count, np.int8(_MISSING))
