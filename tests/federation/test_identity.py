"""Keys are taken only from the parties that the study names, whoever passes them on."""

from dataclasses import replace

import pytest
from roles_tools import Consortium, run_study, study_of

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, Message, decode, encode
from eigenveil.federation.sealing import SealingKey
from eigenveil.federation.secagg.keys import Context
from eigenveil.network.folder import identity_of
from eigenveil.network.registrar import Registrar
from federation_tools import identities, make_federation
from federation_tools import study_of as federation_study

LIMIT = 1 << 24
SITES = ("s0", "s1", "s2")
CONTEXT = Context("study", "session")


@pytest.fixture(scope="module")
def known():
    return identities(SITES)


@pytest.fixture(scope="module")
def strangers():
    """Another federation, whose parties are called the same."""
    return identities((*SITES, "s3"))


def keys():
    return payloads.PublicKeys(sealing=SealingKey.generate().public.hex())


def refused(call, *given):
    with pytest.raises(ProtocolError) as caught:
        call(*given)
    return caught.value.code


@pytest.mark.parametrize(
    "fields", [{}, {"dropouts": 1}, {"masks": "pairwise"}, {"masks": "helper"}], ids=str
)
def test_a_study_among_known_parties_is_the_same(fields, tmp_path, known):
    consortium = Consortium(study_of(3, **fields), tmp_path, identities=known)
    outcome = run_study(consortium, identity=known[AGGREGATOR]).outcome
    assert outcome.taking_part == 3
    assert not outcome.missing
    assert len(outcome.certificate.signatures.by) == 4


def of_another(step, victim, change):
    """A fate that changes the keys which a party is shown in a step."""

    def fate(name, at, request, party):
        if name != victim or not at.startswith(step):
            return ...
        message = decode(request, sender=AGGREGATOR, limit=LIMIT)
        changed = change(message)
        told = Message(at, message.study, message.session, AGGREGATOR, changed, message.arrays)
        return party.handle(encode(told))

    return fate


FORGERS = ["nobody", "aggregator", "another site", "another federation"]


def forged(forger, known, strangers, message, name):
    """Keys that are said to be ``name``'s, signed by whoever is not."""
    made = keys()
    signer = {
        "nobody": None,
        "aggregator": known[AGGREGATOR],
        "another site": known["s2"],
        "another federation": strangers["s1"],
    }[forger]
    if signer is None:
        return made
    context = Context(message.study, message.session, known["s0"].members.digest)
    # with the signer's own list, and as if it had the one that the victim has
    signer = replace(signer, members=known["s0"].members)
    return signer.signed(made, context, name)


@pytest.mark.parametrize("forger", FORGERS)
@pytest.mark.parametrize("masks", ["pairwise", "helper"])
def test_an_aggregator_cannot_put_keys_of_its_own_in_their_place(
    forger, masks, tmp_path, known, strangers
):
    """Of a site that another agrees with; of the helper; and of a site, to the helper."""
    study = study_of(3, masks=masks)
    swaps = [("keys", "s0", "partners", "s1" if masks == "pairwise" else HELPER)]
    if masks == "helper":
        swaps.append(("masks", HELPER, "sites", "s1"))
    for number, (step, victim, field, name) in enumerate(swaps):
        folder = tmp_path / str(number)
        folder.mkdir()
        consortium = Consortium(study, folder, identities=known)

        def change(message, field=field, name=name):
            shown = message.body[field]
            assert name in shown
            new = forged(forger, known, strangers, message, name).fields()
            return message.body | {field: {**shown, name: new}}

        with pytest.raises(ProtocolError):
            run_study(consortium, fate=of_another(step, victim, change), identity=known[AGGREGATOR])
        assert not any(
            charge.releases
            for name in SITES
            for account in consortium.ledgers[name].sessions()
            for _, charge in account.charges
            if name == victim
        )


def test_every_part_of_a_proof_counts(known, strangers):
    mine, theirs, made = known["s0"], known["s1"], keys()
    proved, proof = made.proved(), theirs.signed(made, CONTEXT, "s1").proof
    mine.check(proved, proof, CONTEXT, "s1")
    short = proof.model_copy(update={"signature": "00" * 64})
    wrong = [
        (proved, None, CONTEXT, "s1"),
        (keys().proved(), proof, CONTEXT, "s1"),
        (proved, proof, Context("study", "another"), "s1"),
        (proved, proof, Context("another", "session"), "s1"),
        (proved, proof, CONTEXT, "s2"),
        (proved, mine.signed(made, CONTEXT, "s1").proof, CONTEXT, "s1"),
        (proved, strangers["s1"].signed(made, CONTEXT, "s1").proof, CONTEXT, "s1"),
        (proved, short, CONTEXT, "s1"),
    ]
    for shown, evidence, context, name in wrong:
        assert refused(mine.check, shown, evidence, context, name) == "bad-identity"
    assert refused(mine.check, proved, proof, CONTEXT, "s9") == "not-a-member"
    assert refused(mine.check, proved, proof, CONTEXT, AGGREGATOR) == "not-a-member"


@pytest.mark.parametrize("role", ["aggregator", "lead", "helper"])
def test_a_party_of_another_role_is_no_site(role, known):
    """Whatever it calls itself: the list has one role for a name, and one key."""
    name, made = role, keys()
    proof = known[name].signed(made, CONTEXT, name).proof
    text = known[name]._text(made.proved(), CONTEXT, name)
    signature = bytes.fromhex(proof.signature)
    check = known["s0"].verify
    check(text, signature, role=role, name=name)
    for other in {"site", "aggregator", "lead", "helper"} - {role}:
        with pytest.raises(ProtocolError) as caught:
            check(text, signature, role=other, name=name)
        assert caught.value.code == "not-a-member"
    impostor = replace(known[name], name="s1", role="site")
    proof = impostor.signed(made, CONTEXT, "s1").proof
    assert refused(known["s0"].check, made.proved(), proof, CONTEXT, "s1") == "bad-identity"


def test_parties_with_different_lists_understand_nothing_of_each_other(tmp_path):
    """The list's digest is in what is signed and in every key."""
    parties = make_federation(tmp_path, federation_study())
    before = identity_of(parties["north"], parties["north"].known.digest)
    registrar = Registrar(tmp_path / "registrar")
    registrar.renew()
    parties["south"].known.adopt(registrar.file.read_bytes())
    after, made = identity_of(parties["south"]), keys()
    proof = after.signed(made, CONTEXT, "south").proof
    assert refused(before.check, made.proved(), proof, CONTEXT, "south") == "bad-identity"
    parties["north"].known.adopt(registrar.file.read_bytes())
    identity_of(parties["north"]).check(made.proved(), proof, CONTEXT, "south")
    # and whoever goes on with the list of a run is understood by those who do
    run = identity_of(parties["south"], before.members.digest)
    proof = run.signed(made, CONTEXT, "south").proof
    before.check(made.proved(), proof, CONTEXT, "south")
