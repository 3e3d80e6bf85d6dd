"""What is fitted: every estimator with its options, and every protocol with every mask."""

from functools import cache

import dask
import dask.array
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

from eigenveil import (
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
    StreamingPCA,
)

NAMES = ("age", "weight", "pulse", "dose", "sleep", "steps")
D = len(NAMES)
SPREAD = np.array([9.0, 5.0, 3.0, 1.0, 0.5, 0.25])
MEAN = [4.0, 0.0, 1.0, 0.0, 0.0, 2.0]
RANGES = tuple(zip(MEAN - 3 * SPREAD, MEAN + 3 * SPREAD, strict=True))
SCALES = (8.0, 4.0, 4.0, 1.0, 0.5, 0.5)


# -- rows


@cache
def plain(count=900, seed=1):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((count, D)) * SPREAD
    mixed[:, 1] += mixed[:, 0] / 2
    return mixed + MEAN


@cache
def clusters(count=2000, seed=2):
    rng = np.random.default_rng(seed)
    means = 9.0 * np.eye(3, 5)
    return means[rng.integers(0, 3, count)] + rng.standard_normal((count, 5))


@cache
def documents(count=2000, seed=3):
    rng = np.random.default_rng(seed)
    topics = np.full((3, 12), 0.01) + np.kron(np.eye(3), np.full((1, 4), 0.22))
    lengths = rng.integers(3, 30, count)
    drawn = rng.multinomial(lengths, topics[rng.integers(0, 3, count)])
    return scipy.sparse.csr_array(drawn)


def people(count, seed=4):
    return np.random.default_rng(seed).integers(0, count // 3, count)


def holes(seed=5):
    rows = plain().copy()
    rows[np.random.default_rng(seed).random(rows.shape) < 0.1] = np.nan
    return rows


def frame(rows=None, **columns):
    return pd.DataFrame(plain() if rows is None else rows, columns=list(NAMES)).assign(**columns)


def with_units():
    return frame(who=[f"p{n}" for n in people(900)])


ROWS = {
    "array": plain,
    "few": lambda: plain(30),
    "single": lambda: plain().astype(np.float32),
    "holes": holes,
    "frame": frame,
    "polars": lambda: pl.from_pandas(frame()),
    "units": with_units,
    "dask": lambda: dask.array.from_array(plain(), chunks=(300, D)),
    "sparse": lambda: scipy.sparse.csr_array(np.where(np.abs(plain()) > 2, plain(), 0.0)),
    "clusters": clusters,
    "documents": documents,
    "dense documents": lambda: documents().toarray(),
}

# -- fits of one table: the estimator's options, and what it is given


def pca(rows="array", **options):
    return PrivatePCA, {"n_components": 2, "epsilon": 2.0} | options, rows


def covariance(rows="array", **options):
    return PrivateCovariance, {"epsilon": 2.0} | options, rows


def mixture(rows="clusters", **options):
    return PrivateGaussianMixture, {"n_components": 3, "epsilon": 4.0} | options, rows


def topics(rows="documents", **options):
    return PrivateTopicModel, {"n_components": 3, "epsilon": 4.0} | options, rows


def named(**made):
    return {name.replace("_", " "): case for name, case in made.items()}


def pcas():
    """Of PrivatePCA."""
    yield "usual", pca()
    for mechanism in ("adaptive", "gaussian", "wishart", "vector", "bingham", "power", "sketch"):
        yield f"{mechanism}", pca(mechanism=mechanism)
        if mechanism not in ("adaptive", "gaussian"):
            yield f"{mechanism}, pure", pca(mechanism=mechanism, delta=0.0, epsilon=6.0)
    for mechanism in ("auto", "gaussian", "wishart"):
        yield (
            f"{mechanism}, a row replaced",
            pca(mechanism=mechanism, adjacency="replace-one", epsilon=4.0),
        )
    yield from _pcas_of_lengths()
    yield from _pcas_of_columns()
    for rows in ("few", "single", "frame", "polars", "dask", "sparse", "holes"):
        yield f"of {rows}", pca(rows)
    for missing in ("zero", "independent", "pairs"):
        yield f"missing {missing}", pca("holes", missing=missing)
    yield "missing pairs, a public centre", pca("holes", missing="pairs", center=MEAN)
    yield "of units", pca("units", unit="who", epsilon=8.0)
    yield "of units of 4", pca("units", unit="who", max_rows_per_unit=4, epsilon=8.0)
    yield "of units, pure", pca("units", unit="who", epsilon=20.0, delta=0.0)
    yield "power 2", pca(mechanism="power", power_rounds=2)
    yield "sketch 5", pca(mechanism="sketch", sketch_size=5)
    yield "seeded", pca(random_state=7)
    yield "split", pca(budget_split={"scale": 1, "center": 2, "moment": 5, "variance": 1})
    yield "split, wrong", pca(budget_split={"moment": 1, "covariates": 1})
    yield "too many components", pca(n_components=9)


def _pcas_of_lengths():
    for number, norm in enumerate(("auto", "max", 12.0)):
        yield f"norm {norm}", pca(row_norm=norm)
        yield f"norm {norm}, {number}", pca(row_norm=norm, center=False, mechanism="gaussian")
    yield "bound", pca(row_bound=40.0)
    yield "bound, norm 12", pca(row_bound=40.0, row_norm=12.0)
    yield "single precision", pca(precision="single")
    for name, center in (("none", False), ("public", MEAN)):
        yield f"centre {name}", pca(center=center)
        yield f"centre {name}, pure", pca(center=center, delta=0.0, epsilon=6.0)
    yield "90 per cent", pca(n_components=0.9, epsilon=6.0)
    yield "components auto", pca(n_components="auto", epsilon=6.0)
    yield "components auto, norm auto", pca(n_components="auto", epsilon=6.0, row_norm="auto")
    yield "whitened", pca(whiten=True)
    yield "tiny epsilon", pca(epsilon=0.01)


def _pcas_of_columns():
    yield "scale private", pca(scale="private", epsilon=6.0)
    yield "scale public", pca(scale=SCALES)
    yield "scale of ranges", pca(scale="private", ranges=RANGES)
    yield "ranges", pca(ranges=RANGES)
    yield "scale private, holes", pca("holes", scale="private", missing="zero", epsilon=9.0)
    yield "covariates", pca(covariates=[0], epsilon=6.0)
    yield "covariates by name", pca("frame", covariates=["age", "dose"], epsilon=6.0)
    yield "covariates, scaled", pca("frame", covariates=["age"], scale="private", epsilon=9.0)


def covariances():
    """Of PrivateCovariance."""
    yield "usual", covariance()
    for mechanism in ("gaussian", "wishart", "vector"):
        yield mechanism, covariance(mechanism=mechanism)
        yield f"{mechanism}, pure", covariance(mechanism=mechanism, delta=0.0, epsilon=6.0)
    yield "replaced", covariance(adjacency="replace-one")
    yield "bound", covariance(row_bound=40.0)
    yield "centre none", covariance(center=False)
    yield "centre public", covariance(center=MEAN)
    yield "scale private", covariance(scale="private", epsilon=6.0)
    yield "ranges", covariance(scale="private", ranges=RANGES)
    yield "of units", covariance("units", unit="who", epsilon=8.0)
    for missing in ("zero", "independent", "pairs"):
        yield f"missing {missing}", covariance("holes", missing=missing, epsilon=4.0)
    yield "single precision", covariance("sparse", precision="single")


def mixtures():
    """Of PrivateGaussianMixture."""
    yield "usual", mixture()
    for kind in ("diag", "full", "tied"):
        yield kind, mixture(covariance_type=kind)
    yield "auto", mixture(n_components="auto")
    yield "pure", mixture(delta=0.0, epsilon=20.0)
    yield "vector", mixture(mechanism="vector", epsilon=8.0)
    yield "sketch", mixture(pair="sketch", epsilon=8.0)
    yield "replaced", mixture(adjacency="replace-one")
    yield "variance known", mixture(noise_variance=1.0)
    yield "centre none, bound", mixture(center=False, row_bound=15.0)


def topic_models():
    """Of PrivateTopicModel."""
    yield "usual", topics()
    yield "dense", topics("dense documents")
    yield "auto", topics(n_components="auto")
    yield "pure", topics(delta=0.0, epsilon=20.0)
    yield "mixed", topics(alpha0=1.0, epsilon=8.0)
    yield "mixed, auto", topics(alpha0="auto", epsilon=8.0)
    yield "unclipped", topics(clip_documents=False)
    yield "sketch", topics(pair="sketch", epsilon=8.0)
    yield "replaced", topics(adjacency="replace-one")


FITS = {
    f"{kind}: {name}": case
    for kind, cases in (
        ("pca", pcas),
        ("covariance", covariances),
        ("mixture", mixtures),
        ("topics", topic_models),
    )
    for name, case in cases()
}

# -- streams: the estimator's options; blocks of the same rows


def stream(**options):
    return PrivateStreamingPCA, {"n_components": 2, "epsilon": 4.0} | options


STREAMS = {
    "stream: end": stream(),
    "stream: end, pure": stream(delta=0.0, epsilon=20.0),
    "stream: norm 12, public centre": stream(row_norm=12.0, center=MEAN),
    "stream: ranges": stream(ranges=RANGES),
    "stream: scales": stream(scale=SCALES, row_norm=4.0),
    "stream: continual": stream(publish="continual", horizon=8),
    "stream: continual, replaced": stream(publish="continual", horizon=8, adjacency="replace-one"),
    "stream: blocks": stream(publish="blocks"),
    "stream: blocks, forgetting": stream(publish="blocks", forgetting=0.5),
    "stream: sketch": stream(sketch_size=4),
    "stream: missing zero": stream(missing="zero"),
    "stream: missing pairs": stream(missing="pairs"),
    "stream: continual, missing": stream(publish="continual", horizon=8, missing="independent"),
    "stream: blocks, missing": stream(publish="blocks", forgetting=0.5, missing="independent"),
    "tracked": (StreamingPCA, {"n_components": 2}),
    "tracked: forgetting": (StreamingPCA, {"n_components": 2, "forgetting": 0.9, "center": True}),
    "tracked: filled": (StreamingPCA, {"n_components": 2, "missing": "fill"}),
}

# -- studies in one process: the estimator's options, what each of three sites has, who drops out


def study(kind=FederatedPCA, rows="array", lost=None, **options):
    given = {"epsilon": 4.0} | ({} if kind is FederatedCovariance else {"n_components": 2})
    return kind, given | options, rows, lost


def mixed(**options):
    return study(FederatedGaussianMixture, "clusters", n_components=3, epsilon=8.0, **options)


def worded(**options):
    return study(FederatedTopicModel, "documents", n_components=3, epsilon=8.0, **options)


STUDIES = {
    "study: usual": study(),
    "study: cape, once": study(protocol="cape", mechanism="gaussian"),
    "study: sketch": study(protocol="sketch"),
    "study: sketch of 4": study(protocol="sketch", sketch_size=4),
    "study: full": study(protocol="full", epsilon=8.0),
    "study: local": study(protocol="local"),
    "study: dpdispca": study(protocol="dpdispca", epsilon=8.0),
    "study: pairwise": study(masks="pairwise", protocol="cape"),
    "study: helper": study(masks="helper", protocol="cape"),
    "study: helper, sketch": study(masks="helper", protocol="sketch"),
    "study: units": study(rows="units", unit="who", epsilon=12.0),
    "study: units of two sites": study(rows="units", unit="who", sites_per_unit=2, epsilon=12.0),
    "study: scaled": study(scale="private", epsilon=9.0),
    "study: ranges": study(scale="private", ranges=RANGES),
    "study: covariates": study(rows="frame", covariates=["age"], epsilon=9.0),
    "study: missing": study(rows="holes", missing="independent"),
    "study: collusion": study(collusion=1, protocol="cape"),
    "study: dropout": study(dropouts=1, protocol="cape", lost="site3"),
    "study: dropout not allowed": study(protocol="cape", lost="site3"),
    "study: smaller target": study(site_epsilon={"site2": 1.0}),
    "study: pure": study(delta=0.0, epsilon=20.0),
    "study: covariance": study(FederatedCovariance),
    "study: covariance, scaled": study(FederatedCovariance, scale="private", epsilon=9.0),
    "study: covariance, pairs": study(FederatedCovariance, "holes", missing="pairs"),
    "study: mixture": mixed(),
    "study: mixture, sketch": mixed(protocol="sketch", covariance_type="diag"),
    "study: topics": worded(),
    "study: topics, sketch": worded(protocol="sketch"),
    "study: topics, mixed": worded(alpha0=1.0),
}
