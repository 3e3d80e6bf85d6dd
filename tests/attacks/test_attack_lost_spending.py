"""Errors that leave out what was already released."""

import logging

import numpy as np
import pytest

from eigenveil import (
    FederatedPCA,
    PrivatePCA,
    PrivateStreamingPCA,
)
from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    EigenveilError,
    NoisyResultWarning,
    OutputError,
    PrivacyError,
    ProtocolError,
    same_spent,
    spent_of,
)
from eigenveil.federated.running import requested_budget, run_study, site_rows
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.models.stored import StoredModel
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.network import service
from eigenveil.network.journal import Journal
from eigenveil.network.orders import sign_order
from eigenveil.network.results import STATUS, error_fields, error_from, read_progress
from eigenveil.network.service import StudyRunner
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.accountant import Spending, compose
from federation_tools import identities

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(600, 4)) + 5.0 * np.eye(2, 4)[RNG.integers(2, size=600)]
STOPS = [KeyboardInterrupt, MemoryError, np.linalg.LinAlgError, SystemExit, DataError, OutputError]


def made(kind):
    return kind.relayed("stopped", code="aborted") if issubclass(kind, EigenveilError) else kind()


def reported(error, *, names=None):
    """That an error says what was released before it."""
    assert error.released
    if names is not None:
        assert [record.name for record in error.released] == names
    assert 0 < error.spent.epsilon <= 9.0
    (note,) = [note for note in error.__notes__ if "Already released" in note]
    assert all(record.name in note for record in error.released)
    seeded = [] if error.spent.certified else list(error.spent.caveats)
    assert error.spent == compose(
        error.released, delta=1e-6, adjacency="add-remove", reasons_not_certified=seeded
    )


class StopsLater(RowSource):
    """Rows that cannot be read any more at the n-th pass."""

    def __init__(self, rows, stop, passes):
        self._rows, self._stop, self._left = ArrayRows(rows), stop, passes
        self.features, self.names = rows.shape[1], None

    def blocks(self):
        self._left -= 1
        if self._left < 0:
            raise made(self._stop)
        yield from self._rows.blocks()


@pytest.mark.parametrize("stop", STOPS)
def test_whatever_stops_a_pass_over_rows_says_what_was_spent(stop):
    model, rows = PrivatePCA(1, epsilon=9.0), ROWS
    with pytest.raises(stop) as caught:
        model.fit_rows(StopsLater(rows, stop, 0))
    assert spent_of(caught.value) is None
    assert not getattr(caught.value, "released", ())
    with pytest.raises(stop) as caught:
        model.fit_rows(StopsLater(rows, stop, 1))
    reported(caught.value, names=[caught.value.released[0].name])
    assert not hasattr(model, "certificate_")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, NoisyResultWarning])
@pytest.mark.parametrize(
    "fit",
    [
        lambda: PrivateStreamingPCA(1, epsilon=9.0).fit(ROWS),
        lambda: PrivateStreamingPCA(1, epsilon=9.0).partial_fit(ROWS).release(),
        lambda: PrivateStreamingPCA(1, epsilon=9.0, publish="continual", horizon=2).partial_fit(
            ROWS
        ),
        lambda: FederatedPCA(1, epsilon=9.0).fit([ROWS[:300], ROWS[300:]]),
    ],
)
def test_so_does_what_comes_after_the_last_release(fit, stop, monkeypatch):
    """Ctrl-C at the very end, or a warning that is an error."""

    def stops(self, result):
        raise stop

    monkeypatch.setattr(StoredModel, "_take_over", stops)
    with pytest.raises(stop) as caught:
        fit()
    reported(caught.value)
    assert caught.value.spent.epsilon > 8.9


# -- many sites


def sites(**instead):
    parts = dict(zip(("north", "south", "west"), np.split(ROWS, 3), strict=True))
    return {name: ArrayRows(part) for name, part in parts.items()} | instead


@pytest.mark.parametrize("kind", [DataError, BudgetExceeded])
def test_a_site_that_refuses_after_a_release_does_not_hide_it(kind):
    """The owner of all rows hears of the site, and of what was spent before."""
    rows = sites(south=StopsLater(np.split(ROWS, 3)[1], kind, 2))
    with pytest.raises(kind, match="site south") as caught:
        FederatedPCA(1, epsilon=9.0).fit_rows(rows)
    reported(caught.value)


def test_a_site_that_refused_and_a_study_that_stops_later():
    """One site may be lost; the study goes on, and stops after a release."""
    rows = sites(
        south=StopsLater(np.split(ROWS, 3)[1], DataError, 1),
        west=StopsLater(np.split(ROWS, 3)[2], DataError, 3),
    )
    with pytest.raises(EigenveilError) as caught:
        FederatedPCA(1, epsilon=9.0, dropouts=1).fit_rows(rows)
    assert "site " in str(caught.value)
    assert len(caught.value.released) >= 2
    reported(caught.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_whatever_stops_a_study_says_what_was_spent(stop):
    """Also where the aggregator's generator is not asked again: the transport stops."""
    steps = []

    def progress(step, count):
        steps.append(step)
        if step == "round 2":
            raise made(stop)

    with pytest.raises(stop) as caught:
        FederatedPCA(1, epsilon=9.0).fit_rows(sites(), progress=progress)
    assert "round 1" in steps
    reported(caught.value)
    with pytest.raises(stop) as caught:
        FederatedPCA(1, epsilon=9.0).fit_rows(
            sites(), progress=lambda step, count: (_ for _ in ()).throw(made(stop))
        )
    assert spent_of(caught.value) is None


# -- between organisations


class InThisProcess:
    """Carries calls to sites in this process, and stops at a step."""

    def __init__(self, parties, stop):
        self._parties, self._stop = parties, stop
        self.traffic, self.seconds = {}, {}
        self.hurry = self.over = self.count_replayed = lambda: None

    def call(self, method, payloads, timeout):
        if method == "round 2":
            raise made(self._stop)
        return {name: self._parties[name].handle(sent) for name, sent in payloads.items()}, {}


@pytest.mark.parametrize("stop", [ProtocolError, RuntimeError])
def test_a_study_of_an_aggregator_tells_the_lead_what_was_spent(stop, tmp_path, monkeypatch):
    rows = sites()
    study = FederatedPCA(1, epsilon=9.0, protocol="cape").study_of(rows)
    parties = {}
    for name, part in rows.items():
        ledger = Ledger(tmp_path / f"{name}.ledger")
        ledger.set_budget(requested_budget(settle(study)))
        parties[name] = Site(
            name=name, terms=settle(study), rows=part, ledger=ledger, source=SecureSource()
        )
    transport = InThisProcess(parties, stop)
    monkeypatch.setattr(service, "PartyCalls", lambda *given, **more: transport)
    logging.getLogger("eigenveil.network.service").addHandler(logging.NullHandler())
    party = identities(tuple(rows))
    order = sign_order(party["lead"], study, session="00" * 12, timeout=60.0)
    journal = Journal.begin(tmp_path / "journal", order, party["lead"].members.digest)
    problem = StudyRunner(order, None, None, lambda: "", tmp_path, journal).run()
    reported(problem)
    fields = read_progress(tmp_path)["error"]
    assert (tmp_path / STATUS).exists()
    assert error_from(fields).spent == problem.spent


@pytest.mark.parametrize(
    "kind", [DataError, PrivacyError, BudgetExceeded, ProtocolError, OutputError]
)
def test_every_kind_of_error_carries_it_between_parties(kind):
    with pytest.raises(KeyboardInterrupt) as caught:
        PrivatePCA(1, epsilon=9.0).fit_rows(StopsLater(ROWS, KeyboardInterrupt, 1))
    error = kind.relayed("m", hint="h", code="aborted")
    assert error_from(error_fields(error)).spent is None
    same_spent(caught.value, error)
    reported(error)
    again = error_from(error_fields(error))
    assert type(again) is kind
    assert again.spent == error.spent


def test_a_cost_that_cannot_be_computed_is_no_reason_to_hide_the_error():
    with pytest.raises(KeyboardInterrupt) as caught:
        PrivatePCA(1, epsilon=9.0).fit_rows(StopsLater(ROWS, KeyboardInterrupt, 1))
    records, error = caught.value.released, MemoryError()
    Spending(delta=1e-6, adjacency="replace-one", records=list(records)).notify(error)
    assert error.released == records
    assert "Its cost" in error.__notes__[0]


def test_the_command_line_says_it(run, tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", ROWS)

    def stops(self, result):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoredModel, "_take_over", stops)
    said = run.fails(
        "fit", tmp_path / "rows.npy", "--out", tmp_path / "result", "--quiet", status=130
    )
    assert "spent: before this was known, a release that is (" in said
    assert not (tmp_path / "result").exists()


def test_a_study_in_process_keeps_nothing_of_a_failed_run():
    parts = site_rows([ROWS[:300], ROWS[300:]], for_one="")
    model = FederatedPCA(1, epsilon=9.0)

    def stops(run):
        raise RuntimeError

    with pytest.raises(RuntimeError) as caught:
        run_study(model.study_of(parts), parts, source=SecureSource(), keep=stops)
    reported(caught.value)
