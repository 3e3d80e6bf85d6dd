"""Rows from Arrow batches."""

from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from eigenveil.tables.encode import RowEncoder, encoded
from eigenveil.tables.schema import Column


class _Counted:
    """An Arrow schema that counts how often it makes its list of types."""

    def __init__(self, schema):
        self.names, self._schema, self.made = schema.names, schema, 0

    @property
    def types(self):
        self.made += 1
        return self._schema.types


def test_the_types_of_many_columns_are_listed_once():
    """One list a column made reading a table of 784 columns six times as slow."""
    names = [f"c{j}" for j in range(50)]
    batch = pa.record_batch([pa.array(np.arange(3, dtype=np.float32))] * 50, names=names)
    schema = _Counted(batch.schema)
    counted = SimpleNamespace(schema=schema, column=batch.column, num_rows=3)
    rows, _ = RowEncoder.of_numbers(names)(counted)
    assert np.array_equal(rows, np.repeat(np.arange(3.0)[:, None], 50, axis=1))
    assert schema.made == 1


def test_dates_with_the_day_first_and_truths_in_other_languages_are_read():
    cells = ["15.05.2022", "31.02.2022", "2022-05-15", "5.5.22", None]
    days = encoded(Column("t", "date"), pa.array(cells))[:, 0]
    np.testing.assert_array_equal(days, [19127, np.nan, 19127, np.nan, np.nan])
    column = Column("t", "date", date_format="%d/%m/%Y")
    days = encoded(column, pa.array(["1/2/2024", "01/02/2024 10:00", "31/2/2024", "2024-02-01"]))
    np.testing.assert_array_equal(days[:, 0], [19754, 19754, np.nan, np.nan])
    column = Column("t", "date", date_format="%Y%m%d")
    days = encoded(column, pa.array(["20240201", "2024111", "2024-02-01"]))
    np.testing.assert_array_equal(days[:, 0], [19754, np.nan, np.nan])
    words = ["ja", "NEIN", "Oui", "não", "evet", "vielleicht", ""]
    truths = encoded(Column("t", "boolean"), pa.array(words))[:, 0]
    np.testing.assert_array_equal(truths, [1, 0, 1, 0, 1, np.nan, np.nan])


def test_a_day_that_begins_after_midnight_refuses_no_rows():
    """In Beirut 28 March 2021 began at one: a person's visit of that day ended every pass."""
    noon = [datetime(2021, 3, 28, 10, tzinfo=UTC), datetime(2021, 3, 29, 22, tzinfo=UTC)]
    cells = pa.array(noon, pa.timestamp("us", tz="Asia/Beirut"))
    days = encoded(Column("t", "date"), cells)[:, 0]
    np.testing.assert_array_equal(days, [18714, 18716])  # the second is a local day later
