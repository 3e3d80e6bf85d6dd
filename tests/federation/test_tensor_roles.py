"""Mixtures and topics among sites: sums are exact, noise is as recorded, nothing else is asked."""

import math
from unittest import mock

import numpy as np
import pytest
import scipy.sparse
from roles_tools import (
    LIMIT,
    Consortium,
    Wire,
    at,
    carry,
    changed,
    changed_ask,
    check_records,
    check_sums,
    exact,
    lost_at,
    refusal,
    requested_budget,
    run_study,
    until,
)
from scipy import stats

from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.sums import RoundTotals
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.models.tensors import whitening
from eigenveil.moments.source import SparseRows
from eigenveil.noise.entries import tensor_copies
from eigenveil.privacy.statistics import STATISTICS, tensor_size
from noise_tools import silence
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED, gaussian_variance

MIXTURE, TOPICS = "gaussian-mixture", "topic-model"
TASKS = [MIXTURE, TOPICS]
ROWS = 400


def study_of(task, sites=3, *, features=6, **fields):
    usual = {
        "name": "t",
        "task": task,
        "features": features,
        "components": 2,
        "epsilon": 30.0,
        "delta": 1e-5,
        "protocol": "cape",
        "sites": [{"name": f"s{i}"} for i in range(sites)] if isinstance(sites, int) else sites,
    }
    return make_study(**(usual | fields))


def rows_of(study):
    """Two components (or topics), far apart, in other numbers at every site."""
    rng = np.random.default_rng(0)
    d, found = study.width, {}
    means = np.zeros((2, d))
    means[0, : d // 2], means[1, d // 2 :] = 1.0, 1.0
    for i, site in enumerate(study.sites):
        which = rng.integers(2, size=ROWS + 30 * i)
        if study.task == MIXTURE:
            noise = rng.standard_normal((which.size, d))
            found[site.name] = 0.5 + 3.0 * means[which] + 0.3 * noise
        else:
            words = means / means.sum(axis=1, keepdims=True)
            found[site.name] = rng.multinomial(12, words[which]).astype(float)
    return found


def consortium_of(study, folder):
    return Consortium(study, folder, rows=rows_of(study))


# -- sums and books

WAYS = [
    {},
    {"masks": "pairwise"},
    {"masks": "helper"},
    {"masks": "helper", "components": "auto"},
    {"protocol": "sketch", "features": 12},
    {"protocol": "local"},
    {"adjacency": "replace-one", "collusion": 1},
    {"dropouts": 1},
    {"delta": 0.0},
    {"delta": 0.0, "adjacency": "replace-one", "protocol": "local"},
    {"components": "auto", "sites": 1},
    {"sites": [{"name": "a"}, {"name": "b", "epsilon": 14.0}, {"name": "c", "epsilon": 2.5}]},
    {"sites": [{"name": "a"}, {"name": "b", "epsilon": 3.0}], "delta": 0.0},
]
TOPIC_WAYS = [
    {"clip_documents": False},
    {"clip_documents": False, "protocol": "sketch", "features": 12},
    {"clip_documents": False, "delta": 0.0},
    {"alpha0": 1.0},
    {"alpha0": 0.5, "clip_documents": False, "protocol": "sketch", "features": 12},
    {"alpha0": 2.0, "delta": 0.0},
]
MIXTURE_WAYS = [
    {"row_bound": 4.0},
    {"row_bound": 4.0, "center": False, "noise_variance": 0.09},
    {"center": [1.0] * 6, "adjacency": "replace-one"},
    {"row_bound": 4.0, "center": [1.0] * 6, "adjacency": "replace-one"},
    {"covariance_type": "full"},
    {"covariance_type": "tied", "protocol": "sketch", "features": 12},
    {"covariance_type": "diag", "delta": 0.0},
]


@pytest.mark.parametrize(
    ("task", "fields"),
    [(MIXTURE, fields) for fields in WAYS]
    + [(TOPICS, fields) for fields in WAYS[1::5]]
    + [
        pytest.param(TOPICS, fields, marks=pytest.mark.thorough)  # by the same parties' code
        for number, fields in enumerate(WAYS)
        if number % 5 != 1
    ]
    + [(MIXTURE, fields) for fields in MIXTURE_WAYS]
    + [(TOPICS, fields) for fields in TOPIC_WAYS],
    ids=str,
)
def test_every_study_adds_up_exactly(task, fields, tmp_path):
    consortium = consortium_of(study_of(task, **fields), tmp_path)
    with silence():
        finished = run_study(consortium)
    check_sums(consortium, finished)
    check_records(consortium, finished)
    assert not finished.wire.refusals()
    names = [record.statistic for record in finished.outcome.records]
    shapes = fields.get("covariance_type", "spherical")
    assert sum(STATISTICS[name].layout == "tensor" for name in names) == (shapes == "spherical")
    assert names[-1] == ("em-sums" if task == MIXTURE else "document-triples")


ROUNDS = {
    MIXTURE: [
        ["scale"],
        ["center"],
        ["scale about the center"],
        ["center, second stage"],
        ["scale of centered rows"],
        ["pair moment"],
        ["scores", "scale of projected rows"],
        ["triple moment"],
        ["sums 1"],
        ["sums 2"],
        ["sums 3"],
        ["sums 4"],
    ],
    TOPICS: [["norms of pairs"], ["pair moment"], ["norms of triples"], ["triple moment"]],
}


@pytest.mark.parametrize("task", TASKS)
def test_rounds_are_those_that_there_are_keys_for(task, tmp_path):
    finished = run_study(consortium_of(study_of(task), tmp_path))
    assert [[query.name for query in queries] for queries, _ in finished.rounds] == ROUNDS[task]
    assert len(ROUNDS[task]) <= payloads.MOST_ROUNDS


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("components", [1, 3, 5])
def test_a_site_sends_only_the_entries_of_the_tensor_that_differ(task, components, tmp_path):
    fields = {"features": 8, "components": components}
    consortium = consortium_of(study_of(task, **fields), tmp_path)
    with silence():
        finished = run_study(consortium)
    tensor = 1 + next(
        number
        for number, (queries, _) in enumerate(finished.rounds)
        if queries[0].name == "triple moment"
    )
    last = f"round {tensor}"
    found = finished.outcome.factors.weights.size
    assert found == min(components, 2)  # the rows have two
    components = found
    size = components * (components + 1) * (components + 2) // 6
    for name, request, reply in [(n, q, a) for n, s, q, a in finished.wire.carried if s == last]:
        answer = decode(reply, sender=name, limit=LIMIT)
        assert {key: array.shape for key, array in answer.arrays.items()} == {"sum 0": (size,)}
        assert len(reply) < 8 * size + 400
        # what is asked is the basis, and the centre: never anything of D x D
        reported = decode(request, sender=AGGREGATOR, limit=LIMIT)
        shapes = {key: array.shape for key, array in reported.arrays.items()}
        center = {"center 0": (8,)} if task == MIXTURE else {}
        assert shapes == {"basis 0": (8, components)} | center


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("round_number", [1, -1])
def test_a_site_that_is_lost_leaves_the_sum_of_the_others(task, round_number, tmp_path):
    study = study_of(task, 4, dropouts=1, collusion=1)
    consortium = consortium_of(study, tmp_path)
    step = f"round {round_number % (len(ROUNDS[task]) + 1)}"

    with silence():
        finished = run_study(consortium, fate=lost_at(("s2", step)))
    assert list(finished.outcome.missing) == ["s2"]
    assert finished.outcome.taking_part == 3
    for number, (queries, sums) in enumerate(finished.rounds, start=1):
        names = [n for n in study.names if n != "s2" or number < int(step.split()[1])]
        if number > int(step.split()[1]):  # who is lost in a round may be back in the next
            names = list(study.names)
        for query, found in zip(queries, sums, strict=True):
            tables = {n: consortium.rows[n] for n in names}
            assert np.array_equal(found, exact(study, query, tables)), query.name


# -- noise


class Enough(Exception):
    """The messages of the last round have arrived."""


def noise_of_tensors(study, folder, runs):
    """Isometric coordinates of the noise of each run's tensor, in units of its recorded scale."""
    found, releases = [], RoundTotals.releases

    def noting(self, arrived):
        query = self._queries[0]
        if query.accumulator.layout != "tensor":
            return releases(self, arrived)
        own = (self._sums[0] - exact(study, query, rows_of(study))).view(np.int64)
        noise = query.record.noise
        copies = tensor_copies(query.accumulator.shape[0])
        found.append(np.sqrt(copies) * np.ldexp(own.astype(float), noise.grid) / noise.scale)
        raise Enough(noise)

    with (
        mock.patch.object(RoundTotals, "releases", noting),
        # all are taken, those of noise too
        mock.patch.object(whitening, "standing", lambda pair: pair.core.shape[0]),
    ):
        for number in range(runs):
            (folder / str(number)).mkdir()
            with pytest.raises(Enough) as caught:
                run_study(consortium_of(study, folder / str(number)))
    return np.array(found), caught.value.args[0]


@pytest.mark.parametrize(
    ("task", "fields"),
    [(MIXTURE, {}), (TOPICS, {}), (TOPICS, {"masks": "helper"}), (TOPICS, {"collusion": 1})],
    ids=str,
)
def test_gaussian_noise_of_the_tensor_is_that_of_the_shares(task, fields, tmp_path):
    wide = {"features": 24, "components": 16}
    study = study_of(task, **wide, **fields)
    found, noise = noise_of_tensors(study, tmp_path, 2)
    assert noise.noise_parts == study.honest
    deviation = math.sqrt(3 / study.honest)
    assert gaussian_variance(found.ravel(), deviation**2) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert gaussian_variance(found.ravel(), (factor * deviation) ** 2) < REJECTED


@pytest.mark.parametrize("task", TASKS)
def test_vector_noise_of_the_tensor_has_the_radius_of_the_whole(task, tmp_path):
    """Radii are Gamma(d), and add up to one; the smoothing of shares adds 1/4096 to each."""
    wide = {"features": 24, "components": 16}
    study = study_of(task, delta=0.0, epsilon=39.0, **wide)
    found, noise = noise_of_tensors(study, tmp_path, 3)
    assert (noise.kind, noise.noise_parts, noise.size) == ("vector", 3, tensor_size(16))
    total = float(np.sum(np.linalg.norm(found, axis=1)))

    def p_value(scale):
        law = stats.gamma(len(found) * noise.size)
        low, high = law.cdf(total / scale / (1 + 1 / 4096)), law.sf(total / scale)
        return 2 * min(low, high)

    assert p_value(1.0) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert p_value(factor) < REJECTED


# -- what a site refuses


def last_call(task, folder, **fields):
    """The round of the tensor."""
    consortium = consortium_of(study_of(task, **fields), folder)
    return consortium, at(consortium, f"round {ROUNDS[task].index(['triple moment']) + 1}")


FAR = np.full((2, 6), 9.0)


@pytest.mark.parametrize(
    ("mixture", "arrays"),
    [
        ({"squares": "full"}, {}),
        ({"squares": "none"}, {}),
        ({"components": 3}, {"means": np.zeros((3, 6)), "logs": np.zeros(3)}),
        ({}, {"means": FAR}),
        ({}, {"means": FAR * np.nan}),
        ({}, {"logs": np.array([0.0, 1e9])}),
        ({}, {"reaches": np.array([0.0, 1.0])}),
        ({}, {"factors": np.array([[1.0], [np.inf]])}),
    ],
    ids=str,
)
def test_sums_about_other_mixtures_are_refused(mixture, arrays, tmp_path):
    """With other squares, more components, or numbers with which sums would not be exact."""
    consortium = consortium_of(study_of(MIXTURE), tmp_path)
    call = at(consortium, f"round {ROUNDS[MIXTURE].index(['sums 1']) + 1}")
    message = decode(call.payloads["s0"], sender=AGGREGATOR, limit=LIMIT)
    (query,) = message.body["queries"]
    before = consortium.check_books("s0").spent
    wanted = {"mixture": {**query["description"]["mixture"], **mixture}}
    if "components" in mixture:
        arrays = arrays | {"factors": np.ones((3, 1)), "reaches": np.ones(3)}
    request = changed(
        changed_ask(call.payloads["s0"], description=wanted),
        arrays={f"{name} 0": array for name, array in arrays.items()},
    )
    found = refusal(consortium.parties["s0"], "s0", request)
    assert found in ("bad-query", "not-in-plan", "malformed", "non-finite")
    assert consortium.check_books("s0").spent == before


@pytest.mark.parametrize("task", TASKS)
def test_a_tensor_of_more_components_is_refused(task, tmp_path):
    consortium, call = last_call(task, tmp_path)
    request = call.payloads["s0"]
    wider = np.linalg.qr(np.ones((6, 1)) + np.eye(6))[0][:, :3].copy()
    asked = changed(changed_ask(request, description={"columns": 3}), arrays={"basis 0": wider})
    assert refusal(consortium.parties["s0"], "s0", asked) == "bad-query"
    assert "with 3 columns" in consortium.parties["s0"].last_error.message


OTHER_SUMS = {
    MIXTURE: [
        {"kind": "document-triples"},
        {"kind": "document-pairs"},
        {"kind": "component-energy"},
        {"kind": "bingham-vectors"},
        {"kind": "norm-histogram", "of": "document-triples"},
        {"of": "document-pairs"},
    ],
    TOPICS: [
        {"kind": "third-moment"},
        {"kind": "second-moment"},
        {"kind": "norm-histogram"},
        {"kind": "row-sum"},
        {"kind": "document-sketch"},
        {"kind": "norm-histogram", "of": "document-sketch"},
        {"kind": "norm-histogram", "of": "third-moment"},
        {"kind": "norm-histogram", "of": "norm-histogram"},
        {"kind": "document-pairs", "nuclear": True},
        {"of": "document-pairs"},
        {"of": "document-triples"},
    ],
}


@pytest.mark.parametrize("task", TASKS)
def test_sums_of_other_tasks_are_refused(task, tmp_path):
    consortium, call = last_call(task, tmp_path)
    before = consortium.check_books("s0").spent
    for other in OTHER_SUMS[task]:
        request = changed_ask(call.payloads["s0"], description=other)
        assert refusal(consortium.parties["s0"], "s0", request) in ("not-in-plan", "bad-query"), (
            other
        )
    assert consortium.check_books("s0").spent == before


def test_a_sketch_of_more_columns_is_refused_before_memory_is_taken(tmp_path):
    study = study_of(TOPICS, protocol="sketch", features=30_000)
    consortium = Consortium(study, tmp_path, rows=dict.fromkeys(study.names, np.ones((2, 30_000))))
    call = at(consortium, "round 2")
    message = decode(call.payloads["s0"], sender=AGGREGATOR, limit=LIMIT)
    (query,) = message.body["queries"]
    assert query["description"]["columns"] == 8
    request = changed_ask(call.payloads["s0"], description={"columns": 30_000})
    assert refusal(consortium.parties["s0"], "s0", request) == "bad-query"


def test_pairs_that_wishart_noise_does_not_hide_are_refused(tmp_path):
    """Clipped in the Frobenius norm a document may contribute more than 1 in the nuclear one."""
    consortium = consortium_of(study_of(TOPICS, delta=0.0), tmp_path)
    call = at(consortium, "round 2")
    message = decode(call.payloads["s0"], sender=AGGREGATOR, limit=LIMIT)
    (query,) = message.body["queries"]
    assert query["description"]["nuclear"]
    for clip in (1.0, 0.25):
        other = {"nuclear": False, "clip": clip}
        request = changed_ask(call.payloads["s0"], description=other)
        assert refusal(consortium.parties["s0"], "s0", request) == "bad-query"


def test_a_tensor_that_is_claimed_to_cost_less_costs_what_it_costs(tmp_path):
    """A larger variance makes the third moment more sensitive: the site works that out itself."""
    consortium, call = last_call(MIXTURE, tmp_path)
    request = changed_ask(call.payloads["s0"], description={"variance": 1.0})
    assert refusal(consortium.parties["s0"], "s0", request) == "not-in-plan"


@pytest.mark.parametrize("task", TASKS)
def test_a_request_is_never_larger_than_the_study_makes_it(task, tmp_path):
    consortium = consortium_of(study_of(task), tmp_path)
    site = consortium.parties["s0"]
    assert site._limit < (1 << 22) + (1 << 16)
    assert refusal(site, "s0", b"x" * (site._limit + 1)) == "too-large"
    # it grows with the width, not with its square
    wide = study_of(task, features=100_000, protocol="sketch")
    rows = SparseRows(scipy.sparse.csr_array((3, wide.width)))
    site = Site(name="s0", terms=settle(wide), rows=rows, ledger=consortium.ledgers["s0"])
    assert 8 * 100_000 * 8 < site._limit < 1 << 26


# -- what stops a study


@pytest.mark.parametrize("task", TASKS)
def test_too_few_components_give_fewer_and_what_was_released_stays_charged(task, tmp_path):
    """Without any noise, so that what sampling shows is below what noise would: for certain."""
    fields = {"features": 12, "components": 6, "epsilon": 4.0}
    consortium = consortium_of(study_of(task, **fields), tmp_path)
    wire = Wire(consortium.parties)
    aggregator = Aggregator(settle(consortium.study))
    with silence():
        outcome = carry(aggregator.run(), wire)
    assert 1 <= outcome.factors.weights.size < 6
    released = outcome.records
    for name in consortium.ledgers:
        assert consortium.charged(name, aggregator.session) == list(released)
        account = consortium.account(name, aggregator.session)
        assert account.outcome == "finished"
        standing = consortium.check_books(name)
        assert 0 < standing.spent_epsilon < consortium.study.epsilon


def test_a_long_vocabulary_can_be_told(tmp_path):
    """Names of all words travel when a site joins: more than a message without numbers has."""
    words = [f"a word of some length, number {i:06d} of them all" for i in range(30_000)]
    study = study_of(
        TOPICS, 2, features=None, columns=words, protocol="sketch", components=1, sketch_size=2
    )
    counts = scipy.sparse.csr_array(np.full((4, 2), 3.0))
    counts.resize((4, len(words)))
    parties = {}
    for name in study.names:
        ledger = Ledger(tmp_path / f"{name}.ledger")
        ledger.set_budget(requested_budget(study))
        rows = SparseRows(counts, names=words)
        parties[name] = Site(name=name, terms=settle(study), rows=rows, ledger=ledger)
    wire = Wire(parties)
    call = until(Aggregator(settle(study)).run(), wire, "keys")
    assert set(call.payloads) == set(study.names)
    assert all(len(answer) > 1 << 20 for _, _, _, answer in wire.carried)
