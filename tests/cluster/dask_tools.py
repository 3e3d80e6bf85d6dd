"""What the tests of Dask share: a cluster that runs here, and when two fits are the same."""

import pickle

import dask

from eigenveil.moments.dask_tasks import DaskTasks


class Here(DaskTasks):
    """A cluster without processes that pickles what tasks return, as a real one does."""

    def __init__(self):
        self.sizes = []

    def compute(self, task):
        found = pickle.dumps(dask.compute(task, scheduler="sync")[0])
        self.sizes.append(len(found))
        return pickle.loads(found)


def assert_same(one, other):
    """The same releases, to the last bit, and the same model made of them."""
    first, second = one.certificate_, other.certificate_
    assert first.releases == second.releases
    assert first.model == second.model  # a digest of every array
