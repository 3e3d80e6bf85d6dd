"""A cluster of two processes on this machine, for all tests of this folder."""

import pytest

pytest.importorskip("distributed", reason="dask[distributed] is not installed")


@pytest.fixture(scope="session")
def cluster():
    """A cluster that is nobody's default."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=None
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    """Its client, which collections are computed by while it is open."""
    from distributed import Client

    with Client(cluster) as made:
        yield made
