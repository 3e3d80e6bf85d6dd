"""Small simulated genotypes, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

bed_reader = pytest.importorskip("bed_reader")
pgenlib = pytest.importorskip("pgenlib")

ALLELES = (("A", "G"), ("C", "A"), ("G", "T"), ("T", "C"))
"""Counted, then other; no pair is the same on both strands."""


_VCF_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT")


def counts_of(samples: int, variants: int, *, seed: int = 3, missing: float = 0.1) -> Any:
    """Counts, NaN where missing."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, size=(samples, variants)).astype(np.float32)
    counts[rng.random(counts.shape) < missing] = np.nan
    return counts


def variants_of(number: int) -> list[tuple[str, int, str, str, str]]:
    """Chromosome, position, id, counted and other allele."""
    return [("1", 100 * (j + 1), f"rs{j + 1}", *ALLELES[j % len(ALLELES)]) for j in range(number)]


def samples_of(number: int) -> list[tuple[str, str]]:
    """Families of two, but for the last sample, which has none."""
    return [("0" if i == number - 1 else f"f{i // 2}", f"i{i}") for i in range(number)]


def write_bed(path: Path, counts: Any, variants: Any = None, samples: Any = None) -> Path:
    """A .bed with its .bim and .fam, of counts of each variant's first allele."""
    variants = variants_of(counts.shape[1]) if variants is None else variants
    samples = samples_of(counts.shape[0]) if samples is None else samples
    bed_reader.to_bed(path, np.ascontiguousarray(counts))
    text = "".join(f"{c}\t{i}\t0\t{p}\t{a}\t{b}\n" for c, p, i, a, b in variants)
    path.with_suffix(".bim").write_text(text)
    text = "".join(f"{family} {individual} 0 0 0 -9\n" for family, individual in samples)
    path.with_suffix(".fam").write_text(text)
    return path


def write_pgen(path: Path, counts: Any, variants: Any = None, *, dosages: bool = False) -> Path:
    """A .pgen with its .pvar and .psam, of counts of each variant's first allele."""
    variants = variants_of(counts.shape[1]) if variants is None else variants
    samples, width = counts.shape
    writer = pgenlib.PgenWriter(
        str(path).encode(), samples, variant_ct=width, nonref_flags=False, dosage_present=dosages
    )
    for column in np.ascontiguousarray(counts.T):
        if dosages:
            writer.append_dosages(np.where(np.isnan(column), -9, column).astype(np.float32))
        else:
            writer.append_biallelic(np.where(np.isnan(column), -9, column).astype(np.int8))
    writer.close()
    text = "##source=test\n#CHROM\tPOS\tID\tREF\tALT\n"
    text += "".join(f"{c}\t{p}\t{i}\t{b}\t{a}\n" for c, p, i, a, b in variants)
    path.with_suffix(".pvar").write_text(text)
    text = "#FID\tIID\tSEX\n"
    text += "".join(f"{family}\t{name}\tNA\n" for family, name in samples_of(samples))
    path.with_suffix(".psam").write_text(text)
    return path


def write_manifest(path: Path, variants: Any, frequencies: Any = None) -> Path:
    """A manifest of variants."""
    head = ["id", "chrom", "pos", "counted", "other"]
    rows = [[i, c, str(p), a, b] for c, p, i, a, b in variants]
    if frequencies is not None:
        head.append("frequency")
        rows = [[*row, repr(float(p))] for row, p in zip(rows, frequencies, strict=True)]
    path.write_text("".join("\t".join(cells) + "\n" for cells in [head, *rows]))
    return path


def read(rows: Any) -> Any:
    """All rows of a source."""
    return np.concatenate([block.values for block in rows.blocks()])


def write_vcf(path: Path, counts: Any, variants: Any = None) -> Path:
    """A VCF of counts of each variant's first allele, which is the alternate one."""
    variants = variants_of(counts.shape[1]) if variants is None else variants
    calls = {0.0: "0/0", 1.0: "0/1", 2.0: "1|1"}
    names = [name for _, name in samples_of(counts.shape[0])]
    lines = [
        "##fileformat=VCFv4.2",
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="calls">',
        *dict.fromkeys(f"##contig=<ID={chrom}>" for chrom, *_ in variants),
        "\t".join([*_VCF_COLUMNS, *names]),
    ]
    for (chrom, position, name, counted, other), column in zip(variants, counts.T, strict=True):
        cells = [chrom, str(position), name, other, counted, ".", ".", ".", "GT"]
        lines.append("\t".join(cells + [calls.get(float(each), "./.") for each in column]))
    path.write_text("\n".join(lines) + "\n")
    return path
