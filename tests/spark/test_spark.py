"""Spark's DataFrames: the sums of one machine, bit for bit, and each partition once."""

import datetime
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil import (
    FederatedPCA,
    InvalidRowsWarning,
    Ledger,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.cli.app import main
from eigenveil.io import on_workers, open_rows, read_frame, read_schema
from eigenveil.moments import cluster_rows, spark_tasks
from eigenveil.moments.cluster_rows import code_digest
from eigenveil.moments.engine import LargestNorm
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.certificate import ON_CLUSTER
from refusal_tools import refuses

pytest.importorskip("pyspark", reason="pyspark, of the extra spark, is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 5)) * [5.0, 4.0, 3.0, 2.0, 1.0] + [10, 0, 0, -3, 0]
NAMES = ["age", "height", "weight", "pulse", "sugar"]
NUMBERS = pd.DataFrame(X, columns=NAMES)
FRAME = NUMBERS.assign(patient=[f"p{who}" for who in RNG.integers(0, 90, 600)])
TARGET = {"epsilon": 8.0, "delta": 1e-6, "random_state": 0}


def pca(**more):
    return PrivatePCA(n_components=2, **{"mechanism": "gaussian", "center": False} | TARGET | more)


def in_parts(spark, frame, cuts=(0, 200, 200, 350)):
    """The rows in partitions that begin at these, in order; one is empty."""
    ends, context = [*cuts[1:], len(frame)], spark.sparkContext
    cells = [
        [getattr(c, "to_pydatetime", lambda c=c: c)() for c in row]
        for row in frame.astype(object).to_numpy().tolist()
    ]
    parts = [context.parallelize(cells[a:b], 1) for a, b in zip(cuts, ends, strict=True)]
    made = spark.createDataFrame(context.union(parts), spark.createDataFrame(frame[:1]).schema)
    assert made.rdd.getNumPartitions() == len(cuts)
    return made


def assert_same(one, other):
    """The same releases, to the last bit, and the same model made of them."""
    first, second = one.certificate_, other.certificate_
    assert first.releases == second.releases
    assert first.model == second.model  # a digest of every array


def run(arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code or 0


# -- The fits of one machine.


def test_a_frame_gives_the_fit_of_one_machine(spark):
    rows = in_parts(spark, NUMBERS)
    there = pca().fit(rows)
    assert_same(there, pca().fit(NUMBERS))
    assert list(there.feature_names_in_) == NAMES
    assert ON_CLUSTER in there.guarantee_.assumptions
    # and the comparison can fail: by a row that counts twice
    twice = rows.unionAll(rows.limit(1))
    assert pca().fit(twice).certificate_.model != there.certificate_.model


def test_units_and_private_scales_give_the_fit_of_one_machine(spark):
    how = {"unit": "patient", "scale": "private", "center": True, "max_rows_per_unit": 3}
    assert_same(pca(**how).fit(in_parts(spark, FRAME)), pca(**how).fit(FRAME))


def test_more_partitions_than_are_merged_at_once_give_the_fit_of_one_machine(spark):
    """70 of them: two groups, whose units are told apart by the order of the partitions."""
    how = {"unit": "patient", "max_rows_per_unit": 2}
    rows = spark.createDataFrame(FRAME).repartition(70, "patient").localCheckpoint()
    assert rows.rdd.getNumPartitions() == 70
    assert_same(pca(**how).fit(rows), pca(**how).fit(rows.toPandas()))


@pytest.mark.parametrize("kind", ["float32", "int16", "int64", "bool", "decimal", "missing"])
def test_every_type_of_numbers_gives_the_fit_of_one_machine(spark, kind):
    how = {"missing": "independent"} if kind == "missing" else {}
    if kind == "decimal":
        made = NUMBERS.round(3)
    elif kind == "missing":
        made = NUMBERS.mask(RNG.random(X.shape) < 0.05)
    else:
        made = NUMBERS.round().astype(kind)
    here = pca(**how).fit(made)
    there = in_parts(spark, made)
    if kind == "decimal":
        there = there.selectExpr(*(f"cast({name} as decimal(12, 3)) as {name}" for name in NAMES))
    if kind == "missing":  # Spark's null, where pandas has NaN
        there = there.na.replace(float("nan"), None)
        assert there.filter("age is null").count() == made["age"].isna().sum()
    assert_same(pca(**how).fit(there), here)


def test_covariance_mixture_and_topics_give_the_fits_of_one_machine(spark):
    rows = in_parts(spark, NUMBERS)
    for made in (PrivateCovariance(**TARGET), PrivateGaussianMixture(n_components=2, **TARGET)):
        here = type(made)(**made.get_params()).fit(NUMBERS)
        assert_same(made.fit(rows), here)
    counts = pd.DataFrame(RNG.poisson(0.5, (400, 12)), columns=[f"w{word}" for word in range(12)])
    made = [PrivateTopicModel(n_components=2, **TARGET) for _ in range(2)]
    assert_same(made[0].fit(in_parts(spark, counts)), made[1].fit(counts))


SCHEMA = """
format = "eigenveil-schema-1"
[[columns]]
name = "age"
kind = "number"
range = [0, 120]
[[columns]]
name = "ward"
kind = "category"
levels = ["a", "b", "c"]
[[columns]]
name = "came"
kind = "date"
range = [2020-01-01, 2024-12-31]
[[columns]]
name = "patient"
role = "unit"
"""


def with_all_kinds(count=300):
    days = [datetime.datetime(2021, 3, 1) + datetime.timedelta(hours=7 * h) for h in range(count)]
    return pd.DataFrame(
        {
            "came": pd.to_datetime(days, utc=True),
            "age": np.where(RNG.random(count) < 0.1, np.nan, RNG.integers(1, 99, count)),
            "ward": RNG.choice(["a", "b", "c", "elsewhere", None], count),
            "patient": RNG.integers(0, 40, count),
            "note": "nothing that a schema has",
        }
    )


def test_a_schema_makes_the_rows_of_one_machine_inside_partitions(spark, tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema, made = read_schema(tmp_path / "schema.toml"), with_all_kinds()
    how = {"missing": "independent", "scale": "private", "unit": "patient"}
    there = read_frame(in_parts(spark, made, (0, 100, 100)), schema)
    assert_same(pca(**how).fit_rows(there), pca(**how).fit_rows(read_frame(made, schema)))


def test_sites_may_have_frames_of_spark(spark):
    sites = {"north": FRAME[:300], "south": FRAME[300:][[*NAMES[::-1], "patient"]]}
    there = {name: in_parts(spark, rows, (0, 120)) for name, rows in sites.items()}
    how = {"unit": "patient", "center": False, "mechanism": "gaussian", "protocol": "cape"}
    made = [FederatedPCA(n_components=2, **how, **TARGET) for _ in range(2)]
    one, other = made[0].fit(sites), made[1].fit(there)
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.explained_variance_, other.explained_variance_)
    assert other.certificate_.cluster


def test_no_rows_give_the_fit_of_a_file_without_any(spark, tmp_path):
    pa.parquet.write_table(pa.Table.from_pandas(NUMBERS[:0]), tmp_path / "none.parquet")
    here = pca().fit_rows(open_rows([tmp_path / "none.parquet"]))
    rows = in_parts(spark, NUMBERS)
    for none in (rows.filter("age > 1000"), rows.filter("false")):
        assert_same(pca().fit(none), here)
    assert pca(unit="patient").fit(in_parts(spark, FRAME).filter("false")).certificate_.cluster


def test_a_model_transforms_a_frame_that_fits_into_memory(spark):
    model = pca().fit(NUMBERS)
    assert np.array_equal(model.transform(in_parts(spark, NUMBERS)), model.transform(NUMBERS))


# -- Files over executors.


@pytest.fixture
def files(tmp_path):
    found = []
    for number, part in enumerate(np.split(np.arange(600), [100, 400])):
        found.append(tmp_path / f"{number}.parquet")
        pa.parquet.write_table(pa.Table.from_pandas(FRAME.iloc[part]), found[-1])
    return found


def test_files_give_the_fit_of_one_machine(spark, files):
    rows = open_rows(files, unit="patient")
    assert_same(pca().fit_rows(on_workers(rows, spark)), pca().fit_rows(rows))


def test_the_command_fits_files_over_executors_and_charges_its_ledger(
    spark, files, tmp_path, capsys
):
    ledger = tmp_path / "own.ledger"
    how = ["--components", 2, "--epsilon", 3, "--unit", "patient", "--no-plots"]
    place = ["--out", tmp_path / "out", "--ledger", ledger, "--data-set", "ward"]
    assert run(["fit", *files, *how, *place, "--spark", "local[2]"]) == 0
    assert "the cluster that read the rows" in " ".join(capsys.readouterr().out.split())
    assert Ledger(ledger).budget("ward").epsilon == 3
    assert run(["certify", tmp_path / "out"]) == 0


def test_a_file_that_an_executor_finds_otherwise_is_refused(spark, files):
    rows = on_workers(open_rows(files, unit="patient"), spark)
    files[1].unlink()
    with refuses("other-file", rf"{files[1].name} is not on every worker"):
        pca().fit_rows(rows)


# -- Each partition once, whatever dies.


def dying(flag, *, always=False):
    """Kills the executor that reads a partition, the first time; pickled by value."""
    flag = str(flag)

    def kill(batches):
        for batch in batches:
            if batch.num_rows and (always or not os.path.exists(flag)):  # noqa: PTH110
                Path(flag).touch()
                daemon = os.getppid()
                words = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()
                os.kill(int(words[1]), signal.SIGKILL)  # the daemon's parent, an executor
            yield batch

    return kill


def test_an_executor_that_is_killed_in_the_middle_changes_no_sum(spark, tmp_path):
    rows = in_parts(spark, FRAME)
    rows = rows.mapInArrow(dying(tmp_path / "killed"), rows.schema)
    how = {"unit": "patient"}
    assert_same(pca(**how).fit(rows), pca(**how).fit(FRAME))
    assert (tmp_path / "killed").exists()


def test_executors_that_die_of_a_partition_end_the_fit_uncharged(spark, tmp_path):
    rows = in_parts(spark, NUMBERS, (0,))
    rows = rows.mapInArrow(dying(tmp_path / "killed", always=True), rows.schema)
    ledger = tmp_path / "own.ledger"
    with refuses("cluster-failed", "workers died") as caught:
        pca(ledger=str(ledger), data_set="ward").fit(rows)
    assert caught.value.spent is None
    assert Ledger(ledger).standings()[0].spent == Loss()


def test_rows_that_change_between_passes_stop_the_fit(spark, tmp_path):
    place = str(tmp_path)

    def fewer(batches):
        number = len(os.listdir(place))  # noqa: PTH208
        for batch in batches:
            yield batch.slice(number)
        Path(place, str(number)).touch()

    rows = in_parts(spark, NUMBERS, (0,))
    with refuses("rows-changed"):
        pca().fit(rows.mapInArrow(fewer, rows.schema))


def test_a_partition_that_is_merged_twice_is_refused():
    job = pickle.dumps(cluster_rows._Job(lambda_free, (), LargestNorm(None, "double")))
    one = cluster_rows.read_part(code_digest(), job, 3, X[:10], pickle.dumps([]))
    pieces = [*spark_tasks._pieces(0, one), *spark_tasks._pieces(1, one)]
    merged = spark_tasks.merge_sums(code_digest(), job, 64, pieces)
    ((_, error),) = spark_tasks._wholes(merged)
    assert error.code == "parts-not-once"
    again = [*spark_tasks._pieces(0, one), *spark_tasks._pieces(0, one)]
    with refuses("parts-not-once"):
        list(spark_tasks._wholes(again))


def lambda_free(part, number):
    from eigenveil.moments.source import ArrayRows

    return ArrayRows(part)


def test_a_sum_of_many_pieces_is_whole_again():
    whole = RNG.bytes((1 << 22) + 5)
    batches = list(spark_tasks._pieces(7, whole))
    assert len(batches) > 1
    assert list(spark_tasks._wholes(batches)) == [(7, whole)]


def test_another_version_of_the_package_is_refused(spark, monkeypatch):
    monkeypatch.setattr(cluster_rows, "code_digest", lambda: "fit")
    with refuses("cluster-version", "runs another eigenveil"):
        pca().fit(in_parts(spark, NUMBERS))


# -- Rows that are not valid, and frames that are none.


def test_an_invalid_row_is_named_by_its_partition(spark):
    broken = NUMBERS.copy()
    broken.iloc[[450, 500], 2] = np.inf
    where = r"2 rows.*partition 3: row index 100 .from 0., column 'weight'"
    with pytest.warns(InvalidRowsWarning, match=where):
        pca().fit(in_parts(spark, broken))


def one_column(spark, expression, name="v"):
    return spark.range(4).selectExpr("double(id) as a", f"{expression} as `{name}`")


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("'text'", "not-numeric"),
        ("current_date()", "not-numeric"),
        ("array(1.0d, 2.0d)", "not-numeric"),
        ("struct(id)", "not-numeric"),
        ("map('a', id)", "not-numeric"),
        ("binary('a')", "not-numeric"),
        ("null", "not-numeric"),
        ("parse_json('1')", "not-numeric"),
        ("interval 1 day", "not-numeric"),
        ("make_interval(1)", "not-numeric"),
        ("rand()", "spark-frame"),
        ("monotonically_increasing_id()", "spark-frame"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_before_anything_is_computed(
    spark, expression, code
):
    with refuses(code) as caught:
        pca().fit(one_column(spark, expression))
    assert caught.value.hint


def test_names_that_are_data_twice_or_odd(spark):
    for name, code in (("7.5", "header-is-data"), ("a", "duplicate-column")):
        with refuses(code):
            pca().fit(one_column(spark, "1.0d", name))
    odd = NUMBERS.rename(columns={"age": "a.b `c`"})
    assert_same(pca().fit(in_parts(spark, odd)), pca().fit(odd))


def test_a_random_frame_is_taken_when_it_is_kept(spark):
    kept = one_column(spark, "rand()").cache()
    assert pca().fit(kept).certificate_.cluster


def test_streams_are_refused(spark):
    stream = spark.readStream.format("rate").load().selectExpr("double(value) as a")
    with refuses("spark-frame", "streaming"):
        pca().fit(stream)


def test_a_frame_of_connect_is_refused(monkeypatch):
    import pyspark.sql

    class Remote(pyspark.sql.DataFrame):  # as pyspark.sql.connect's, which has no JVM
        def __new__(cls):
            return object.__new__(cls)

        def __getattr__(self, name):
            raise AttributeError(name)

    with refuses("spark-frame", "Connect"):
        pca().fit(Remote())


def test_units_must_be_a_column(spark):
    rows = in_parts(spark, NUMBERS)
    with refuses("groups-of-unknown-length", "unit="):
        pca().fit(rows, groups=FRAME["patient"])
    with refuses("no-unit-column"):
        pca(unit="nobody").fit(rows)


def test_what_a_query_says_of_cells_is_not_repeated(spark):
    def broken(batches):
        raise ValueError("cell of patient p77")

    rows = in_parts(spark, NUMBERS, (0,))
    asked = rows.selectExpr("cast(concat('p77', age) as double) as age", "height")
    for made, what in ((rows.mapInArrow(broken, rows.schema), "ValueError"), (asked, "CAST_")):
        with refuses("cluster-failed", what) as caught:
            pca().fit(made)
        assert "p77" not in str(caught.value)


# -- What is not installed.


def test_a_machine_without_java_or_pyspark_is_told(files, monkeypatch):
    rows = open_rows(files, unit="patient")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with refuses("no-java"):
        on_workers(rows, spark_tasks.SparkTasks("local[2]"))
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with refuses("extra-missing", r"eigenveil\[spark\]"):
        on_workers(rows, spark_tasks.SparkTasks("local[2]"))


def test_one_cluster_reads_the_files(files, tmp_path, capsys):
    how = ["--components", 2, "--out", tmp_path / "out", "--spark", "local", "--dask", "tcp://a:1"]
    assert run(["fit", *files, *how]) == 2
    assert "both given" in " ".join(capsys.readouterr().err.split())
