"""Genotypes of PLINK 1 and 2: what is read, its names and labels, and files that are damaged."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from genotype_tools import counts_of, read, variants_of, write_bed, write_pgen
from row_formats import labels_of

from eigenveil import DataError, PrivatePCA
from eigenveil.io import open_rows
from eigenveil.io.formats import genotypes
from refusal_tools import refuses

COUNTS = counts_of(41, 7)


@pytest.fixture(params=["bed", "pgen"])
def file(request, tmp_path):
    write = write_bed if request.param == "bed" else write_pgen
    return write(tmp_path / f"some.{request.param}", COUNTS)


@pytest.mark.parametrize("band", [1, 300, 1 << 27])
def test_counts_come_back_in_order_whatever_the_band(file, monkeypatch, band):
    monkeypatch.setattr(genotypes, "_BAND_BYTES", band)
    rows = open_rows([file])
    np.testing.assert_array_equal(read(rows), COUNTS)


def test_a_column_is_called_by_its_id_and_the_counted_allele(file):
    expected = tuple(f"{name}_{counted}" for _, _, name, counted, _ in variants_of(7))
    assert tuple(open_rows([file]).names) == expected == ("rs1_A", "rs2_C", "rs3_G", "rs4_T",
        "rs5_A", "rs6_C", "rs7_G")  # fmt: skip
    chosen = open_rows([file], columns=["rs6_C", "rs2_C"])
    np.testing.assert_array_equal(read(chosen), COUNTS[:, [5, 1]])


def test_samples_keep_their_ids_and_families(file):
    rows = open_rows([file], unit="FID")
    labels = {name: labels_of(rows, name) for name in ("FID", "IID")}
    assert list(labels["IID"]) == [f"i{i}" for i in range(41)]
    assert list(labels["FID"]) == [*(f"f{i // 2}" for i in range(40)), None]
    units = np.concatenate([block.units for block in rows.blocks()])
    assert list(units) == list(labels["FID"])
    assert "FID" not in rows.names


@pytest.mark.parametrize("write", [write_bed, write_pgen])
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["1:100", "1:200:A:C"], ["1:100_A", "1:200:A:C_C"]),
        ([".", "rs9"], ["1:100:G:A_A", "rs9_C"]),
        (["rs9", "rs9"], ["1:100:G:A_A", "1:200:A:C_C"]),
        (["IID", "patient_id"], ["IID_A", "patient_id_C"]),
        (["id_1", "id"], ["1:100:G:A_A", "1:200:A:C_C"]),
    ],
)
def test_ids_that_do_not_name_a_variant_give_way_to_its_place(tmp_path, write, ids, expected):
    variants = [
        (chrom, position, name, *alleles)
        for (chrom, position, _, *alleles), name in zip(variants_of(2), ids, strict=True)
    ]
    path = write(tmp_path / f"a.{write.__name__[-4:].strip('_')}", COUNTS[:, :2], variants)
    assert list(open_rows([path]).names) == expected


def test_alleles_in_numbers_do_not_make_a_name_a_number(tmp_path):
    variants = [("1", 100, "12345", "1", "2"), ("1", 200, "12346", "2", "1")]
    path = write_bed(tmp_path / "a.bed", COUNTS[:, :2], variants)
    assert list(open_rows([path]).names) == ["1:100:2:1_1", "1:200:1:2_2"]


def test_files_that_count_different_alleles_are_refused_together(tmp_path):
    one = write_bed(tmp_path / "one.bed", COUNTS[:, :2])
    swapped = [(c, p, i, b, a) if i == "rs2" else (c, p, i, a, b)
               for c, p, i, a, b in variants_of(2)]  # fmt: skip
    other = write_bed(tmp_path / "other.bed", COUNTS[:, :2], swapped)
    with refuses("missing-column"):
        open_rows([one, other])


def test_dosages_are_taken_where_they_are_stored(tmp_path):
    dosages = np.array([[0.25, 1.75], [np.nan, 0.5], [2.0, 1.0]], np.float32)
    path = write_pgen(tmp_path / "a.pgen", dosages, dosages=True)
    np.testing.assert_array_equal(read(open_rows([path])), dosages)


def test_a_fit_reads_them_and_holes_follow_its_rule(file):
    pca = PrivatePCA(2, epsilon=50.0, missing="zero", random_state=0).fit_rows(open_rows([file]))
    assert list(pca.feature_names_in_) == list(open_rows([file]).names)
    scores = pca.transform(COUNTS)
    assert np.isfinite(scores).all()


def test_a_band_is_all_that_is_held(tmp_path, monkeypatch):
    """20,000 x 500 counts take 40 MB as they are given, and 2 MB a band here."""
    samples, width = 20_000, 500
    path = tmp_path / "a.bed"
    write_bed(path, np.zeros((4, width), np.float32))
    line = -(-samples // 4)
    path.write_bytes(bytes([0x6C, 0x1B, 1]) + bytes([0b11100100]) * (line * width))
    path.with_suffix(".fam").write_text("".join(f"f i{i} 0 0 0 0\n" for i in range(samples)))
    monkeypatch.setattr(genotypes, "_BAND_BYTES", 1 << 21)
    rows = open_rows([path])
    count = 0
    tracemalloc.start()
    for block in rows.blocks():
        count += block.values.shape[0]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == samples
    assert most < 25e6


# -- Files that are damaged: a sentence that names the file and what is wrong.


def lines_of(data):
    return data.splitlines(keepends=True)


def spoiled(path, ending, change):
    """The file beside it with this ending, changed; or taken away."""
    file = path.with_suffix(ending)
    content = change(file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)


MORE = b"".join(b"g g%d 0 0 0 0\n" % number for number in range(9))


@pytest.mark.parametrize(
    ("ending", "change", "code", "said"),
    [
        (".bed", lambda d: d[:-1], "files-of-other-runs", "80 bytes, and .* 80|has 79 bytes"),
        (".bed", lambda d: b"\x00" + d[1:], "bad-genotypes", "does not begin as a .bed"),
        (".bed", lambda d: d[:2] + b"\x00" + d[3:], "stored-by-samples", "sample by sample"),
        (".bed", lambda d: b"", "bad-genotypes", "does not begin as a .bed"),
        (
            ".bim",
            lambda d: b"".join(lines_of(d)[:-1]),
            "files-of-other-runs",
            r"6 variants \(.bim\) of 41 samples",
        ),
        (".bim", lambda d: d.replace(b"\t200\t", b"\tx\t"), "bad-manifest", "the position 'x'"),
        (".bim", lambda d: b"1 rs1\n", "bad-genotypes", "too few columns in line 1"),
        (".bim", lambda d: b"\xff\xfe\x00", "unreadable", "some.bim"),
        (".fam", lambda d: d + MORE, "files-of-other-runs", r"of 50 samples \(.fam\)"),
        (".fam", lambda d: b"alone\n", "bad-genotypes", "no individual in line 1"),
        (".fam", lambda d: None, "no-lists-beside", "has no .fam beside it"),
        (".pgen", lambda d: d[:-3], None, "some.pgen"),
        (".pgen", lambda d: bytes(80), None, "some.pgen"),
        (".pvar", lambda d: b"".join(lines_of(d)[:-1]), None, "some.pgen"),
        (
            ".pvar",
            lambda d: d.replace(b"\tC\n", b"\tC,T\n", 1),
            None,
            "more than two alleles, 'rs2'",
        ),
        (".psam", lambda d: d + b"f\tmore\tNA\n", None, "some.pgen"),
        (".psam", lambda d: b"#FID\tSEX\n", None, "no column IID"),
    ],
)
def test_damaged_genotypes_are_refused_with_a_sentence(tmp_path, ending, change, code, said):
    of_bed = ending in (".bed", ".bim", ".fam")
    path = (write_bed if of_bed else write_pgen)(
        tmp_path / f"some.{'bed' if of_bed else 'pgen'}", COUNTS
    )
    spoiled(path, ending, change)
    with pytest.raises(DataError, match=said) as refused:
        list(open_rows([path]).blocks())
    known = ("several-alleles", "bad-genotypes", "unreadable") if code is None else (code,)
    assert refused.value.code in known


def test_a_bed_that_is_cut_between_passes_is_refused(tmp_path):
    path = write_bed(tmp_path / "some.bed", COUNTS)
    rows = open_rows([path])
    spoiled(path, ".bed", lambda data: data[:-1])
    with refuses("file-changed"):
        list(rows.blocks())


def test_more_variants_than_are_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.variants.MOST_VARIANTS", 5)
    with refuses("too-many-columns", "7 columns, and at most 5"):
        open_rows([write_bed(tmp_path / "a.bed", COUNTS)])
