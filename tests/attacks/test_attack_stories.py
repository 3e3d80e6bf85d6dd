"""An aggregator that tells sites different stories about who was lost."""

import itertools
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import LIMIT, Consortium, at, changed, exact, request_of, run_study, study_of

from eigenveil.federation.ledger.ledger import Ledger, SessionKey
from eigenveil.federation.masks import MODULAR, Part
from eigenveil.federation.protocol import payloads, site
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg import consistency
from eigenveil.federation.secagg.client import State, pair_letter_bytes
from eigenveil.federation.secagg.consistency import (
    bitmap,
    neighbours,
    rows,
    statement,
    text_of,
    threshold,
)
from eigenveil.federation.secagg.keys import (
    Context,
    RoundFacts,
    join_secret,
    mask_key,
    round_key,
    self_key,
)
from eigenveil.federation.secagg.recovery import Agreement, MaskRecovery
from eigenveil.moments.source import ArrayRows
from noise_tools import silence

SESSION = "s"
TURNS = (1, 2)
# sites, dropouts, colluding, neighbours
RING = (9, 1, 0, 2)
SHAPES = [(4, 1, 0, None), (5, 1, 1, None), (7, 2, 0, 4), RING, (9, 1, 1, 4), (8, 2, 0, 4)]


class Quick(Consortium):
    """Sites whose ledgers are thrown away."""

    def site(self, name):
        return Site(
            name=name,
            terms=settle(self.study),
            rows=ArrayRows(self.rows[name]),
            ledger=Ledger(self.folder / f"{name}.ledger", durable=False),
            identity=self.identities[name],
        )


def shaped(shape):
    sites, dropouts, collusion, near = shape
    return study_of(
        sites, dropouts=dropouts, collusion=collusion, neighbours=near, features=1, components=1
    )


@cache
def round_of(shape, round_number):
    """What an honest aggregator asks in a round of such a study."""
    with tempfile.TemporaryDirectory() as folder:
        call = at(Quick(shaped(shape), Path(folder)), f"round {round_number}", SESSION)
        return call.payloads["s0"]


class Adversary:
    """An aggregator with its colluding sites, against the others."""

    def __init__(self, shape, folder):
        self.shape, self.study = shape, shaped(shape)
        self.house = Quick(self.study, folder)
        self.names = self.study.names
        self.colluding = set(self.names[: self.study.collusion])
        self.honest = [name for name in self.names if name not in self.colluding]
        self.context = Context(self.study.hash, SESSION)
        self.letters, self.sent, self.spec = {}, defaultdict(dict), []
        self.signatures = defaultdict(dict)  # by statement, by site
        self.own, self.repair = defaultdict(set), defaultdict(set)  # by round and site, the holders
        self.joined_as, self.told, self.facts, self.states = {}, {}, {}, {}
        join = request_of(self.study, SESSION, "join", payloads.JoinRequest())
        self.keys = {}
        for name in self.names:
            reported = decode(self.house.parties[name].handle(join), sender=name, limit=LIMIT)
            self.keys[name] = reported.read(payloads.JoinReply).keys

    # -- what it tells a site

    def notify(self, name, step, body, arrays=None):
        return self.send(name, request_of(self.study, SESSION, step, body, arrays))

    def send(self, name, request):
        """The site's answer, of which everything is remembered; None for a refusal."""
        self.spec.append((name, request))
        answer = decode(self.house.parties[name].handle(request), sender=name, limit=LIMIT)
        if answer.step == REFUSED:
            return None
        self.sent[answer.step][name] = answer
        self.states.pop(name, None)
        kind, _, round_number = answer.step.partition(" ")
        if kind == "keys":
            near = sorted(self.near(name))
            letters = answer.arrays["letters"]
            self.letters[name] = dict(zip(near, letters, strict=True))
        if kind == "round":
            state = self.state(name)
            self.facts[int(round_number), name] = state.facts(
                int(round_number), state.request_digest
            )
        if kind == "survivors":
            signature = bytes.fromhex(answer.read(payloads.SurvivorsReply).signature)
            said = decode(request, sender=AGGREGATOR, limit=LIMIT).read(payloads.SurvivorsRequest)
            self.signatures[self.said(name, said.survivors)][name] = signature
        if kind == "unmask":
            reply = answer.read(payloads.UnmaskReply)
            for of, seen in ((reply.own, self.own), (reply.repair, self.repair)):
                for mate in of:
                    seen[int(round_number), mate].add(name)
        return answer

    def near(self, name):
        return neighbours(name, self.joined_as[name], self.study.degree)

    def tell_keys(self, name, lost=()):
        before = self.joined_as.get(name)
        self.joined_as[name] = [each for each in self.names if each not in lost]
        body = payloads.KeysRequest(
            lost=tuple(lost), partners={other: self.keys[other] for other in self.near(name)}
        )
        if self.notify(name, "keys", body) is None:
            del self.joined_as[name]
            if before is not None:
                self.joined_as[name] = before

    def tell_shares(self, name, members):
        """Letters of these, who are said to be able to be lost in the first round."""
        senders = [
            other
            for other in self.near(name)
            if other in members and name in self.letters.get(other, ())
        ]
        body = payloads.SharesRequest(senders=tuple(senders))
        letters = [self.letters[other][name] for other in senders]
        size = pair_letter_bytes(settle(self.study))
        arrays = {"letters": np.array(letters, np.uint8).reshape(-1, size)}
        if self.notify(name, "shares", body, arrays) is not None:
            self.told[name] = members

    def tell_round(self, name, round_number, *, another=False):
        """The question of a round, or one that differs by less than a site can check."""
        request = round_of(self.shape, round_number)
        first, *others = decode(request, sender=AGGREGATOR, limit=LIMIT).body["queries"]
        first = first | {"scale": first["scale"] * (1.0 + 1e-12 * another)}
        body = {"queries": [first, *others]}
        if round_number == 1:
            body["members"] = bitmap(self.names, self.told.get(name, self.names))
        return self.send(name, changed(request, body=body))

    def tell_survivors(self, name, round_number, survivors):
        body = payloads.SurvivorsRequest(
            round_number=round_number, survivors=bitmap(self.names, survivors)
        )
        return self.notify(name, f"survivors {round_number}", body)

    def tell_unmask(self, name, round_number, extra=()):
        """With all signatures there are of what the site signed, and what colluding sites forge."""
        state = self.state(name)
        if not state.survivors or name not in self.joined_as:
            return None
        said, members = self.said(name, state.survivors), self.members(state.survivors)
        found = dict(self.signatures[said]) | {
            each: self.house.identities[each].sign(text_of(said, each)) for each in self.colluding
        }
        for other in extra:  # of another set, or of another site
            found.setdefault(other, next(iter(found.values()), bytes(64)))
        shown = [each for each in self.names if each in found and each in members]
        body = payloads.UnmaskRequest(round_number=round_number, signed=bitmap(self.names, shown))
        arrays = {"signatures": rows([found[each] for each in shown], 64)}
        return self.notify(name, f"unmask {round_number}", body, arrays)

    # -- what it knows

    def state(self, name):
        if name not in self.states:
            stored = self.house.ledgers[name].state(SessionKey(self.study.hash, SESSION))
            self.states[name] = State.model_validate_json(stored)
        return self.states[name]

    def round_keys(self, name, round_number):
        """Of a site's pairs, as its packet has them."""
        return {
            other: round_key(bytes.fromhex(pair), self.context, round_number, (name, other))
            for other, pair in self.state(name).pairs.items()
        }

    def members(self, text):
        return consistency.members_of(self.names, text)

    def said(self, name, survivors):
        state = self.state(name)
        return statement(
            self.context, state.facts(state.round_number, state.request_digest), survivors
        )

    def holders(self, seen, round_number, name):
        """Who has told the adversary a share of a secret of this site."""
        from_colluding = {each for each in self.colluding if name in self.state(each).held}
        return seen.get((round_number, name), set()) | from_colluding

    def has(self, seen, round_number, name):
        """Whether it can compute the own mask's secret (``self.own``), or the pair secret."""
        needed = threshold(len(self.near(name)) + 1, self.study.collusion)
        return len(self.holders(seen, round_number, name)) >= needed

    def sums_shown(self, round_number):
        """Groups of honest sites whose messages' sum it can compute, none of them smaller.

        A message shows something only once its own mask is known. Of the masks with others the
        known ones are taken off; any other must be in the sum twice, made from the same key.
        """
        step = f"round {round_number}"
        open_to_it = self.colluding | {
            name for name in self.joined_as if self.has(self.repair, round_number, name)
        }
        known = {key for n in open_to_it for key in self.round_keys(n, round_number).values()}
        bare = [
            n for n in self.honest if n in self.sent[step] and self.has(self.own, round_number, n)
        ]
        keys = {}
        for name in bare:
            facts = self.facts[round_number, name]
            near = set(self.members(facts.members))
            keys[name] = {
                mask_key(key, self.context, facts, (name, other))
                for other, key in self.round_keys(name, round_number).items()
                if other in near and key not in known
            }
        count = Counter(itertools.chain.from_iterable(keys.values()))
        groups = []
        for name in bare:
            touching = [g for g in groups if keys[name] & set().union(*(keys[n] for n in g))]
            groups = [g for g in groups if g not in touching]
            groups.append({name}.union(*touching))
        return [g for g in groups if all(count[key] == 2 for n in g for key in keys[n])]

    def check(self):
        """What holds whatever was told to whom."""
        fewest = self.study.fewest_sites - self.study.collusion
        for round_number in TURNS:
            for name in self.honest:
                if name in self.joined_as:
                    both = self.has(self.own, round_number, name) and self.has(
                        self.repair, round_number, name
                    )
                    assert not both, f"both secrets of {name} are known"
            for group in self.sums_shown(round_number):
                assert len(group) >= fewest, f"the sum of {sorted(group)} is known"


class Stories(RuleBasedStateMachine):
    """Every site may be told its own story, at every step, in any order."""

    def __init__(self):
        super().__init__()
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="eigenveil-stories-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.enter_context(silence())
        self.adversary = None

    def teardown(self):
        self._stack.close()

    @initialize(shape=st.sampled_from([*SHAPES, RING, RING]), data=st.data())
    def begin(self, shape, data):
        """Sites agree on keys; a few are told that somebody else was lost, or has not shared."""
        self.adversary = Adversary(shape, self.folder)
        for notify, everybody in (
            (self.adversary.tell_keys, ()),
            (self.adversary.tell_shares, self.adversary.names),
        ):
            lied_to = self.names_drawn(data, data.draw(st.sampled_from([0, 0, 1, 3])))
            for name in self.adversary.names:
                left_out = set()
                if name in lied_to:
                    left_out = self.names_drawn(data, self.adversary.study.dropouts) - {name}
                if not everybody:
                    notify(name, tuple(left_out))
                elif name in self.adversary.joined_as:
                    notify(name, set(everybody) - left_out)

    def names_drawn(self, data, most):
        """So many of the sites, at the most."""
        return data.draw(st.sets(st.sampled_from(self.adversary.names), max_size=most))

    @rule(
        data=st.data(), round_number=st.sampled_from((1, *TURNS)), groups=st.sampled_from([1, 3, 3])
    )
    def play(self, data, round_number, groups):
        """A round, as an aggregator would go about it that lies here and there."""
        self.query(data, round_number)
        self.tell_of_survivors(data, round_number, groups)
        self.unmask(data, round_number)

    @rule(data=st.data(), round_number=st.sampled_from(TURNS))
    def query(self, data, round_number):
        """Some are asked something else, or nothing."""
        apart = self.names_drawn(data, data.draw(st.sampled_from([0, 0, 1, 3])))
        another = data.draw(st.booleans())
        for name in self.adversary.names:
            if another or name not in apart:
                self.adversary.tell_round(name, round_number, another=name in apart)

    @rule(data=st.data(), round_number=st.sampled_from(TURNS), groups=st.sampled_from([1, 3, 3]))
    def tell_of_survivors(self, data, round_number, groups):
        """Neighbourhoods are told of other survivors, each as few as may be."""
        dropouts, names = self.adversary.study.dropouts, self.adversary.names
        size = -(-len(names) // groups)
        lost = [
            data.draw(st.sets(st.sampled_from(names[start : start + size]), max_size=dropouts))
            for start in range(0, len(names), size)
        ]
        if data.draw(st.booleans()):  # as on a ring, of every three the one in the middle
            size, lost = 3, [set(names[start + 1 : start + 2]) for start in range(0, len(names), 3)]
        for place, name in enumerate(names):
            self.adversary.tell_survivors(name, round_number, set(names) - lost[place // size])

    @rule(data=st.data(), round_number=st.sampled_from(TURNS))
    def tell_one(self, data, round_number):
        """One site is told of survivors of any number."""
        (name,) = data.draw(st.sets(st.sampled_from(self.adversary.names), min_size=1, max_size=1))
        survivors = self.names_drawn(data, len(self.adversary.names))
        self.adversary.tell_survivors(name, round_number, survivors)

    @rule(data=st.data(), round_number=st.sampled_from(TURNS))
    def unmask(self, data, round_number):
        """With every signature there is, and some that are none."""
        extra = self.names_drawn(data, data.draw(st.sampled_from([0, 2])))
        for name in self.adversary.names:
            self.adversary.tell_unmask(name, round_number, extra)

    @precondition(lambda self: self.adversary is not None)
    @rule(data=st.data())
    def replay(self, data):
        """Something that was asked of any site reaches any site again."""
        _, request = data.draw(st.sampled_from(self.adversary.spec or [("s0", b"x")]))
        if request != b"x":
            self.adversary.send(data.draw(st.sampled_from(self.adversary.names)), request)

    @invariant()
    def nobody_is_exposed(self):
        if self.adversary is not None:
            self.adversary.check()


Stories.TestCase.settings = settings(max_examples=6, stateful_step_count=5)
TestStories = Stories.TestCase


# -- the attacks themselves, and that each works once what holds it off is removed


def every_third_is_lost_to_its_neighbours(folder):
    """The attack on a ring: s1, s4 and s7 are lost to their two neighbours, to others nobody is."""
    adversary = Adversary((9, 1, 0, 2), folder)
    for name in adversary.names:
        adversary.tell_keys(name)
    for name in adversary.names:
        adversary.tell_shares(name, adversary.names)
    for name in adversary.names:
        adversary.tell_round(name, 1)
    for place, name in enumerate(adversary.names):
        gone = adversary.names[place // 3 * 3 + 1]
        if name != gone:  # who is lost to its neighbours is asked nothing more
            adversary.tell_survivors(name, 1, set(adversary.names) - {gone})
    for name in adversary.names:
        adversary.tell_unmask(name, 1)
    return adversary


def unmasked(adversary):
    """What six messages add up to, once the masks that shares give away are taken off."""
    names, round_number = adversary.names, 1
    left = [name for name in names if name not in ("s1", "s4", "s7")]
    near = {name: tuple(sorted(adversary.near(name))) for name in names}
    packets = {
        name: [row.tobytes() for row in adversary.sent["shares"][name].arrays["packets"]]
        for name in names
    }
    work = MaskRecovery(
        adversary.context,
        adversary.facts[round_number, "s0"],
        Agreement(near, near, near, packets),
        arrived=left,
        collusion=0,
    )
    for name in left:
        work.take(name, adversary.sent["unmask 1"][name].read(payloads.UnmaskReply))
    sums = [adversary.sent["round 1"][name].arrays["sum 0"] for name in left]
    total = np.sum(sums, axis=0, dtype=np.uint64)
    return total - work.leftover([Part(total.size)]), left


def nothing_checked(said, signers, signatures, verify, needed):
    """The step, removed."""


def test_no_neighbourhood_can_lose_a_site_of_its_own(tmp_path):
    with silence():
        adversary = every_third_is_lost_to_its_neighbours(tmp_path)
    assert not adversary.own
    assert not adversary.repair
    adversary.check()


def test_without_the_step_two_sites_alone_are_summed(tmp_path):
    """With the check of signatures removed the attack works, on real messages and in this model."""
    with silence(), mock.patch.object(site, "check_signatures", nothing_checked):
        adversary = every_third_is_lost_to_its_neighbours(tmp_path)
        query = ask_of(adversary)
    total, left = unmasked(adversary)
    tables = {name: adversary.house.rows[name] for name in left}
    assert np.array_equal(total, exact(adversary.study, query, tables))
    assert {frozenset(group) for group in adversary.sums_shown(1)} == {
        frozenset({"s8", "s0"}),
        frozenset({"s2", "s3"}),
        frozenset({"s5", "s6"}),
    }
    with pytest.raises(AssertionError, match="the sum of"):
        adversary.check()


def cut_in_two(folder):
    """Before the first round: sites on either side of a cut are told that the others are lost."""
    adversary = Adversary((8, 2, 0, 4), folder)
    for name in adversary.names:
        adversary.tell_keys(name)
    halves = adversary.names[:4], adversary.names[4:]
    for half in halves:
        for name in half:
            near = set(neighbours(name, adversary.names, 4))
            adversary.tell_shares(name, set(adversary.names) - (near - set(half)))
    for name in adversary.names:
        adversary.tell_round(name, 1)
    for name in adversary.names:
        adversary.tell_survivors(name, 1, adversary.members(adversary.state(name).members))
    for name in adversary.names:
        adversary.tell_unmask(name, 1)
    return adversary


def test_sites_cannot_be_cut_in_two_by_lies_about_who_has_shared(tmp_path):
    with silence():
        adversary = cut_in_two(tmp_path)
    assert not adversary.own
    adversary.check()


def test_without_the_list_in_the_keys_either_half_is_summed(tmp_path):
    """Nor would signatures of survivors alone do: the list of members is in the keys of masks."""

    def same(state, round_number, request_digest):
        return RoundFacts(round_number, "", "", "")  # the first question has the list, too

    with (
        silence(),
        mock.patch.object(site, "check_signatures", nothing_checked),
        mock.patch.object(State, "facts", same),
    ):
        adversary = cut_in_two(tmp_path)
    query = ask_of(adversary)
    masked = {n: adversary.sent["round 1"][n].arrays["sum 0"] for n in adversary.names}
    for name in adversary.names:
        masked[name] = masked[name] - own_mask(adversary, name, masked[name].size)
    for half in (adversary.names[:4], adversary.names[4:]):
        tables = {name: adversary.house.rows[name] for name in half}
        total = np.sum([masked[name] for name in half], axis=0, dtype=np.uint64)
        assert np.array_equal(total, exact(adversary.study, query, tables))


def own_mask(adversary, name, size):
    """The own mask of a site, from the shares that its neighbours have given."""
    holders = [*sorted(adversary.near(name)), name]
    shares = {
        holders.index(each): bytes.fromhex(
            adversary.sent["unmask 1"][each].read(payloads.UnmaskReply).own[name]
        )
        for each in adversary.own[1, name]
    }
    needed = threshold(len(holders), adversary.study.collusion)
    key = self_key(join_secret(shares, threshold=needed), adversary.context, 1)
    return MODULAR.expanded([(key, True)], [Part(size)])


def ask_of(adversary):
    """The sum that the first round asks for."""
    with tempfile.TemporaryDirectory() as folder:
        queries, _ = run_study(Quick(adversary.study, Path(folder))).rounds[0]
    return queries[0]
