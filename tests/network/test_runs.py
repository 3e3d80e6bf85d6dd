"""Studies over mailboxes: what leads, the aggregator and sites do, also where things are wrong."""

import errno
import os
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from contract import opener
from study_tools import Federation, Site, ended, finished, one_release, until

from eigenveil.app.fit import federation_parts, federation_values
from eigenveil.console.desk.results import Results
from eigenveil.errors import EigenveilError, OutputError, ProtocolError
from eigenveil.federation.study.study import make_study
from eigenveil.network import lead as lead_module
from eigenveil.network import service
from eigenveil.network.attendant import Attendant
from eigenveil.network.envelopes import Envelope
from eigenveil.network.mailbox import digest_of
from eigenveil.network.orders import sign_end, sign_order
from eigenveil.network.parties import SILENT
from eigenveil.network.service import end_run
from eigenveil.network.survey import Telling
from eigenveil.privacy.certificate import read_certificate
from eigenveil.tables.schema import Column, Schema
from federation_tools import SITES, study_of
from refusal_tools import refuses


@pytest.fixture
def federation(tmp_path):
    with Federation(tmp_path) as found:
        yield found


def test_a_lead_asks_submits_follows_and_fetches(federation):
    study = federation.study
    with federation.lead() as lead:
        assert [each.answer.state for each in lead.ask(SITES, study)] == ["approved"] * 3
        assert [each.problem for each in lead.ask(["nobody", "lead"])] == ["not-a-member"] * 2
        run = lead.submit(study)
        finished(lead, run)
        model, signed = lead.result(run, study)
        assert model.components_.shape == (2, 4)
        assert (set(signed.sites), signed.session) == (set(SITES), run)
        assert list(lead.studies()) == [run]
        again = lead.submit(study)
        ended(lead, again)
        assert set(lead.studies()) == {run, again}
    for name in SITES:
        sessions = federation.ledgers[name].sessions()
        assert [each.is_open for each in sessions] == [False, False]
        until(lambda n=name: not list(federation.parties[n].runs.glob("*")))


def test_a_run_waits_for_owners_and_begins_when_the_last_has_decided(federation):
    west = federation.sites["west"]
    west.decision = "waiting"
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        until(lambda: "approved" in lead.status(run).missing.get("west", ""))
        assert lead.status(run).state == "waiting"
        federation.stop("west")  # a site that is started again finds the question again
        west = federation.start("west")
        west.decision = "waiting"
        time.sleep(0.5)
        begun, west.decision = time.monotonic(), "approved"
        finished(lead, run)
        assert time.monotonic() - begun < 4


def test_an_owner_who_refuses_ends_a_run_that_needs_the_site(federation):
    federation.sites["west"].decision = "refused"
    with federation.lead() as lead:
        found = ended(lead, lead.submit(federation.study))
        assert (found.state, found.error.code) == ("failed", "too-few-sites")
        assert "its owner refused this study" in found.error.message
    for ledger in federation.ledgers.values():
        assert not any(each.is_open or each.charges for each in ledger.sessions())


@pytest.mark.parametrize("who", ["lead", "aggregator"])
def test_a_lead_and_the_operator_may_end_a_run(federation, who):
    federation.sites["west"].decision = "waiting"
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        until(lambda: lead.status(run).missing)
        if who == "lead":
            lead.end(run)
        else:
            end_run(federation.parties["aggregator"], run, "maintenance")
        found = ended(lead, run)
        assert (found.state, found.error.code) == ("aborted", "aborted")
        assert f"by {who}" in found.error.message
        until(lambda: not federation.attendants["west"]._undecided())
        with pytest.raises(ProtocolError, match="over already"):
            end_run(federation.parties["aggregator"], run)


def test_a_study_with_dropouts_survives_a_lost_site(tmp_path):
    """It ends well at the lead, who must accept that a site did not sign (D1)."""
    study = one_release(dropouts=1)
    with Federation(tmp_path, study) as federation:
        federation.stop_aggregator()
        federation.start_aggregator(patience=0.5)
        federation.stop("west")
        with federation.lead() as lead:
            run = lead.submit(study, timeout=5.0)
            finished(lead, run)
            with refuses("unsigned-result", kind=EigenveilError):
                lead.result(run, study)
            model, signed = lead.result(run, study, signatures=2)
            lead.fetch(run, tmp_path)
        shown = Results().result(str(tmp_path))
        assert shown["word"] == "NOT VALID"
        assert "2 of its sites have signed it, not 3: west did not" in shown["explanation"]
        assert signed.unsigned == ("west",)
        assert "west" in model.missing_
        assert list(federation_parts(model))
        assert federation_values(model)["missing"].keys() == {"west"}


def test_the_console_shows_who_signed(federation, tmp_path):
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        finished(lead, run)
        lead.fetch(run, tmp_path)
    assert "3 of 3 sites (north, south, west)" in Results().result(str(tmp_path))["signed"]
    certificate = read_certificate(tmp_path / "certificate.json")
    certificate.model_copy(update={"signatures": None}).write(tmp_path / "certificate.json")
    assert Results().result(str(tmp_path))["signed"] == "nobody has signed it"


def test_a_lead_takes_no_result_of_another_run(federation, monkeypatch):
    """Nor of another study, though the aggregator's files say so (F1)."""
    with federation.lead() as lead:
        runs = []
        for _ in range(2):
            runs.append(run := lead.submit(federation.study))
            finished(lead, run)
        first, second = runs
        results = federation.parties["aggregator"].results
        for name in ("model.npz", "certificate.json", "summary.json"):
            (results / second / name).write_bytes((results / first / name).read_bytes())
        with refuses("other-run", kind=ProtocolError):
            lead.result(second, federation.study)
        with refuses("other-run", kind=ProtocolError):
            lead.result(first, study_of())
        monkeypatch.setattr(lead_module, "MOST_BYTES", dict.fromkeys(lead_module.FILES, 1000))
        with pytest.raises(ProtocolError, match="with more than"):
            lead.result(first)


def test_a_lead_sees_its_own_studies_alone_and_cannot_fill_the_aggregator(federation, monkeypatch):
    monkeypatch.setattr(service, "MOST_OF_A_LEAD", 2)
    federation.sites["west"].decision = "waiting"
    with federation.lead() as lead:
        for _ in range(2):
            run = lead.submit(federation.study)
        with refuses("too-many-studies", kind=EigenveilError):
            lead.submit(federation.study)
        for unknown in ("0" * 24, "../x", run[:-1]):
            with refuses("no-such-run", kind=ProtocolError):
                lead.status(unknown)
        stranger = federation.service
        with pytest.raises(ProtocolError):
            stranger._end("somebody", run.encode() + sign_end(lead._identity, run))
        federation.sites["west"].decision = "approved"
        ended(lead, run)


def test_several_studies_run_at_a_time_and_those_of_one_lead_not_all(federation):
    conducting, most = [], []
    begun = federation.service._wait_for_slot

    def noted(order):
        begun(order)
        conducting.append(order.session)
        most.append(federation.service._computing.total())

    federation.service._wait_for_slot = noted
    with federation.lead() as lead:
        studies = [one_release(name=f"study-{number}") for number in range(4)]
        runs = [lead.submit(each) for each in studies]
        assert {ended(lead, run).state for run in runs} == {"finished"}
    assert len(conducting) == 4
    assert max(most) <= service.OF_A_LEAD


def test_runs_go_on_when_every_party_is_stopped_and_started_again(tmp_path):
    with Federation(tmp_path, seed=3) as whole, whole.lead() as lead:
        run = lead.submit(whole.study)
        ended(lead, run)
        wanted, _ = lead.result(run)
    with Federation(tmp_path / "again", seed=3) as federation, federation.lead() as lead:
        federation.sites["west"].decision = "waiting"
        run = lead.submit(federation.study)
        until(lambda: lead.status(run).answered == 2)
        federation.stop_aggregator()
        for name in SITES:
            federation.stop(name)
        federation.start_aggregator()
        for name in SITES:
            federation.start(name)
        finished(lead, run)
        model, _ = lead.result(run)
    assert np.array_equal(model.components_, wanted.components_)


def test_a_helper_and_a_telling_site(tmp_path):
    study = one_release(masks="helper")
    with Federation(tmp_path, study) as federation, federation.lead() as lead:
        federation.sites["west"].telling = Telling(decisions=False)
        assert lead.ask(["west"], study)[0].answer.state == "not-told"
        run = lead.submit(study)
        finished(lead, run)
        until(lambda: not list(federation.parties["helper"].state.glob("masks*")))


def test_what_is_wrong_is_said_in_one_line(federation, tmp_path):
    with federation.lead(timeout=1.0) as lead:
        other = make_study(
            name="other", features=4, components=1, epsilon=1.0, protocol="cape",
            sites=[{"name": name} for name in ("north", "south", "nobody")],
        )  # fmt: skip
        with refuses("not-a-member", "nobody", kind=ProtocolError):
            lead.submit(other)
        federation.stop_aggregator()
        with refuses("no-aggregator", kind=ProtocolError):
            lead.studies()
    said = []
    box = federation.opens(federation.parties["north"])
    federation.stop("north")
    box.close()
    north = Site(federation.parties["north"], federation.ledgers["north"], said=said)
    stop = threading.Event()
    threading.Timer(0.6, stop.set).start()

    class Away:
        def take(self, wait, known=()):
            raise ProtocolError.relayed("Nobody is there.", code="no-mailbox")

        put = take

    Attendant(north, Away()).serve(stop)
    assert [line for line in said if "Nobody is there." in line] == said[-1:]


def test_an_expired_list_begins_no_run_and_everybody_is_told_once(federation, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=91)

    with federation.lead(timeout=10.0) as lead:
        assert not lead.studies()
        order = sign_order(lead._identity, federation.study, session="5e" * 12, timeout=60)
        monkeypatch.setattr("eigenveil.network.members.datetime", Later)
        with refuses("expired-list", kind=ProtocolError) as caught:
            lead.submit(federation.study)
        assert "expire" in str(caught.value)
        monkeypatch.undo()
        box = federation.opens(federation.parties["lead"])
        post = lead._at.post
        query = Envelope("", "", "submit", "lead", "aggregator", bytes(16) + order.line)
        sealed = post.seal(query, bound=1 << 20)[0]
        monkeypatch.setattr("eigenveil.network.members.datetime", Later)
        box.put("aggregator", sealed)
        until(lambda: any("expired" in line for line in federation.said))
        assert not lead._at.mailbox.take(0.5, lead.desk.left)


def test_a_full_disk_is_told_of_once_and_nothing_is_charged_until_there_is_room(federation):
    north, full = federation.sites["north"], [True]
    post = federation.attendants["north"].at.post
    seal = post.seal

    def no_room(envelope, *, bound):
        if full and envelope.step == "keys":
            raise OutputError.relayed("keys: No space left on device.", code="cannot-write")
        return seal(envelope, bound=bound)

    post.seal = no_room
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        until(lambda: any("No space left" in line for line in north.said))
        time.sleep(0.5)
        assert sum("No space left" in line for line in north.said) == 1
        assert not any(each.charges for each in federation.ledgers["north"].sessions())
        full.clear()
        assert ended(lead, run).state == "finished"


def test_a_party_that_was_stopped_does_nothing_any_more(federation):
    """Its folder is free for another process once it has ended."""
    north, working, left = federation.sites["north"], threading.Event(), threading.Event()
    answer = north.answer

    def slow(query):
        working.set()
        time.sleep(0.3)
        found = answer(query)
        left.set()
        return found

    north.answer = slow
    with federation.lead() as lead:
        lead.submit(federation.study)
        assert working.wait(30)
        federation.stop("north")
        assert left.is_set()


def test_a_share_that_is_full_is_said_and_the_study_goes_on_when_there_is_room(
    tmp_path, monkeypatch
):
    real, full = os.rename, threading.Event()

    def rename(old, new, **more):
        # what the sites write: the lead and the aggregator find room
        if full.is_set() and threading.current_thread().name.startswith("eigenveil_"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(old, new, **more)

    monkeypatch.setattr(os, "rename", rename)
    (tmp_path / "share").mkdir()
    opens = opener(f"folder:{tmp_path / 'share'}")
    with Federation(tmp_path, opens=opens) as federation, federation.lead() as lead:
        first = lead.submit(federation.study)
        assert ended(lead, first).state == "finished"
        full.set()
        second = lead.submit(federation.study)
        time.sleep(0.4)
        assert not lead.status(second).is_over
        full.clear()
        assert (found := ended(lead, second)).state == "finished", found.error
    for ledger in federation.ledgers.values():
        spent = [(len(each.charges), each.spent()) for each in ledger.sessions()]
        assert spent == [spent[0]] * 2


def test_a_party_that_missed_the_end_hears_of_it_when_the_aggregator_starts(federation):
    federation.sites["west"].decision = "waiting"
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        until(lambda: lead.status(run).answered == 2)
        federation.stop("north")
        lead.end(run)
        assert ended(lead, run).state == "aborted"
        federation.stop_aggregator()
        box = federation.opens(federation.parties["north"])
        box.forget([digest_of(data) for data in box.take(0.0)])  # what was said is lost
        federation.start("north")
        federation.start_aggregator()
        until(lambda: run in federation.sites["north"].runs.over)
        until(lambda: not any(each.is_open for each in federation.ledgers["north"].sessions()))


def test_a_site_that_hears_of_a_run_that_is_over_does_not_admit_it_again(federation):
    with federation.lead() as lead:
        run = lead.submit(federation.study)
        assert ended(lead, run).state == "finished"
        ended_file = federation.parties["north"].ended_file
        until(lambda: ended_file.exists() and run in ended_file.read_text())
        again = Site(federation.parties["north"], federation.ledgers["north"])
        assert run in again.runs.over
        assert again.runs.find(run) is None


@pytest.mark.parametrize("late", [False, True])
def test_a_run_of_which_nothing_came_for_a_month_is_over_and_its_keys_are_erased(federation, late):
    federation.sites["west"].decision = "waiting"
    with federation.lead() as lead:
        run = lead.submit(federation.study, timeout=60.0)
        until(lambda: lead.status(run).answered == 2)
    federation.stop("north")
    north, ledger = federation.parties["north"], federation.ledgers["north"]
    heard = time.time() - SILENT - (61.0 if late else 1.0)
    os.utime(north.runs / f"{run}.json", (heard, heard))
    party = federation.start("north")
    if late:
        until(lambda: run in north.ended_file.read_text() if north.ended_file.exists() else False)
        until(lambda: not list(north.runs.glob("*")))  # what is noted last
        assert not any(each.is_open for each in ledger.sessions())
    else:
        until(lambda: federation.attendants["north"]._swept)
        time.sleep(0.2)
        assert run not in party.runs.over
    assert (north.state / "sessions" / run).exists() != late
    assert bool(list(north.runs.glob("*"))) != late


def test_clocks_that_differ_are_told_of_once_on_either_side(federation, monkeypatch):
    from eigenveil.network.endpoint import Post

    north = federation.sites["north"]
    seal = Post.seal

    def ahead(post, envelope, *, bound):
        shown = replace(envelope, sent=time.time() + 3600)
        return seal(
            post, shown if envelope.sender in ("aggregator", "west") else envelope, bound=bound
        )

    monkeypatch.setattr(Post, "seal", ahead)
    with federation.lead() as lead:
        assert ended(lead, lead.submit(federation.study)).state == "finished"
    told = [line for line in north.said if "60 minutes ahead" in line]
    assert len(told) == 1
    assert sum("that of west is 60 minutes ahead" in line for line in federation.said) == 1


def test_what_a_lead_is_told_before_a_study(federation):
    """What the owner decided about exactly this study; who has not is asked, up to a number."""
    study, north = federation.study, federation.sites["north"]
    north.decision = "waiting"
    only = one_release(name="alone", sites=[{"name": "south"}, {"name": "west"}])
    schema = Schema(tuple(Column(f"x{n}", "number", range=(0.0, 1.0)) for n in range(4)))
    with federation.lead() as lead:

        def state(about):
            return lead.ask(["north"], about)[0].answer.state

        assert [state(study), state(study), state(None), state(only)] == [
            "new", "waiting", "not-asked", "no-part",
        ]  # fmt: skip
        assert "waits for approval" in north.said[-1]
        for number in range(31):
            assert state(one_release(name=f"other-{number}")) == "new"
        assert state(one_release(name="too-many")) == "full"
        for decision in ("revoked", "used", "expired", "refused", "approved"):
            north.decision = decision
            assert state(study) == decision
        north.telling = Telling(decisions=False, schema=schema)
        (report,) = lead.ask(["north"], study)
        assert report.answer.state == "not-told"
        assert report.answer.schema_told == schema
        federation.stop("north")
        (report,) = lead.ask(["north"], study, timeout=0.5)
        assert report.problem == "not-connected"
    assert not any(ledger.sessions() for ledger in federation.ledgers.values())
