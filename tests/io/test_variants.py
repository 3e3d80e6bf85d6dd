"""A manifest makes columns the same wherever genotypes are; and genotypes of VCF files."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from genotype_tools import (
    ALLELES,
    counts_of,
    read,
    variants_of,
    write_bed,
    write_manifest,
    write_pgen,
    write_vcf,
)
from row_formats import labels_of

from eigenveil import DataError, FederatedPCA, PrivatePCA, VariantsWarning
from eigenveil.io import ReadOptions, open_rows
from eigenveil.io.formats import genotypes
from eigenveil.io.formats.variants import Variant, chromosome, read_manifest, swaps
from refusal_tools import refuses

OTHER_STRAND = {"A": "T", "C": "G", "G": "C", "T": "A"}
WIDTH = 8
COUNTS = counts_of(33, WIDTH)
PUBLIC = np.array([0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75])
WRITERS = {"bed": write_bed, "pgen": write_pgen, "vcf": write_vcf}


def standardised(counts, frequencies=PUBLIC):
    return np.nan_to_num((counts - 2 * frequencies) / np.sqrt(2 * frequencies * (1 - frequencies)))


def another_form(counts, variants, *, seed=5):
    """The same genotypes in another order, some swapped, some on the other strand."""
    rng = np.random.default_rng(seed)
    found, columns = [], []
    for place in rng.permutation(len(variants)):
        chrom, position, _, counted, other = variants[place]
        column = counts[:, place]
        if rng.random() < 0.5:
            counted, other, column = other, counted, 2 - column
        if rng.random() < 0.5:
            counted, other = OTHER_STRAND[counted], OTHER_STRAND[other]
        found.append((f"chr{chrom}", position, f"x{place}", counted, other))
        columns.append(column)
    return np.ascontiguousarray(np.column_stack(columns)), found


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    return lambda name, *given: WRITERS[request.param](tmp_path / f"{name}.{request.param}", *given)


@pytest.fixture
def manifest(tmp_path):
    return write_manifest(tmp_path / "variants.tsv", variants_of(WIDTH))


@pytest.fixture
def frequent(tmp_path):
    return write_manifest(tmp_path / "frequent.tsv", variants_of(WIDTH), PUBLIC)


def opened(path, manifest, **given):
    return open_rows([path], read=ReadOptions(variants=manifest), **given)


# -- The same columns from every file.


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_the_manifests_whatever_the_files_order_allele_and_strand(
    write, manifest, frequent, seed
):
    turned = write("turned", *another_form(COUNTS, variants_of(WIDTH), seed=seed))
    np.testing.assert_array_equal(read(opened(turned, manifest)), COUNTS)
    plain = read(opened(write("plain", COUNTS), frequent))
    np.testing.assert_allclose(plain, standardised(COUNTS), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(read(opened(turned, frequent)), plain)  # to the last bit


def test_names_say_the_counted_allele_and_the_frequency(write, manifest, frequent):
    path = write("a", COUNTS)
    plain = [f"rs{j + 1}_{ALLELES[j % 4][0]}" for j in range(WIDTH)]
    assert list(opened(path, manifest).names) == plain
    expected = [f"{name}({p:g})" for name, p in zip(plain, PUBLIC, strict=True)]
    assert list(opened(path, frequent).names) == expected


def test_what_a_file_has_not_is_missing_and_told(write, manifest, frequent, tmp_path):
    kept = [0, 1, 2, 4, 7]
    variants = [variants_of(WIDTH)[place] for place in kept]
    chrom, position, name, counted, _ = variants[3]
    variants[3] = (chrom, position, name, counted, "T" if counted == "G" else "G")
    variants[3] = (chrom, position, name, "ACC", "A")
    path = write("some", np.ascontiguousarray(COUNTS[:, kept]), variants)
    expected = np.full_like(COUNTS, np.nan)
    expected[:, [0, 1, 2, 7]] = COUNTS[:, [0, 1, 2, 7]]
    with pytest.warns(VariantsWarning, match="of 8 .*: 3 not in the file; 1 with other alleles"):
        rows = opened(path, manifest)
    np.testing.assert_array_equal(read(rows), expected)
    with pytest.warns(VariantsWarning):
        found = read(opened(path, frequent))
    np.testing.assert_allclose(found, standardised(expected), rtol=1e-5, atol=1e-6)


def test_variants_that_look_the_same_on_both_strands_are_missing(write, tmp_path):
    variants = [*variants_of(2), ("2", 5, "rs8", "A", "T"), ("2", 6, "rs9", "G", "C")]
    place = write_manifest(tmp_path / "m.tsv", variants)
    path = write("a", COUNTS[:, :4], variants)
    with pytest.warns(VariantsWarning, match="2 A/T or C/G, of which no strand can be told"):
        found = read(opened(path, place))
    np.testing.assert_array_equal(found[:, :2], COUNTS[:, :2])
    assert np.isnan(found[:, 2:]).all()


def test_no_variant_in_common_is_an_error(write, tmp_path):
    far = [(c, p + 1, i, a, b) for c, p, i, a, b in variants_of(WIDTH)]
    place = write_manifest(tmp_path / "m.tsv", far)
    with refuses("no-variants-of-manifest", "another build"):
        opened(write("a", COUNTS), place)


@pytest.mark.parametrize(
    ("counted", "other", "expected"),
    [
        ("A", "G", False), ("G", "A", True), ("T", "C", False), ("C", "T", True),
        ("0", "G", False), ("0", "A", True), ("0", "C", False), ("0", "T", True),
        ("A", "C", None), ("A", "T", None), ("AT", "G", None), ("G", "AT", None),
    ],
)  # fmt: skip
def test_alleles_are_the_same_swapped_or_others(counted, other, expected):
    wanted = Variant("1", 1, "rs1", "A", "G")
    assert swaps(Variant("1", 1, ".", counted, other), wanted) is expected


def test_longer_alleles_are_matched_as_they_are_written():
    wanted = Variant("1", 1, "rs1", "AT", "A")
    assert swaps(Variant("1", 1, ".", "A", "AT"), wanted) is True
    assert swaps(Variant("1", 1, ".", "TA", "T"), wanted) is None


def test_chromosomes_have_one_name():
    assert [chromosome(t) for t in ("chr7", "CHR7", "7", "23", "chrX", "MT", "chrM", "26")] == [
        "7", "7", "7", "X", "X", "MT", "MT", "MT"
    ]  # fmt: skip


def test_an_entry_follows_from_its_own_row(write, frequent, monkeypatch):
    """Otherwise a person more or less would change the others' rows, and the guarantee fail."""
    whole = read(opened(write("whole", COUNTS), frequent))
    monkeypatch.setattr(genotypes, "_BAND_BYTES", 64)
    for taken in ([0], [5, 6], [32, 1, 17]):
        some = write("some", np.ascontiguousarray(COUNTS[taken]))
        np.testing.assert_array_equal(read(opened(some, frequent)), whole[taken])


def test_files_of_other_forms_are_one_table(tmp_path, frequent):
    whole = counts_of(400, WIDTH, missing=0.02)
    north = write_bed(tmp_path / "north.bed", np.ascontiguousarray(whole[:250]))
    south = write_pgen(tmp_path / "south.pgen", *another_form(whole[250:], variants_of(WIDTH)))
    rows = open_rows([north, south], read=ReadOptions(variants=frequent))
    pca = PrivatePCA(2, epsilon=1e4, center=False, row_norm=12.0, random_state=1)
    found = pca.fit_rows(rows).components_
    alike = pca.fit(standardised(whole).astype(np.float32)).components_
    np.testing.assert_allclose(found, alike, atol=1e-3)


def test_sites_with_other_frequencies_are_refused_together(tmp_path, frequent):
    """Sums of numbers that mean different things would otherwise be released."""
    others = write_manifest(tmp_path / "others.tsv", variants_of(WIDTH), PUBLIC[::-1])
    north = write_bed(tmp_path / "north.bed", COUNTS)
    south = write_bed(tmp_path / "south.bed", COUNTS)
    rows = {"north": opened(north, frequent), "south": opened(south, others)}
    with pytest.raises(DataError, match=r"column 1 .from 1. has another name"):
        FederatedPCA(2, random_state=1).fit_rows(rows)


# -- The manifest's file.


FIRST = "id\tchrom\tpos\tcounted\tother"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 names no column 'id'"),
        (FIRST[:-6], "names no column 'other'"),
        (FIRST, "followed by no variant"),
        (f"{FIRST}\nrs1\t1\t5\tA", "line 2 has 4 cells, and the first 5"),
        (f"{FIRST}\nrs1\t1\t-5\tA\tG", "line 2 has the position '-5'"),
        (f"{FIRST}\nrs1\t1\t5\tA\tA", "line 2 does not have two alleles"),
        (f"{FIRST}\nrs1\t1\t5\tA\t0", "line 2 does not have two alleles"),
        (f"{FIRST}\nrs1\t1\t5\tA\tG\nrs1\t1\t6\tA\tG", "line 3 has the id 'rs1', which is there"),
        (f"{FIRST}\n.\t1\t5\tA\tG", "cannot be the name of a column"),
        (f"{FIRST}\nid_1\t1\t5\tA\tG", "cannot be the name of a column"),
        *(
            (f"{FIRST}\tfrequency\nrs1\t1\t5\tA\tG\t{wrong}", "line 2 has the frequency")
            for wrong in ("0", "1", "nan", "", "x", "-0.1", "1e999")
        ),
    ],
)
def test_a_manifest_that_cannot_be_one_is_refused_by_line(tmp_path, text, said):
    place = tmp_path / "m.tsv"
    place.write_text(text + "\n")
    with refuses("bad-manifest", said):
        read_manifest(place)


def test_a_manifest_that_is_not_there_or_no_text(tmp_path):
    with refuses("cannot-read"):
        read_manifest(tmp_path / "none.tsv")
    (tmp_path / "m.tsv").write_bytes(b"\xff\xfe\x00")
    with refuses("bad-manifest"):
        read_manifest(tmp_path / "m.tsv")


# -- Writing one from public data.


def test_a_manifest_is_written_from_public_genotypes(write, tmp_path, run):
    variants = [*variants_of(WIDTH - 2), ("2", 5, "rs8", "A", "T"), ("2", 6, "rare", "A", "G")]
    counts = COUNTS.copy()
    counts[:, -1] = 0.0
    panel, place = write("panel", counts, variants), tmp_path / "new.tsv"
    assert "--public" in run.fails("variants", "new", panel, "--out", place, status=2)
    assert not place.exists()
    said = json.loads(run("variants", "new", panel, "--out", place, "--public", "--json")[1])
    assert said["variants"] == WIDTH - 2
    assert sorted(said["left_out"].values()) == [1, 1]
    found = read_manifest(place)
    expected = np.nanmean(counts[:, : WIDTH - 2], axis=0) / 2
    np.testing.assert_allclose(found.frequencies, expected, rtol=1e-5)
    assert [each.id for each in found.variants] == [f"rs{j + 1}" for j in range(WIDTH - 2)]
    entries = read(opened(panel, place))
    held = counts[:, : WIDTH - 2].astype(np.float64)
    np.testing.assert_allclose(entries, standardised(held, expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", [".bim", ".pvar"])
def test_a_manifest_is_written_from_a_list_of_variants(tmp_path, ending, run):
    write = write_bed if ending == ".bim" else write_pgen
    panel = write(tmp_path / f"a.{write.__name__.removeprefix('write_')}", COUNTS)
    place = tmp_path / "new.tsv"
    _, out, _ = run("variants", "new", panel.with_suffix(ending), "--out", place, "--public")
    found = read_manifest(place)
    assert found.frequencies is None
    assert [tuple(each) for each in found.variants] == variants_of(WIDTH)
    assert "without frequencies" in out


def test_what_has_no_variants_makes_no_manifest(tmp_path, text, run):
    place = tmp_path / "new.tsv"
    table = text("rows.csv", "alpha,beta\n1,2\n")
    assert run("variants", "new", table, "--out", place, "--public")[0] == 3
    rare = write_bed(tmp_path / "rare.bed", np.zeros((5, 2), np.float32))
    err = run.fails("variants", "new", rare, "--out", place, "--public", status=3)
    assert "rarer than 0.01" in err
    assert not place.exists()


# -- VCF.


def test_a_vcf_needs_a_manifest(tmp_path):
    with refuses("no-manifest", "names of columns are published"):
        open_rows([write_vcf(tmp_path / "a.vcf", COUNTS)])


HEAD = (
    "##fileformat=VCFv4.2\n##contig=<ID=1>\n"
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="calls">\n'
    '##FORMAT=<ID=DS,Number=1,Type=Float,Description="dosage">\n'
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2\ts3\ts4\n"
)
WANTED = [("1", 100, "rs1", "A", "G")]


@pytest.mark.parametrize(
    ("alleles", "calls", "expected"),
    [
        ("G\tA", "0/0\t0|1\t1/0\t1|1", [0, 1, 1, 2]),
        ("G\tA", "0\t1\t.\t1/1", [0, 2, np.nan, 2]),
        ("G\tA", "./1\t1/.\t./.\t0/0", [np.nan, np.nan, np.nan, 0]),
        ("G\tA,T", "0/1\t1/2\t2/2\t1/1", [1, np.nan, np.nan, 2]),
        ("G\tT,A", "0/1\t0/2\t2/2\t1/1", [np.nan, 1, 2, np.nan]),
        ("A\tG", "0/0\t0/1\t1/1\t./.", [2, 1, 0, np.nan]),
        ("G\t.", "0/0\t0/0\t./.\t0/0", [0, 0, np.nan, 0]),
        ("G\tA", "0/7\t0/1\t0/0\t0/0", [np.nan, 1, 0, 0]),
        ("G\tA", "0/0/1\t0/1\t1/1/1\t0", [np.nan, 1, np.nan, 0]),
    ],
)
def test_calls_of_every_kind(tmp_path, text, alleles, calls, expected):
    path = text("a.vcf", f"{HEAD}1\t100\trs1\t{alleles}\t.\t.\t.\tGT\t{calls}\n")
    rows = opened(path, write_manifest(tmp_path / "m.tsv", WANTED))
    np.testing.assert_array_equal(read(rows)[:, 0], expected)
    assert list(labels_of(rows, "IID")) == ["s1", "s2", "s3", "s4"]


LINE = "1\t{}\trs1\tG\tA\t.\t.\t.\t{}\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (LINE.format(100, "DS\t0.1\t1\t2\t0"), "no genotypes .GT. at 1:100"),
        (LINE.format("x", "GT\t0/0\t0/1\t0/1\t0/1"), "cannot be read"),
        (LINE.format(100, "GT\t0/0\t0/1"), "cannot be read"),
    ],
)
def test_a_vcf_that_cannot_be_read_is_refused(tmp_path, text, body, said):
    path = text("a.vcf", HEAD + body)
    with pytest.raises(DataError, match=said) as refused:
        opened(path, write_manifest(tmp_path / "m.tsv", WANTED))
    assert refused.value.code in ("no-genotypes", "bad-genotypes")


def test_a_vcf_that_was_cut_or_is_none_is_refused(tmp_path):
    place = write_manifest(tmp_path / "m.tsv", variants_of(WIDTH))
    whole = gzip.compress(write_vcf(tmp_path / "a.vcf", COUNTS).read_bytes())
    path = tmp_path / "a.vcf.gz"
    path.write_bytes(whole)
    np.testing.assert_array_equal(read(opened(path, place)), COUNTS)
    for wrong in (whole[: len(whole) // 2], whole[:-4], b"", b"not one\n", bytes(90)):
        path.write_bytes(wrong)
        with refuses("bad-genotypes"):
            opened(path, place)


def test_blocks_of_gzip_without_their_last_one_were_cut(tmp_path):
    from cyvcf2 import VCF, Writer

    place = write_manifest(tmp_path / "m.tsv", variants_of(WIDTH))
    source = VCF(str(write_vcf(tmp_path / "a.vcf", COUNTS)))
    path = tmp_path / "b.vcf.gz"
    writer = Writer(str(path), source, mode="wz")
    for record in source:
        writer.write_record(record)
    writer.close()
    np.testing.assert_array_equal(read(opened(path, place)), COUNTS)
    path.write_bytes(path.read_bytes()[:-28])
    with pytest.raises(DataError, match="was cut"):
        opened(path, place)
