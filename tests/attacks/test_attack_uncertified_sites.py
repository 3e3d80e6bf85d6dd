"""An aggregator that makes a site up, whom nobody's registrar certified, for others to hide among.

It would have found a site that makes masks with such a one, or counts it among those whose
signatures say who took part: the sum of the others, with as little noise as fewer sites have.

The made-up site follows the protocol to the letter; all that it lacks is a certificate of the
registrar for that name and role, and a signature of its keys for this study and session.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from roles_tools import run_study, study_of
from test_identity import DAY, NOW, Known, Registrar

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.secagg.keys import Context
from eigenveil.federation.secagg.masks import neighbours

RING = 9  # sites, of which each makes masks with four
STUDIES = {
    "three": {"sites": 3},
    "three, one may be lost": {"sites": 3, "dropouts": 1},
    "a ring": {"sites": RING, "neighbours": 4},
    "a ring, one may be lost": {"sites": RING, "neighbours": 4, "dropouts": 1},
    "pairwise": {"sites": 3, "masks": "pairwise"},
}
LIES = (
    "no certificate",
    "another registrar",
    "another registrar, called the same",
    "signed by itself",
    "another site's",
    "a helper's",
    "an aggregator's",
    "a lead's",
    "out of date",
    "not yet",
    "another study",
    "another session",
    "keys of another session",
)


@pytest.fixture(scope="module")
def registrar():
    return Registrar()


@pytest.fixture(scope="module")
def certified(registrar):
    return {f"s{i}": registrar.identity(f"s{i}") for i in range(RING)} | {
        HELPER: registrar.identity(HELPER)
    }


class MadeUp:
    """Signs a made-up site's keys as well as it can be done."""

    def __init__(self, lie, name, registrar, certified):
        self._lie, self._other = lie, certified["s1"]
        stranger = Registrar()
        makers = {
            "another registrar": stranger.identity,
            "another registrar, called the same": stranger.identity,
            "another site's": lambda name: self._other,
            "a helper's": lambda name: registrar.identity(name, role="helper"),
            "an aggregator's": lambda name: registrar.identity(name, role="aggregator"),
            "a lead's": lambda name: registrar.identity(name, role="lead"),
            "out of date": lambda name: registrar.identity(
                name, start=NOW - 2 * DAY, end=NOW - DAY
            ),
            "not yet": lambda name: registrar.identity(name, start=NOW + DAY, end=NOW + 2 * DAY),
        }
        self._identity = makers.get(lie, registrar.identity)(name)
        if lie == "signed by itself":
            self._identity = replace(self._identity, certificate=stranger.root)
        self._kept = None

    def signed(self, keys, context, name):
        """What a site's own identity would sign, or not quite."""
        if self._lie == "no certificate":
            return keys
        if self._lie == "another study":
            context = Context("0" * 64, context.session)
        if self._lie == "another session":
            context = Context(context.study, "0" * 24)
        if self._lie == "keys of another session":
            other = keys.model_copy(update={"channel": keys.rounds[0], "signing": keys.channel})
            proof = self._identity.signed(other, context, name).proof
            return keys.model_copy(update={"proof": proof})
        return self._identity.signed(keys, context, name)

    def check(self, *rest):
        """It takes everybody as they come."""


def sites_with(made_up, fields, folder, certified, lie, registrar):
    fields = dict(fields)
    study = study_of(fields.pop("sites"), **fields)
    identities = dict(certified)
    identities[made_up] = MadeUp(lie, made_up, registrar, certified)
    return Known(study, folder, identities)


def refusers(study, made_up):
    """Sites that would make masks with it, or count its signature."""
    names = list(study.names)
    if study.dropouts:
        return set(names) - {made_up}
    return {name for name in names if made_up in neighbours(name, names, study.degree)}


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
def test_nobody_hides_among_made_up_sites(which, lie, tmp_path, registrar, certified):
    made_up = "s2"
    consortium = sites_with(made_up, STUDIES[which], tmp_path, certified, lie, registrar)
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


def test_who_is_certified_is_not_refused(tmp_path, certified):
    """The same studies without a lie, so that the refusals above are about it."""
    for number, fields in enumerate(STUDIES.values()):
        fields = dict(fields)
        folder = tmp_path / str(number)
        folder.mkdir()
        consortium = Known(study_of(fields.pop("sites"), **fields), folder, certified)
        assert not run_study(consortium).outcome.missing


def test_every_site_looks_at_every_signer(tmp_path, registrar, certified, monkeypatch):
    """Without that look a made-up site, far off on the ring, would be counted by whom it tells."""
    series_style = Site._check_identities

    def only_neighbours(site, message, body, signers):
        del signers
        return series_style(site, message, body, {})

    monkeypatch.setattr(Site, "_check_identities", only_neighbours)
    fields = STUDIES["a ring, one may be lost"]
    consortium = sites_with("s2", fields, tmp_path, certified, "no certificate", registrar)
    with pytest.raises(ProtocolError):
        run_study(consortium, session="s")
    near = neighbours("s2", list(consortium.study.names), consortium.study.degree)
    troubled = {
        name
        for name in consortium.study.names
        if name != "s2" and consortium.parties[name].last_error is not None
    }
    assert troubled == set(near)  # and nobody else, which the test above would see


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
