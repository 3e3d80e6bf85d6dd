"""The example of OMOP's conventions: its query and its schema read a made-up database."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from eigenveil.io import Query, open_rows, read_schema

EXAMPLE = Path(__file__).parents[2] / "examples/omop"
TABLES = """
CREATE TABLE person (person_id INTEGER, gender_concept_id INTEGER, birth_datetime TEXT);
CREATE TABLE visit_occurrence (visit_occurrence_id INTEGER, person_id INTEGER,
  visit_concept_id INTEGER, visit_start_date TEXT);
CREATE TABLE measurement (visit_occurrence_id INTEGER, measurement_concept_id INTEGER,
  value_as_number REAL);
INSERT INTO person VALUES (1, 8507, '1950-01-01 00:00:00'), (2, 8521, NULL), (3, 0, '2000-06-01');
INSERT INTO visit_occurrence VALUES (11, 1, 9201, '2020-01-01'), (12, 1, 581477, '2021-01-01'),
  (13, 2, 9202, '2020-01-01'), (14, 3, 9203, '2020-06-01');
INSERT INTO measurement VALUES (11, 3004249, 120), (11, 3004249, 130), (11, 3012888, 80),
  (11, 3027018, 70), (11, 3020891, 36.5), (12, 3004249, 140), (14, 3027018, 60), (14, 999, 1);
"""


def test_the_example_reads_visits_and_measurements(tmp_path):
    with sqlite3.connect(tmp_path / "omop.sqlite") as made:
        made.executescript(TABLES)
    made.close()
    query = (EXAMPLE / "visits.sql").read_text()
    schema = read_schema(EXAMPLE / "schema.toml")
    with pytest.warns(match="'0' in 1 cells"):
        (block,) = open_rows(
            [Query(query, f"sqlite:///{tmp_path / 'omop.sqlite'}")], schema=schema
        ).blocks()
    nan, born = np.nan, -7305  # 1950-01-01, in days since 1970
    years = np.array([18262 - born, 18628 - born, 18414 - 11109]) / 365.25
    wanted = [
        # male, female, other; in-, outpatient, emergency, other; age; start; four measurements
        [1, 0, 0, 1, 0, 0, 0, years[0], 18262, 125, 80, 70, 36.5],
        [1, 0, 0, 0, 0, 0, 1, years[1], 18628, 140, nan, nan, nan],
        [0, 0, 1, 0, 1, 0, 0, nan, 18262, nan, nan, nan, nan],
        [nan, nan, nan, 0, 0, 1, 0, years[2], 18414, nan, nan, 60, nan],
    ]
    order = np.lexsort((block.values[:, 8], block.units.astype(str)))  # a database has its own
    np.testing.assert_array_equal(block.values[order], wanted)
    assert block.units[order].tolist() == ["1", "1", "2", "3"]
    assert np.isfinite(schema.public_ranges()).all()  # so scales cost nothing
