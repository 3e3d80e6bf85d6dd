"""``eigenveil variants``: the public manifest that settles which variants are columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil.app.results import check_place
from eigenveil.cli import options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import DataError
from eigenveil.files import replacing
from eigenveil.io.files import expand
from eigenveil.io.formats.genotypes import GenotypeFile, is_variant_list, listed_variants
from eigenveil.io.formats.registry import USUAL, format_of
from eigenveil.io.formats.variants import Draft, all_variants, draft
from eigenveil.io.formats.vcf import VcfFile

_HELP = "A public manifest of genetic variants, which makes genotypes of many sites the same."
variants_app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
)
_COMMON = 0.01


@variants_app.callback(help=_HELP)
def _group() -> None:
    """Keep ``new`` a command of its own, though it is the only one."""


@variants_app.command()
def new(
    file: Annotated[
        Path,
        typer.Argument(
            help="Public genotypes (.bed, .pgen, .vcf, .bcf), of which frequencies are taken, or a "
            "list of variants (.bim, .pvar)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write, such as variants.tsv.")],
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Say that FILE is public, such as a reference panel or the list of an array: all "
            "that the manifest has is published.",
        ),
    ] = False,
    least_frequency: Annotated[
        float, typer.Option(help="Leave variants out whose rarer allele is rarer than this.")
    ] = _COMMON,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a manifest of the variants of public data, with their frequencies there."""
    check_place(out, overwrite=overwrite)
    if not public:
        raise WrongOption(
            f"{file} becomes public: variants and exact frequencies are written from it.",
            hint="Never use rows that are to be protected. If it is public already, say --public.",
            code="not-said-to-be-public",
        )
    if not 0.0 <= least_frequency < 0.5:
        raise WrongOption(
            f"--least-frequency {least_frequency:g} is not from 0 to below 0.5.",
            hint=f"Give a frequency such as {_COMMON:g}.",
        )
    made = _draft(file, least_frequency)
    with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as opened:
        opened.writelines(made.lines)
    if json:
        options.print_json(
            {
                "out": str(out),
                "variants": made.variants,
                "frequencies": made.standardised,
                "left_out": made.left_out,
            }
        )
        return
    screen = Screen(quiet=quiet)
    kind = "with frequencies" if made.standardised else "without frequencies"
    screen.print(f"{made.variants:,} variants {kind} written to {out}")
    for why, count in made.left_out.items():
        screen.print(f"left out: {count:,} {why}")
    screen.next("fit FILE.bed --variants", out, "...")


def _draft(file: Path, least: float) -> Draft:
    if is_variant_list(file):
        found = all_variants(file, listed_variants(file))
        made = draft(found.listed, found.names, None, least=least)
    else:
        opened = _open(file)
        made = draft(opened.listed, opened.columns, opened.count_frequencies(), least=least)
    if not made.variants:
        left = "; ".join(f"{count:,} {why}" for why, count in made.left_out.items())
        raise DataError(
            f"{file} has no variant for a manifest{f' ({left})' if left else ''}.",
            hint="Lower --least-frequency, or give other data.",
            code="no-variants",
        )
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
        raise DataError(
            f"{file} has no variants.",
            hint="Give genotypes (.bed, .pgen, .vcf, .bcf) or a list of variants (.bim, .pvar).",
            code="unknown-format",
        )
    return opened
