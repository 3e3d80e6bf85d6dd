"""Runs a case with noise that can be repeated, and says in a few words what it released.

Noise is drawn from a generator in place of the operating system's; nothing else knows of it, so
that certificates hold. Sums and noise are whole numbers of a grid: a release is frozen to the last
bit. Only sums along directions that were found before (:data:`ALONG`) differ a little between
processors, whose linear algebra differs; these are compared as numbers, as is what was found.
"""

import hashlib
import json
import warnings
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
from frozen_cases import FITS, ROWS, STREAMS, STUDIES, frame, holes, people, plain

import eigenveil
from eigenveil import EigenveilError, PrivateStreamingPCA, ProtocolError
from eigenveil.federated.running import InProcess
from eigenveil.federation.protocol.certificates import check
from eigenveil.io import open_rows
from eigenveil.moments.release import Release
from eigenveil.noise.source import SecureSource

RELEASED = Path(__file__).parent / "released.json"
PRINTED = RELEASED.with_name("printed.json")
ALONG = (
    *("component-energy", "em-sums", "third-moment", "document-triples", "sketch"),
    *("bingham-vectors",),
)
FOUND = (
    *("components_", "explained_variance_", "mean_", "scale_", "covariance_", "location_"),
    *("means_", "weights_", "covariances_", "topics_", "n_samples_", "singular_values_"),
)
FILES = {
    "file: csv": ("rows.csv", lambda table, path: table.to_csv(path, index=False)),
    "file: parquet": ("rows.parquet", lambda table, path: table.to_parquet(path)),
    "file: feather": ("rows.feather", lambda table, path: table.to_feather(path)),
    "file: npy": ("rows.npy", lambda table, path: np.save(path, table.to_numpy())),
}
CASES = (*FITS, *STREAMS, *STUDIES, *FILES, "groups", "merged streams")


@contextmanager
def known_noise(name):
    """Noise from a generator that the name seeds."""
    drawn = np.random.default_rng(list(name.encode()))

    def words(self, count):
        del self
        return drawn.integers(0, 2**64, size=count, dtype=np.uint64)

    with mock.patch.object(SecureSource, "words", words):
        yield


@contextmanager
def releases(*, of_factors=False):
    """All that is released, in order, each once: what it is, and its digest or size.

    What sites make ``of_factors`` of their own was found along directions, too.
    """
    found, made = [], Release.__init__

    def noted(self, *given, **named):
        made(self, *given, **named)
        record = self.record
        values = np.ascontiguousarray(self.values, dtype="<f8") + 0.0
        told = [f"{record.name}, {record.statistic}, {record.noise.kind}"]
        adapted = record.name.startswith("adapted")
        if of_factors or adapted or record.statistic in ALONG:
            told += size_of(values)
        else:
            told += [hashlib.sha256(values.tobytes()).hexdigest()[:12]]
        if told not in found:
            found.append(told)

    with mock.patch.object(Release, "__init__", noted):
        yield found


@contextmanager
def without(site):
    """A site whose answers are lost from its third on."""
    call = InProcess.call
    asked = 0

    def lossy(self, method, payloads, timeout):
        nonlocal asked
        asked += site in payloads
        if site not in payloads or asked < 3:
            return call(self, method, payloads, timeout)
        rest = {name: payload for name, payload in payloads.items() if name != site}
        replies, failures = call(self, method, rest, timeout)
        return replies, failures | {site: ProtocolError.relayed("lost", code="no-answer")}

    with mock.patch.object(InProcess, "call", lossy):
        yield


def fitted(name, folder):
    """The fitted estimator of a case."""
    if name in FITS:
        kind, options, rows = FITS[name]
        return kind(**options).fit(ROWS[rows]())
    if name in STREAMS:
        return streamed(*STREAMS[name], blocks_of(name))
    if name in STUDIES:
        kind, options, _, lost = STUDIES[name]
        return studied(kind, options, sites_of(name), lost)
    usual = FITS["pca: usual"]
    model = usual[0](**usual[1])
    if name in FILES:
        file, write = FILES[name]
        write(frame(), folder / file)
        return model.fit_rows(open_rows([folder / file]))
    if name == "groups":
        return model.set_params(epsilon=8.0).fit(plain(), groups=people(900))
    kind, options = STREAMS["stream: end"]
    first, second = (kind(**options).partial_fit(part) for part in np.split(plain(), 2))
    return first.merge(second).release()


def blocks_of(name):
    """The blocks of a stream."""
    return np.split(holes() if "missing" in STREAMS[name][1] else plain(), 6)


def streamed(kind, options, blocks):
    model = kind(**options)
    for block in blocks:
        model.partial_fit(block)
    held = kind is PrivateStreamingPCA and "publish" not in options
    return model.release() if held else model


def sites_of(name):
    """The tables of a study's sites."""
    table = ROWS[STUDIES[name][2]]()
    cuts = [0, table.shape[0] // 2, 3 * table.shape[0] // 4, table.shape[0]]
    return [
        table[start:end].reset_index(drop=True) if hasattr(table, "iloc") else table[start:end]
        for start, end in pairwise(cuts)
    ]


def studied(kind, options, sites, lost):
    with ExitStack() as stack:
        if lost:
            stack.enter_context(without(lost))
        return kind(**options).fit(sites)


def outcome(name, folder):
    """What is frozen of a case."""
    with ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(known_noise(name))
        released = stack.enter_context(releases(of_factors="dpdispca" in name))
        try:
            model = fitted(name, folder)
        except EigenveilError as error:
            return {"refused": [public(type(error)), error.code], "releases": released}
    told = {"releases": released, "found": shape_of(model)}
    kinds = {each.category.__name__ for each in warned} & set(eigenveil.__all__)
    told |= {"warned": sorted(kinds)} if kinds else {}
    if not hasattr(model, "certificate_"):
        return told
    verdict, guarantee = check(model.certificate_), model.guarantee_
    told |= {"holds": verdict.holds, "certified": guarantee.certified}
    told |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "mu": guarantee.mu}
    told |= {"charged": [each.name for each in model.certificate_.releases]}
    return told


def public(kind):
    """The class that users know an error by."""
    return next(each.__name__ for each in kind.__mro__ if each.__name__ in eigenveil.__all__)


def shape_of(model):
    """Sizes of what was found."""
    found = {name: getattr(model, name, None) for name in FOUND}
    return {name: size_of(value) for name, value in found.items() if value is not None}


def size_of(values):
    """How many numbers, and two sums that change with any of them and with their order."""
    size = np.abs(np.asarray(values, dtype=float)).ravel()
    along = size @ np.arange(1, size.size + 1)
    return [size.size, float(f"{size.sum():.7g}"), float(f"{along:.7g}")]


def same(now, then):
    """Whether two outcomes are alike, numbers but for what processors differ in."""
    if isinstance(now, dict) and isinstance(then, dict):
        return now.keys() == then.keys() and all(same(now[name], then[name]) for name in now)
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(same, now, then))
    if isinstance(now, float) and isinstance(then, float):
        return np.isclose(now, then, rtol=1e-4, atol=0, equal_nan=True)
    return now == then


def recomputed(name, folder):
    """What is frozen of a case, as it is read from the record."""
    return json.loads(json.dumps(outcome(name, folder)))


@cache
def read(place):
    """A record."""
    return json.loads(place.read_text())


def write(place, found):
    """Write a record, one case a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
    place.write_text("{\n" + ",\n".join(lines) + "\n}\n")
