"""Variants of genotype files: the columns they become, and the public manifest that settles them.

A column counts copies of one allele of one variant, and its name says so: ``rs123_A``, as PLINK's
``--export A`` names it.  Two files that count different alleles of a variant have different columns
and are refused together, never added up.

A manifest is a public list of variants, with the allele that is counted, and perhaps its frequency.
Whatever a file has, its columns are then the manifest's (:func:`match`).  Each decision follows
from the file's list of variants and the manifest alone, never from genotypes: what rows decide
would be a release without noise (tables.md, section 5).
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, VariantsWarning, callers_level, of_system, short_name
from eigenveil.files import Place
from eigenveil.tables.names import MOST_VARIANTS, check_width, looks_like_identifier, reads_as_value

MANIFEST_COLUMNS = ("id", "chrom", "pos", "counted", "other")
"""The columns of a manifest, in any order; ``frequency`` may be there too."""
FREQUENCY = "frequency"

_COMPLEMENTS = {"A": "T", "C": "G", "G": "C", "T": "A"}
# what PLINK and VCF write for an allele that is not known
_UNKNOWN = frozenset(["0", "."])
_CHROMOSOMES = {"23": "X", "24": "Y", "25": "XY", "26": "MT", "M": "MT"}


class Variant(NamedTuple):
    """One line of a list of variants."""

    chrom: str  # As :func:`chromosome` writes it
    position: int  # From 1
    id: str  # `.` where it has none
    counted: str  # Alleles: the one whose copies a genotype counts, and the other
    other: str

    @property
    def place(self) -> str:
        """``CHROM:POS:OTHER:COUNTED``, for a variant whose id does not name it."""
        return f"{self.chrom}:{self.position}:{self.other}:{self.counted}"

    @property
    def ambiguous(self) -> bool:
        """Whether both strands have the same two alleles, A and T or C and G."""
        return _COMPLEMENTS.get(self.counted) == self.other


@dataclass(frozen=True, eq=False)
class Manifest:
    """A public list of variants."""

    path: Place
    variants: tuple[Variant, ...]
    frequencies: NDArray[np.float64] | None  # Of the counted alleles, above 0 and below 1

    @property
    def names(self) -> tuple[str, ...]:
        plain = [f"{each.id}_{each.counted}" for each in self.variants]
        if self.frequencies is None:
            return tuple(plain)
        pairs = zip(plain, self.frequencies, strict=True)
        return tuple(f"{name}({frequency:g})" for name, frequency in pairs)


@dataclass(frozen=True, eq=False)
class VariantColumns:
    """Which variants of a file its columns are."""

    names: tuple[str, ...]
    # The variant's number in the file, from 0; -1 where the file has none
    places: NDArray[np.int64]
    swapped: NDArray[np.bool_]  # Whether the file counts the other allele
    # Public ones of the counted alleles, by which genotypes are standardised
    frequencies: NDArray[np.float64] | None = None
    listed: tuple[Variant, ...] = ()  # The file's variants, where no manifest chose among them


def chromosome(text: str) -> str:
    """A chromosome's name without ``chr``, and X, Y, XY and MT for PLINK's numbers 23 to 26."""
    plain = text[3:] if text[:3].lower() == "chr" else text
    plain = plain.upper()
    return _CHROMOSOMES.get(plain, plain)


def all_variants(path: Place, variants: Iterable[Variant]) -> VariantColumns:
    """Every variant as a column; an id that would not do as its name gives way to its place."""
    rest = iter(variants)
    found = list(islice(rest, MOST_VARIANTS))
    check_width(str(path), len(found) + sum(1 for _ in rest), most=MOST_VARIANTS)
    times = Counter(each.id for each in found)
    names = [_name_of(each, own=times[each.id] == 1) for each in found]
    places = np.arange(len(found))
    return VariantColumns(
        tuple(names), places, np.zeros(len(found), dtype=np.bool_), listed=tuple(found)
    )


def _name_of(variant: Variant, *, own: bool) -> str:
    name = f"{variant.id}_{variant.counted}"
    if own and variant.id not in _UNKNOWN and usable_name(name):
        return name
    return f"{variant.place}_{variant.counted}"


def usable_name(name: str) -> bool:
    return not (reads_as_value(name) or looks_like_identifier(name))


# -- A file's variants beside a manifest's.


def match(path: Place, variants: Iterable[Variant], manifest: Manifest) -> VariantColumns:
    """The columns of a manifest, from a file's variants.

    A variant is the manifest's if chromosome, position and both alleles are, in either order, or
    with both alleles on the other strand (single letters). Not taken, and so missing in every row,
    are variants with other alleles; those whose two alleles are A and T or C and G, which look the
    same on both strands; and all but the first of several that match. A VariantsWarning tells the
    owner how many columns are missing, and why.
    """
    wanted: dict[tuple[str, int], list[int]] = {}
    for number, each in enumerate(manifest.variants):
        wanted.setdefault((each.chrom, each.position), []).append(number)
    size = len(manifest.variants)
    places = np.full(size, -1, dtype=np.int64)
    swapped = np.zeros(size, dtype=np.bool_)
    others = np.zeros(size, dtype=np.bool_)
    count = repeated = 0
    for place, found in enumerate(variants):
        count += 1
        for number in wanted.get((found.chrom, found.position), ()):
            swap = swaps(found, manifest.variants[number])
            if swap is None:
                others[number] = True
            elif places[number] >= 0:
                repeated += 1
            else:
                places[number], swapped[number] = place, swap
    only_ambiguous = all(each.ambiguous for each in manifest.variants)
    if count and not (places >= 0).any() and not only_ambiguous:
        raise DataError("no-variants-of-manifest", path=path, size=size, manifest=manifest.path)
    _tell(path, manifest, places, others, repeated)
    return VariantColumns(manifest.names, places, swapped, manifest.frequencies)


def swaps(found: Variant, wanted: Variant) -> bool | None:
    """Whether a variant counts the other allele; ``None`` if it is not the one that is wanted."""
    if wanted.ambiguous:
        return None
    for strand in (str, _complement):
        counted, other = strand(found.counted), strand(found.other)
        if _agree(counted, wanted.counted) and _agree(other, wanted.other):
            return False
        if _agree(counted, wanted.other) and _agree(other, wanted.counted):
            return True
    return None


def _complement(allele: str) -> str:
    """The allele on the other strand; what no allele is where it has several letters."""
    return allele if allele in _UNKNOWN else _COMPLEMENTS.get(allele, "")


def _agree(found: str, wanted: str) -> bool:
    """An allele that nobody has is not known to PLINK, and may be any."""
    return found == wanted or found in _UNKNOWN


def _tell(
    path: Place,
    manifest: Manifest,
    places: NDArray[np.int64],
    others: NDArray[np.bool_],
    repeated: int,
) -> None:
    ambiguous = np.array([each.ambiguous for each in manifest.variants], dtype=np.bool_)
    absent = (places < 0) & ~ambiguous
    parts = [
        (int(np.count_nonzero(absent & ~others)), "not in the file"),
        (int(np.count_nonzero(absent & others)), "with other alleles in the file"),
        (int(np.count_nonzero(ambiguous)), "A/T or C/G, of which no strand can be told"),
    ]
    said = [f"{count:,} {why}" for count, why in parts if count]
    if repeated:
        said.append(f"{repeated:,} more than once, of which the first was taken")
    if said:
        warnings.warn(
            f"{path}: of {places.size:,} variants of {manifest.path}: {'; '.join(said)}. What is "
            "not there is missing in all of its rows.",
            VariantsWarning,
            stacklevel=callers_level(),
        )


# -- The manifest's file.


def read_manifest(path: Place) -> Manifest:
    """Read a manifest: text with tabs, whose first line names the columns.

    ``id``, ``chrom``, ``pos`` (from 1), ``counted`` and ``other`` (alleles), and ``frequency`` (of
    the counted allele, above 0 and below 1) for all variants or none; other columns are not read.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            return _parse(path, (line.rstrip("\r\n") for line in file))
    except OSError as error:
        raise DataError("cannot-read", path=path, reason=of_system(error)) from None
    except UnicodeDecodeError:
        raise _wrong(path, 1, "is not text in UTF-8") from None


def _parse(path: Place, lines: Iterator[str]) -> Manifest:
    header = next(lines, "").removeprefix("#").lower().split("\t")
    if missing := [name for name in MANIFEST_COLUMNS if name not in header]:
        raise _wrong(path, 1, f"names no column {missing[0]!r}")
    at = [header.index(name) for name in MANIFEST_COLUMNS]
    frequency_at = header.index(FREQUENCY) if FREQUENCY in header else None
    variants: list[Variant] = []
    frequencies: list[float] = []
    ids: set[str] = set()
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            raise _wrong(path, number, f"has {len(cells)} cells, and the first {len(header)}")
        name, chrom, position, counted, other = (cells[place] for place in at)
        made = variant_of(path, number, name, chrom, position, counted, other)
        if made.counted in _UNKNOWN or made.other in _UNKNOWN or made.counted == made.other:
            raise _wrong(path, number, "does not have two alleles")
        if name in ids or not usable_name(f"{name}_{counted}") or name in _UNKNOWN:
            said = "is there twice" if name in ids else "cannot be the name of a column"
            raise _wrong(path, number, f"has the id {short_name(name)!r}, which {said}")
        ids.add(name)
        variants.append(made)
        if frequency_at is not None:
            frequencies.append(_frequency(path, number, cells[frequency_at]))
    if not variants:
        raise _wrong(path, 1, "is followed by no variant")
    check_width(str(path), len(variants), most=MOST_VARIANTS)
    known = None if frequency_at is None else np.array(frequencies)
    return Manifest(path, tuple(variants), known)


def _frequency(path: Place, line: int, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found < 1.0:
        raise _wrong(path, line, f"has the frequency {short_name(text)!r}, not above 0 and below 1")
    return found


def variant_of(
    path: Place, line: int, name: str, chrom: str, position: str, counted: str, other: str
) -> Variant:
    if not (position.isascii() and position.isdigit()):
        raise _wrong(path, line, f"has the position {short_name(position)!r}")
    return Variant(chromosome(chrom), int(position), name, counted.upper(), other.upper())


def _wrong(path: Place, line: int, problem: str) -> DataError:
    return DataError(
        "bad-manifest",
        path=path,
        line=line,
        problem=problem,
        columns=", ".join(MANIFEST_COLUMNS),
        frequency=FREQUENCY,
    )


# -- Drafting one.


@dataclass(frozen=True)
class ManifestDraft:
    """A manifest to be, and what was left out of it."""

    lines: tuple[str, ...]  # Of its file
    variants: int
    standardised: bool  # Whether there are frequencies
    left_out: dict[str, int]  # How many variants, by why


def draft(
    variants: Sequence[Variant],
    names: Sequence[str],
    frequencies: NDArray[np.float64] | None,
    *,
    least: float,
) -> ManifestDraft:
    """A manifest of public variants, less those that would be of no use."""
    times = Counter(names)
    taken, left_out = [], Counter[str]()
    for number, variant in enumerate(variants):
        frequency = 0.5 if frequencies is None else float(frequencies[number])
        if {variant.counted, variant.other} & _UNKNOWN or "," in variant.counted:
            left_out["without two known alleles"] += 1
        elif times[names[number]] > 1:
            left_out["listed more than once"] += 1
        elif variant.ambiguous:
            left_out["A/T or C/G, of which no strand can be told"] += 1
        elif not min(frequency, 1.0 - frequency) >= max(least, _RAREST):
            left_out[f"with an allele rarer than {least:g}"] += 1
        else:
            taken.append(number)
    chosen = [
        variants[place]._replace(id=names[place].removesuffix(f"_{variants[place].counted}"))
        for place in taken
    ]
    known = None if frequencies is None else frequencies[taken]
    return ManifestDraft(
        tuple(_manifest_lines(chosen, known)), len(taken), known is not None, {**left_out}
    )


# six digits of a frequency are written
_RAREST = 1e-5


def _manifest_lines(
    variants: Sequence[Variant], frequencies: NDArray[np.float64] | None
) -> Iterator[str]:
    header = MANIFEST_COLUMNS if frequencies is None else (*MANIFEST_COLUMNS, FREQUENCY)
    yield "\t".join(header) + "\n"
    for number, each in enumerate(variants):
        cells = [each.id, each.chrom, str(each.position), each.counted, each.other]
        if frequencies is not None:
            cells.append(f"{frequencies[number]:.6g}")
        yield "\t".join(cells) + "\n"
