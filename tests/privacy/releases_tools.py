"""Records as a fit would make them, on grids fine enough for their proofs."""

import math

from eigenveil.privacy.releases import Noise, ReleaseRecord

STATISTIC = {
    "gaussian": "norm-histogram",
    "laplace": "norm-histogram",
    "vector": "row-sum",
    "wishart": "second-moment",
    "bingham": "bingham-vectors",
}


def release(kind, loss, *, adjacency="add-remove", size=100, name="a release"):
    """A release that loses ``loss`` (mu or epsilon) and a rounding less."""

    def at(scale):
        grid = math.floor(math.log2(scale)) - 26
        noise = Noise(kind=kind, scale=scale, size=size, grid=grid)
        return ReleaseRecord(name=name, statistic=STATISTIC[kind], adjacency=adjacency, noise=noise)

    unit = at(1.0).mu() if kind == "gaussian" else at(1.0).epsilon()
    return at(math.nextafter(unit / loss, math.inf))
