"""Two processes of a site: what either remembers counts only while the ledger says the same."""

import pytest
from roles_tools import Consortium, Wire, study_of

from eigenveil.federated.running import carry
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.terms import settle


@pytest.mark.parametrize("dropouts", [0, 1])
def test_processes_of_a_site_that_take_turns_answer_as_one(dropouts, tmp_path):
    """Each has last seen the session as it was before the other went on with it."""
    study = study_of(4, dropouts=dropouts, row_bound=None)
    consortium = Consortium(study, tmp_path)
    processes = [consortium.site("s0"), consortium.site("s0")]

    def fate(name, step, request, party):
        if name != "s0":
            return ...
        processes.reverse()
        return processes[0].handle(request)

    outcome = carry(Aggregator(settle(study), session="s").run(), Wire(consortium.parties, fate))
    assert not outcome.missing
    assert outcome.taking_part == 4
    assert [each.last_error for each in processes] == [None, None]
    assert consortium.charged("s0", "s") == consortium.charged("s1", "s")
    assert consortium.check_books("s0").reserved == consortium.check_books("s1").reserved
