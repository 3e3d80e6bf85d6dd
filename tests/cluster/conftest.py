"""A cluster of two processes on this machine, for all tests of this folder."""

import pytest

pytest.importorskip("distributed", reason="dask[distributed] is not installed")

# what a worker needs is imported once: each is forked from a process that has it
_PRELOAD = ["distributed", "pandas", "eigenveil.io", "eigenveil.models.pca.estimator"]


@pytest.fixture(scope="session")
def cluster():
    """A cluster that is nobody's default."""
    import dask
    from distributed import LocalCluster
    from distributed.utils import get_mp_context

    busy = {"distributed.comm.timeouts.connect": "120s"}  # a machine that does much else
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver", **busy}):
        get_mp_context().set_forkserver_preload(_PRELOAD)
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
