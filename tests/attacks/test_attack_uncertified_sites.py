"""An aggregator that makes a site up, whom no registrar admitted, for others to hide among."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import Consortium, run_study, study_of

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.public_key import KeySigner
from eigenveil.federation.secagg.consistency import neighbours
from eigenveil.federation.secagg.keys import Context
from federation_tools import identities

RING = 9  # sites, of which each makes masks with four
STUDIES = {
    "three": {"sites": 3},
    "three, one may be lost": {"sites": 3, "dropouts": 1},
    "a ring": {"sites": RING, "neighbours": 4},
    "a ring, one may be lost": {"sites": RING, "neighbours": 4, "dropouts": 1},
    "pairwise": {"sites": 3, "masks": "pairwise"},
}
LIES = (
    "no signature",
    "another federation, called the same",
    "signed by itself",
    "another site's",
    "a helper's",
    "an aggregator's",
    "a lead's",
    "another study",
    "another session",
    "another list",
    "keys of another session",
)


@pytest.fixture(scope="module")
def known():
    return identities(tuple(f"s{i}" for i in range(RING)))


@pytest.fixture(scope="module")
def strangers():
    return identities(tuple(f"s{i}" for i in range(RING + 1)))


class MadeUp:
    """Signs a made-up site's keys as well as it can be done."""

    def __init__(self, lie, name, known, strangers):
        self._lie, own = lie, known[name]
        stranger = strangers[name].signer
        signers = {
            "another federation, called the same": stranger,
            "signed by itself": KeySigner.new(),
            "another site's": known["s1"].signer,
            "a helper's": known[HELPER].signer,
            "an aggregator's": known[AGGREGATOR].signer,
            "a lead's": known["lead"].signer,
        }
        members = strangers[name].members if lie == "another list" else own.members
        self._identity = replace(own, signer=signers.get(lie, own.signer), members=members)
        self.members = own.members

    def signed(self, keys, context, name):
        """What a site's own identity would sign, or not quite."""
        if self._lie == "no signature":
            return keys
        if self._lie == "another study":
            context = Context("0" * 64, context.session, context.members)
        if self._lie == "another session":
            context = Context(context.study, "0" * 24, context.members)
        if self._lie == "keys of another session":
            other = keys.model_copy(update={"sealing": keys.sealing[::-1]})
            proof = self._identity.signed(other, context, name).proof
            return keys.model_copy(update={"proof": proof})
        return self._identity.signed(keys, context, name)

    def check(self, *rest):
        """It takes everybody as they come."""

    def sign(self, text):
        return self._identity.sign(text)

    def verify(self, *rest, **named):
        """The same."""


def sites_with(made_up, fields, folder, lie, known, strangers):
    fields = dict(fields)
    study = study_of(fields.pop("sites"), **fields)
    who = known | {made_up: MadeUp(lie, made_up, known, strangers)}
    return Consortium(study, folder, identities=who)


def refusers(study, made_up):
    """Sites that would agree on keys with it."""
    terms, names = settle(study), study.names
    return {name for name in names if made_up in terms.partners(name, names)}


@pytest.mark.parametrize(
    ("which", "lie"),
    [("three, one may be lost", lie) for lie in LIES]
    + [
        (which, lie)
        for which in STUDIES
        for lie in LIES[:2]
        if "lost" not in which or "ring" in which
    ],
)
def test_nobody_hides_among_made_up_sites(which, lie, tmp_path, known, strangers):
    made_up = "s2"
    consortium = sites_with(made_up, STUDIES[which], tmp_path, lie, known, strangers)
    with pytest.raises(ProtocolError) as error:
        run_study(consortium, session="s")
    assert error.value.code == "too-few-sites"
    who = refusers(consortium.study, made_up)
    assert who
    for name in set(consortium.study.names) - {made_up}:
        problem = consortium.parties[name].last_error
        assert (problem is not None) == (name in who), name
        if name in who:
            assert problem.code == "bad-identity"
            assert problem.message.startswith(f"{made_up}: ")
        assert not consortium.charged(name, "s")


def test_who_is_certified_is_not_refused(tmp_path, known):
    """The same studies without a lie, so that the refusals above are about it."""
    for number, fields in enumerate(STUDIES.values()):
        fields = dict(fields)
        folder = tmp_path / str(number)
        folder.mkdir()
        consortium = Consortium(study_of(fields.pop("sites"), **fields), folder, identities=known)
        assert not run_study(consortium).outcome.missing


@pytest.mark.parametrize("collusion", [0, 1, 2])
@pytest.mark.parametrize("degree", [4, 6])
def test_made_up_sites_cannot_stand_behind_colluding_ones(collusion, degree):
    """With no dropouts a site looks at its neighbours alone: fewer collude than would be a wall."""
    study = study_of(RING, collusion=collusion, neighbours=degree)
    names = list(study.names)
    for colluding in map(set, itertools.combinations(names, collusion)):
        honest = next(name for name in names if name not in colluding)
        seen, edge = {honest}, [honest]
        while edge:
            empty = set(neighbours(edge.pop(), names, study.degree)) - seen - colluding
            seen |= empty
            edge += empty
        assert seen == set(names) - colluding
