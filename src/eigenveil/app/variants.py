"""A public manifest of variants, drafted from public genotypes or a list of variants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.parts import Part
from eigenveil.app.results import check_place
from eigenveil.errors import DataError, WrongOption
from eigenveil.files import replacing
from eigenveil.io.files import expand
from eigenveil.io.formats.genotypes import GenotypeFile, is_variant_list, listed_variants
from eigenveil.io.formats.registry import USUAL, format_of
from eigenveil.io.formats.variants import ManifestDraft, all_variants, draft
from eigenveil.io.formats.vcf import VcfFile


@dataclass(frozen=True)
class WrittenManifest:
    """A manifest, and where it was written."""

    out: Path
    made: ManifestDraft

    def as_json(self) -> dict[str, Any]:
        counts = {"variants": self.made.variants, "frequencies": self.made.standardised}
        return {"out": self.out, **counts, "left_out": self.made.left_out}

    def parts(self) -> Iterator[Part]:
        kind = "with frequencies" if self.made.standardised else "without frequencies"
        yield f"{self.made.variants:,} variants {kind} written to {self.out}"
        for why, count in self.made.left_out.items():
            yield f"left out: {count:,} {why}"


def write_manifest(
    file: Path, out: Path, *, public: bool, least_frequency: float, overwrite: bool = False
) -> WrittenManifest:
    check_place(out, overwrite=overwrite)
    if not public:
        raise WrongOption("not-said-to-be-public", file=file)
    if not 0.0 <= least_frequency < 0.5:
        raise WrongOption(
            "out-of-range",
            name="--least-frequency",
            value=least_frequency,
            wanted="from 0 to below 0.5, such as 0.01",
        )
    made = _draft(file, least_frequency)
    with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as opened:
        opened.writelines(made.lines)
    return WrittenManifest(out, made)


def _draft(file: Path, least: float) -> ManifestDraft:
    if is_variant_list(file):
        found = all_variants(file, listed_variants(file))
        made = draft(found.listed, found.names, None, least=least)
    else:
        opened = _open(file)
        made = draft(opened.listed, opened.columns, opened.count_frequencies(), least=least)
    if not made.variants:
        left = "; ".join(f"{count:,} {why}" for why, count in made.left_out.items())
        raise DataError("no-variants", file=file, left=f" ({left})" if left else "")
    return made


def _open(file: Path) -> GenotypeFile:
    """Genotypes of all variants: public ones, so that a VCF may name its own."""
    (row_file,) = expand([file])
    path = row_file.place
    found = format_of(path)
    if found is not None and found.name == "vcf":
        return VcfFile(Path(path))
    opened = (
        None if found is None or "variants" not in found.takes else found.open(path, read=USUAL)
    )
    if not isinstance(opened, GenotypeFile):
        raise DataError("file-without-variants", file=file)
    return opened
