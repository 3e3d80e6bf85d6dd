"""The cases of many parties: every adversary that this package makes a claim about."""

from __future__ import annotations

from eigenveil.audit.case import Case
from eigenveil.audit.releases import Make, Rows
from eigenveil.audit.sound import AXIS, U, V, energy, row_sum, second_moment
from eigenveil.audit.views import StreamAttack, TreeAttack, ViewAttack
from eigenveil.privacy.mechanisms import MECHANISMS, Norm
from eigenveil.privacy.tree_views import TreeRun
from eigenveil.privacy.views import Federation, MaskKind

_SITES = 4
_PROTOCOL = "shares of the noise, masks and sums modulo 2**64, without envelopes and transport"
_SUM = "the sum, along the direction in which the neighbours differ (likelihood ratio)"
_WEIGHED = "all messages together, each weighed by the known covariance of masks and noise"


def _federation(masks: MaskKind, collusion: int = 0) -> Federation:
    return Federation(
        protocol="cape", masks=masks, sites=_SITES, taking_part=_SITES, collusion=collusion
    )


def _of(view: str, masks: MaskKind, collusion: int = 0) -> ViewAttack:
    return ViewAttack(_federation(masks, collusion), view, row_sum, "gaussian", [U], [])


# Of each norm, a sum and neighbours that move it as far as they can.
_MOVED: dict[Norm, tuple[Make, Rows, Rows]] = {
    "l1": (energy, [V, AXIS], [V]),
    "l2": (row_sum, [U], []),
    "nuclear": (second_moment, [U], []),
}

VIEWS: dict[str, ViewAttack] = {
    "federated-modular-outsider": _of("outsider", "modular"),
    "federated-modular-site": _of("site", "modular"),
    "federated-modular-aggregator": _of("aggregator", "modular"),
    "federated-modular-aggregator-and-site": _of("aggregator with 1 sites", "modular", 1),
    "federated-pairwise-aggregator": _of("aggregator", "pairwise"),
    "federated-helper-aggregator": _of("aggregator", "helper"),
    "federated-helper-aggregator-and-site": _of("aggregator with 1 sites", "helper", 1),
    "federated-helper-and-site": _of("helper with 1 sites", "helper", 1),
    **{
        f"federated-{name}-aggregator": ViewAttack(
            _federation("modular"), "aggregator", make, name, rows, other
        )
        for name, mechanism in sorted(MECHANISMS.items())
        if mechanism.pure and mechanism.adds_up
        for make, rows, other in (_MOVED[mechanism.norm],)
    },
}
_RUN = TreeRun(leaves=8, arrived=8, least=(1, 4, 8))
TREES: dict[str, TreeAttack] = {
    "tree-outsider": TreeAttack(_RUN, 6, "outsider", row_sum, [U], []),
    "tree-aggregator": TreeAttack(_RUN, 6, "aggregator at level 1", row_sum, [U], []),
}
STREAMS: dict[str, StreamAttack] = {
    "stream-3-blocks": StreamAttack(3, row_sum, U),
    "stream-32-blocks": StreamAttack(32, row_sum, U),
}


def many_party_cases() -> list[Case]:
    """A case for each."""
    cases = [_view_case(name, attack) for name, attack in VIEWS.items()]
    for name, tree in TREES.items():
        cases.append(
            Case(
                name=name,
                mechanism="tree",
                title=f"tree of 8 leaves, {tree.view}",
                group="sound",
                adjacency="add-remove",
                view=tree.view,
                test=_SUM,
                sampling="each leaf's sum and share of the noise, added up",
                claim=tree.claim(),
                sample=tree.sample,
            )
        )
    for name, stream in STREAMS.items():
        cases.append(
            Case(
                name=name,
                mechanism="stream",
                title=f"stream of {stream.blocks} blocks",
                group="sound",
                adjacency="add-remove",
                test="all prefixes together, as the releases C g + z that they stand for, along "
                "what the row moves of them (likelihood ratio)",
                sampling="PrefixSum, many streams side by side",
                claim=stream.claim(),
                sample=stream.sample,
            )
        )
    return cases


def _view_case(name: str, attack: ViewAttack) -> Case:
    masks, mechanism = attack.federation.masks, MECHANISMS[attack.kind]
    weighed = not mechanism.pure and masks != "modular" and attack.view.startswith("aggregator")
    view = attack.view.replace("1 sites", "1 site")
    return Case(
        name=name,
        mechanism="federated",
        title=f"{_SITES} sites, {attack.kind}, {masks} masks, {view}",
        group="sound",
        adjacency="add-remove",
        view=attack.view,
        test=_WEIGHED if weighed else mechanism.test if mechanism.pure else _SUM,
        sampling=_PROTOCOL,
        claim=attack.claim(),
        sample=attack.sample,
        share=1.0 if mechanism.audited == 1.0 else 0.1,
    )
