"""Rows from Arrow batches."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from eigenveil.tables.encode import RowEncoder


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
