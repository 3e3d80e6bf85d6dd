"""Genotypes of PLINK 1 and 2: what is read, its names and labels, and files that are damaged."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from genotype_tools import bed_reader, counts_of, read, variants_of, write_bed, write_pgen
from row_formats import labels_of

from eigenveil import DataError, PrivatePCA
from eigenveil.io import open_rows
from eigenveil.io.formats import genotypes

SHIPPED = Path(bed_reader.__file__).parent / "tests" / "data"
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


def test_counts_of_what_others_wrote():
    """Files that bed-reader ships: counts of A1, as it reads them."""
    for name in ("toydata.5chrom", "some_missing", "plink_sim_10s_100v_10pmiss"):
        path = SHIPPED / f"{name}.bed"
        with bed_reader.open_bed(path, count_A1=True) as bed:
            expected = bed.read(dtype="float32")
        np.testing.assert_array_equal(read(open_rows([path])), expected)
    assert labels_of(open_rows([SHIPPED / "some_missing.bed"]), "IID")[1] == "iid_1"


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
    with pytest.raises(DataError) as refused:
        open_rows([one, other])
    assert refused.value.code == "missing-column"


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


def spoil_size(bed):
    bed.write_bytes(bed.read_bytes()[:-1])


def spoil_magic(bed):
    bed.write_bytes(b"\x00" + bed.read_bytes()[1:])


def spoil_order(bed):
    data = bytearray(bed.read_bytes())
    data[2] = 0
    bed.write_bytes(bytes(data))


def spoil_variants(bed):
    bim = bed.with_suffix(".bim")
    bim.write_text("".join(bim.read_text().splitlines(keepends=True)[:-1]))


def spoil_samples(bed):
    fam = bed.with_suffix(".fam")
    fam.write_text(fam.read_text() + "".join(f"g g{i} 0 0 0 0\n" for i in range(9)))


def spoil_position(bed):
    bim = bed.with_suffix(".bim")
    bim.write_text(bim.read_text().replace("\t200\t", "\tx\t"))


def spoil_line(bed):
    bed.with_suffix(".bim").write_text("1 rs1\n")


def spoil_individual(bed):
    bed.with_suffix(".fam").write_text("alone\n")


def spoil_beside(bed):
    bed.with_suffix(".fam").unlink()


def spoil_text(bed):
    bed.with_suffix(".bim").write_bytes(b"\xff\xfe\x00")


def spoil_all(bed):
    bed.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (spoil_size, "files-of-other-runs", "80 bytes, and 7 variants .* take 80|has 79 bytes"),
        (spoil_magic, "bad-genotypes", "does not begin as a .bed"),
        (spoil_order, "stored-by-samples", "sample by sample"),
        (spoil_variants, "files-of-other-runs", r"6 variants \(.bim\) of 41 samples"),
        (spoil_samples, "files-of-other-runs", r"of 50 samples \(.fam\)"),
        (spoil_position, "bad-manifest", "line 2 has the position 'x'"),
        (spoil_line, "bad-genotypes", "too few columns in line 1"),
        (spoil_individual, "bad-genotypes", "no individual in line 1"),
        (spoil_beside, "no-lists-beside", "has no .fam beside it"),
        (spoil_text, "unreadable", "some.bim"),
        (spoil_all, "bad-genotypes", "does not begin as a .bed"),
    ],
)
def test_a_damaged_bed_is_refused_with_a_sentence(tmp_path, spoil, code, said):
    path = write_bed(tmp_path / "some.bed", COUNTS)
    spoil(path)
    with pytest.raises(DataError, match=said) as refused:
        open_rows([path])
    assert refused.value.code == code


def test_a_bed_that_is_cut_between_passes_is_refused(tmp_path):
    path = write_bed(tmp_path / "some.bed", COUNTS)
    rows = open_rows([path])
    spoil_size(path)
    with pytest.raises(DataError) as refused:
        list(rows.blocks())
    assert refused.value.code == "file-changed"


def cut_pgen(pgen):
    pgen.write_bytes(pgen.read_bytes()[:-3])


def garble_pgen(pgen):
    pgen.write_bytes(b"\x00" * 80)


def shorten_pvar(pgen):
    pvar = pgen.with_suffix(".pvar")
    pvar.write_text("".join(pvar.read_text().splitlines(keepends=True)[:-1]))


def more_samples(pgen):
    psam = pgen.with_suffix(".psam")
    psam.write_text(psam.read_text() + "f\tmore\tNA\n")


def third_allele(pgen):
    pvar = pgen.with_suffix(".pvar")
    pvar.write_text(pvar.read_text().replace("\tC\n", "\tC,T\n", 1))


def no_header(pgen):
    pgen.with_suffix(".psam").write_text("#FID\tSEX\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut_pgen, "some.pgen"),
        (garble_pgen, "some.pgen"),
        (shorten_pvar, "some.pgen"),
        (more_samples, "some.pgen"),
        (third_allele, "more than two alleles, 'rs2'"),
        (no_header, "no column IID"),
    ],
)
def test_a_damaged_pgen_is_refused_with_a_sentence(tmp_path, spoil, said):
    path = write_pgen(tmp_path / "some.pgen", COUNTS)
    spoil(path)
    with pytest.raises(DataError, match=said) as refused:
        list(open_rows([path]).blocks())
    assert refused.value.code in ("several-alleles", "bad-genotypes", "unreadable")


def test_more_variants_than_are_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.variants.MOST_VARIANTS", 5)
    with pytest.raises(DataError, match="7 columns, and at most 5") as refused:
        open_rows([write_bed(tmp_path / "a.bed", COUNTS)])
    assert refused.value.code == "too-many-columns"
