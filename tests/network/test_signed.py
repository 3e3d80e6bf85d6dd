"""Words that a lead signs hold for the run and the terms that they are about."""

import pytest

from eigenveil.errors import ProtocolError
from eigenveil.network.signed import check_abort, check_order, signed_abort, signed_order
from kit_tools import registrar

RUN = {"study": "a" * 64, "session": "b" * 24}
ORDER = RUN | {"timeout": 60.0}


@pytest.fixture(scope="module")
def parties():
    made = registrar()
    return made.identity("lead@here", role="lead"), made.identity("aggregator")


@pytest.mark.parametrize(
    ("sign", "check", "terms"),
    [(signed_order, check_order, ORDER), (signed_abort, check_abort, RUN)],
)
def test_a_word_is_about_one_run_and_its_terms(parties, sign, check, terms):
    lead, aggregator = parties
    word = sign(lead, "lead@here", **terms)
    check(word, aggregator, "lead@here", **terms)
    for name, value in terms.items():
        other = 61.0 if name == "timeout" else "c" * len(value)
        with pytest.raises(ProtocolError) as refused:
            check(word, aggregator, "lead@here", **(terms | {name: other}))
        assert refused.value.code == "other-session"
