"""Small studies whose every message a test can see, drop, repeat and change."""

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np

from eigenveil.errors import ProtocolError
from eigenveil.federated.running import process_identities
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import (
    AGGREGATOR,
    HELPER,
    REFUSED,
    Message,
    decode,
    encode,
)
from eigenveil.federation.protocol.requests import TRIES
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.sums import RoundTotals
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import WEIGHT_BITS, make_study
from eigenveil.linalg.eigen import truncated_root
from eigenveil.moments.describe import describe, rebuild
from eigenveil.moments.release import release_of
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.privacy.accountant import Loss

DELTA = 1e-5
LIMIT = 1 << 24


def study_of(sites=4, *, features=3, **fields):
    """A study of so many sites, or of these; it has two rounds, without ``row_bound`` four.

    Its second moment is released once, where that can be said.
    """
    named = [{"name": f"s{i}"} for i in range(sites)] if isinstance(sites, int) else sites
    if fields.get("row_bound", 1.0) is None:
        fields = {"budget_split": None, **fields}
    private = fields.get("center", True) is True
    whole = fields.get("protocol", "cape") in ("cape", "local") and fields.get("delta", DELTA) > 0
    once = {"mechanism": "gaussian"} if whole and "task" not in fields else {}
    usual = {
        "name": "t",
        "features": features,
        "components": 2,
        "epsilon": 20.0,
        "delta": DELTA,
        "protocol": "cape",
        "row_bound": 10.0,
        "budget_split": {"center": 0.1, "moment": 0.9} if private else {"moment": 1.0},
        "sites": named,
    }
    return make_study(**(usual | once | fields))


def rows_of(study, rows=40):
    """Rows of every site: of other numbers, about a centre that is not zero."""
    rng = np.random.default_rng(0)
    shape = np.linspace(2.0, 0.5, study.width)
    return {
        site.name: 0.5 + rng.standard_normal((rows + 3 * i, study.width)) * shape
        for i, site in enumerate(study.sites)
    }


def requested_budget(study, times=1.0):
    """The budget that just covers a study."""
    return Budget("default", study.adjacency, study.epsilon * times, study.delta)


def known_to_all(study):
    """Identities by name where a study needs some: a site that starts again has the same."""
    terms = settle(study)
    return (
        process_identities(terms.names, b"shared by all of a test's sites") if terms.mends else {}
    )


class Consortium:
    """The sites of a study, each with rows and a ledger of its own, and the helper."""

    def __init__(self, study, folder, *, rows=None, times=1.0, identities=None):
        self.study, self.folder = study, folder
        self.rows = rows_of(study) | (rows or {})
        self.ledgers = {
            name: Ledger(folder / f"{name}.ledger", heads=None) for name in study.active
        }
        for ledger in self.ledgers.values():
            ledger.set_budget(requested_budget(study, times))
        self.identities = identities or known_to_all(study)
        self.parties = {name: self.site(name) for name in self.ledgers}
        if settle(study).masks.needs_helper:
            self.parties[HELPER] = Helper(settle(study), identity=self.identities.get(HELPER))

    def site(self, name):
        """The site as it is when its software has just started."""
        return Site(
            name=name,
            terms=settle(self.study),
            rows=ArrayRows(self.rows[name], names=self.study.columns, origin=f"{name}.csv"),
            ledger=Ledger(self.folder / f"{name}.ledger", heads=None),
            identity=self.identities.get(name),
        )

    def restart(self, name):
        self.parties[name] = self.site(name)

    def account(self, name, session):
        """A site's account of a session, or None."""
        found = {a.key: a for a in self.ledgers[name].sessions()}
        return found.get(SessionKey(self.study.hash, session))

    def charged(self, name, session):
        """Records that a site was charged for in a session, in order."""
        account = self.account(name, session)
        charges = () if account is None else account.charges
        return [record for _, charge in charges for record in charge.releases]

    def check_books(self, name):
        """Nothing is spent but what was charged, and nothing reserved once sessions have ended."""
        ledger = self.ledgers[name]
        (standing,) = ledger.standings()
        accounts = ledger.sessions()
        assert standing.spent == Loss.total(a.spent() for a in accounts)
        if not any(a.is_open for a in accounts):
            assert standing.reserved == Loss()
        verification = ledger.verify()
        assert verification.holds, verification
        return standing


@dataclass
class Wire:
    """A transport that keeps everything it carried; ``fate`` may decide otherwise for a call.

    ``fate(name, step, request, party)`` gives the answer, None when it is lost, or ``...`` when the
    call is as any other.
    """

    parties: dict
    fate: object = None
    carried: list = field(default_factory=list)

    def sites(self):
        return tuple(self.parties)

    def call(self, method, payloads, timeout):
        replies, failures = {}, {}
        for name, request in payloads.items():
            party = self.parties[name]
            answer = ... if self.fate is None else self.fate(name, method, request, party)
            if answer is ...:
                answer = party.handle(request)
            if answer is None:
                failures[name] = ProtocolError.relayed("it cannot be reached", code="no-answer")
                continue
            self.carried.append((name, method, request, answer))
            replies[name] = answer
        return replies, failures

    def answers(self, step):
        """By site, its last answer to a step."""
        return {n: decode(a, sender=n, limit=LIMIT) for n, s, _, a in self.carried if s == step}

    def refusals(self):
        """By (site, step), the code and the text of a refusal."""
        return {
            (name, step): (reported.body["code"], reported.body["text"])
            for name, step, _, answer in self.carried
            if (reported := decode(answer, sender=name, limit=LIMIT)).step == REFUSED
        }


def lost_at(*where):
    """A fate: these (site, step) are not reached when they are asked, and are when asked later."""
    asked = Counter()

    def fate(name, step, request, party):
        asked[name, step] += 1
        return None if (name, step) in where and asked[name, step] <= TRIES else ...

    return fate


def carry(run, wire):
    call = next(run)
    try:
        while True:
            call = run.send(wire.call(call.method, call.payloads, call.timeout))
    except StopIteration as end:
        return end.value


def until(run, wire, step):
    """Carries a run up to a step; its call, not yet carried."""
    call = next(run)
    while call.method != step:
        call = run.send(wire.call(call.method, call.payloads, call.timeout))
    return call


def at(consortium, step, session=None):
    """The call of a step, about to be carried, after everything before it."""
    run = Aggregator(settle(consortium.study), session=session).run()
    return until(run, Wire(consortium.parties), step)


NOTHING = Loss()


def spent(consortium, name):
    """What a site's ledger has spent, all its entries checked."""
    return consortium.check_books(name).spent


@dataclass
class Finished:
    """A run that ended well, and what it was made of."""

    outcome: object
    wire: Wire
    rounds: list
    session: str


def run_study(consortium, *, fate=None, session=None, identity=None):
    """The whole study over the wire."""
    wire = Wire(consortium.parties, fate)
    aggregator = Aggregator(settle(consortium.study), session=session, identity=identity)
    with sums_seen() as rounds:
        outcome = carry(aggregator.run(), wire)
    return Finished(outcome, wire, rounds, aggregator.session)


@contextmanager
def sums_seen():
    """Fills a list with what each round's messages added up to: (asks, sums without masks)."""
    rounds, releases = [], RoundTotals.releases

    def noting(self, arrived):
        rounds.append((self._queries, [np.array(total) for total in self._sums]))
        return releases(self, arrived)

    with mock.patch.object(RoundTotals, "releases", noting):
        yield rounds


def exact(study, query, tables):
    """What one accumulator over these sites' rows holds, weighted, in the message's coordinates."""
    terms, weights, total = settle(study), study.weights(), 0
    grid, bits = query.record.noise.grid, terms.weight_bits
    for name, rows in tables.items():
        described = describe(query.accumulator.empty(), study.width)
        accumulator = rebuild(*described, place=terms.place(name))
        accumulator.update(Block(rows))
        weight = weights[name] >> (WEIGHT_BITS - bits)
        integers = coordinates(accumulator.layout, accumulator.integers())
        total = total + (integers << (accumulator.grid - bits - grid)) * weight
    return np.asarray(total).view(np.uint64)


def check_sums(consortium, finished, names=None):
    """Every sum is that of the named sites' rows."""
    study = consortium.study
    names = study.active if names is None else names
    tables = {name: consortium.rows[name] for name in names}
    terms = settle(study)
    for queries, sums in finished.rounds:
        for query, found in zip(queries, sums, strict=True):
            is_open = terms.protocol.is_unmasked(terms.step_of(query.name))
            if is_open and study.protocol == "dpdispca":
                assert np.allclose(found, low_rank_sum(study, query, tables), rtol=1e-9)
            else:
                assert np.array_equal(found, exact(study, query, tables)), query.name


def low_rank_sum(study, query, tables):
    """The sum of each site's own best approximation."""
    total = 0
    for name, rows in tables.items():
        whole = from_coordinates(
            "symmetric", query.accumulator.shape, exact(study, query, {name: rows}).view(np.int64)
        )
        root = truncated_root(release_of(query.record, whole).values, study.sketch_columns)
        total = total + root @ root.T
    return total


def check_records(consortium, finished):
    """Each site was charged for what the aggregator says was released, at the site's weight."""
    weights = consortium.study.row_weights()
    for name in consortium.ledgers:
        mine = consortium.charged(name, finished.session)
        reported = [
            r.model_copy(update={"weight": weights[name]}) for r in finished.outcome.records
        ]
        assert mine == reported
        account = consortium.account(name, finished.session)
        assert account.outcome == "finished"
        assert account.terms.reserve.covers(account.charged())
        consortium.check_books(name)


def changed(request, *, body=None, arrays=None, **header):
    """A request with some fields of its body, arrays or header changed."""
    message = decode(request, sender=AGGREGATOR, limit=LIMIT)
    if body is not None:
        message = replace(message, body=json.loads(json.dumps(dict(message.body) | body)))
    if arrays is not None:
        message = replace(message, arrays=dict(message.arrays) | arrays)
    return encode(replace(message, **header))


def query(party, name, request):
    """A party's answer, decoded."""
    return decode(party.handle(request), sender=name, limit=LIMIT)


def refusal(party, name, request):
    """The code of a party's refusal."""
    answer = query(party, name, request)
    assert answer.step == REFUSED, f"{name} answered {answer.step!r}"
    assert not answer.arrays
    return answer.body["code"]


def request_of(study, session, step, body, arrays=None):
    """A message of the aggregator."""
    return encode(Message(step, study.hash, session, AGGREGATOR, body.fields(), arrays or {}))


def changed_ask(request, **fields):
    """A round's request with its first ask changed; ``description`` adds to the old one."""
    queries = decode(request, sender=AGGREGATOR, limit=LIMIT).body["queries"]
    first = queries[0] | fields
    if "description" in fields:
        first["description"] = queries[0]["description"] | fields["description"]
    return changed(request, body={"queries": [first, *queries[1:]]})
