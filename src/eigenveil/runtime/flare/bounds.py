"""How large a message of a study can be: what is larger is refused before it is read."""

from __future__ import annotations

from eigenveil.federation import bodies
from eigenveil.federation.study import Study

# Bytes beside numbers: names and codes of a message, and keys, certificates and shares of a party.
_SMALL = 1 << 21
_EACH_PARTY = 1 << 13
# A column's name in a join, and masks that the helper seals at once.
_LONG_NAME = 256
_HELD = 1 << 26
# Of any other message that FLARE's services send each other: jobs, registrations, results.
MOST_OF_FLARE = 1 << 23


def largest_message(study: Study) -> int:
    """Most bytes of a question or an answer of this study, generously."""
    plan = study.plan(study.width, None)
    columns = max(plan.sketch_columns, plan.n_components)
    numbers = bodies.MOST_ASKS * plan.features * (columns + 1) + plan.released_values()
    held = _HELD if study.masks == "helper" else 0
    beside = _SMALL + _EACH_PARTY * len(study.sites) + _LONG_NAME * study.width
    return beside + 8 * numbers + held
