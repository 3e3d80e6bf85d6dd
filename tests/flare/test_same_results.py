"""Whatever runs in one process runs between organisations, bit for bit and to the same claims."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.study.study import make_study
from eigenveil.models.task import TASKS
from eigenveil.network.certificates import read_certificate
from federation_tools import SITES, Federation, in_process, pca_study

RNG = np.random.default_rng(7)
MEANS = 5.0 * np.eye(3, 6) + 1.0
WHICH = RNG.choice(3, size=12_000, p=[0.5, 0.3, 0.2])
PCA_ROWS = RNG.standard_normal((6000, 20)) * np.linspace(3.0, 0.3, 20)
MIXTURE_ROWS = MEANS[WHICH] + RNG.standard_normal((12_000, 6))
DOCUMENTS = RNG.multinomial(15, np.repeat(np.eye(3), 4, axis=1)[WHICH] / 4)


def study_of(task, features, name, **fields):
    # of all studies together no more than a budget can have: 81 of mu squared
    usual = {"epsilon": 18.0, "delta": 1e-6, "protocol": "cape"}
    sites = [{"name": each} for each in SITES]
    return make_study(
        **({"name": name, "task": task, "features": features, "sites": sites} | usual | fields)
    )


def tensor_study(name, task, features, **fields):
    return study_of(task, features, name, **({"components": 3} | fields))


STUDIES = [
    pca_study("cape-modular", mechanism="adaptive"),
    pca_study("cape-pairwise", masks="pairwise"),
    pca_study("cape-helper", masks="helper"),
    pca_study("cape-dropouts", dropouts=1, mechanism="auto"),
    pca_study("sketch", protocol="sketch", sketch_size=8, collusion=1),
    pca_study("dpdispca", protocol="dpdispca", epsilon=20.0),
    pca_study("full", protocol="full"),
    pca_study("local", protocol="local"),
    pca_study("scales", scale="private", epsilon=20.0),
    tensor_study("mixture", "gaussian-mixture", 6),
    tensor_study("topics", "topic-model", 12),
    tensor_study("mixture-sketch", "gaussian-mixture", 6, protocol="sketch", dropouts=1),
    tensor_study("mixture-full", "gaussian-mixture", 6, covariance_type="full"),
    study_of("covariance", 20, "covariance", epsilon=5.0),
    study_of("covariance", 20, "covariance-bound", epsilon=5.0, row_bound=12.0, masks="helper"),
]
ROWS = {
    "pca": PCA_ROWS,
    "gaussian-mixture": MIXTURE_ROWS,
    "topic-model": DOCUMENTS,
    "covariance": PCA_ROWS,
}

RESULTS = (
    *("components_", "mean_", "scale_", "explained_variance_", "means_", "topics_", "weights_"),
    *("covariance_", "location_", "usable_"),
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("same")) as found:
        found.start_all()
        yield found


@pytest.fixture(scope="module")
def session(federation):
    with federation.session() as found:
        yield found


def test_every_task_is_tried():
    assert {study.task for study in STUDIES} == set(TASKS)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_both_transports_give_the_same(study, federation, session):
    rows = dict(zip(SITES, np.array_split(ROWS[study.task], len(SITES)), strict=True))
    federation.give_rows(study, rows)
    job = session.submit(study, timeout=60.0)
    wanted = in_process(study, rows, federation)
    status = federation.wait(session, job)
    assert status.state == "finished", status.error
    found = federation.fetch(session, job)
    names = [name for name in RESULTS if hasattr(wanted, name)]
    assert names
    for name in names:
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    assert found.certificate_.releases == wanted.certificate_.releases
    assert found.certificate_.guarantees() == wanted.certificate_.guarantees()
    assert found.certificate_.digest == wanted.certificate_.digest
    assert found.views_ == wanted.views_
    assert found.certificate_.noise_source == "seeded"  # the sites said so
    assert found.study_.hash == wanted.study_.hash == study.hash
    assert found.missing_ == {}
    for name, traffic in found.traffic_.items():
        assert traffic == wanted.traffic_[name], name
    root = read_certificate(federation.kit("lead").root_certificate)
    verdict = check(found.certificate_, root=root)
    wanted_verdict = check(wanted.certificate_, root=root)
    assert verdict.signed.sites == wanted_verdict.signed.sites == active_sites(study)
    assert verdict.signed.aggregator == federation.kit("aggregator").name
    assert replace(verdict, signed=wanted_verdict.signed) == wanted_verdict
