"""The noise helper: a round's masks are fixed, and only those a study can have are drawn."""

import math

import numpy as np
import pytest
from roles_tools import (
    LIMIT,
    NOTHING,
    Consortium,
    at,
    changed,
    query,
    refusal,
    request_of,
    spent,
    study_of,
)

from eigenveil.federation.ledger.ledger import SessionKey
from eigenveil.federation.masks import Part, helpers_bytes
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER, Message, decode, encode
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.sealing import SealingKey
from eigenveil.federation.secagg.client import SecaggClient, State
from eigenveil.privacy.statistics import tensor_size

ANOTHER = {"sealing": SealingKey(bytes(96)).public.hex(), "proof": None}


def masked(folder):
    consortium = Consortium(study_of(3, masks="helper"), folder)
    call = at(consortium, "masks 1", session="s")
    consortium.asked = call.payloads[HELPER]
    return consortium.parties[HELPER], call.payloads[HELPER], consortium


def test_the_helper_fixes_a_round_and_the_keys_of_a_session(tmp_path):
    """Else it would seal two texts with one key, or draw masks of which some are known."""
    helper, request, consortium = masked(tmp_path)
    first = helper.handle(request)
    whole = decode(first, sender=HELPER, limit=LIMIT).arrays
    body = decode(request, sender=AGGREGATOR, limit=LIMIT).body
    for other in (
        {"request_digest": "cd" * 32},
        {"sites": body["sites"] | {"s0": ANOTHER}},
        {"parts": [body["parts"][0] | {"deviation": 2.0**30}]},
        {"parts": body["parts"] * 2},
    ):
        assert refusal(helper, HELPER, changed(request, body=other)) == "masks-are-fixed"
    letters = decode(request, sender=AGGREGATOR, limit=LIMIT).arrays["letters"]
    some = changed(
        request, body={"sites": {"s1": body["sites"]["s1"]}}, arrays={"letters": letters[1:2]}
    )
    for each in (first, helper.handle(request), helper.handle(some)):
        found = decode(each, sender=HELPER, limit=LIMIT).arrays["s1"]
        assert np.array_equal(opened(consortium, found), opened(consortium, whole["s1"]))


def opened(consortium, sealed):
    """A mask of s1, by what its ledger holds."""
    state = State.model_validate_json(
        consortium.ledgers["s1"].state(SessionKey(consortium.study.hash, "s"))
    )
    client = SecaggClient("s1", state, settle(consortium.study), "s")
    message = Message("round 1", consortium.study.hash, "s", AGGREGATOR, {}, {"mask": sealed})
    parts = [Part((sealed.size - helpers_bytes([])) // 8)]
    body = decode(consortium.asked, sender=AGGREGATOR, limit=LIMIT).body
    return client.mask(1, body["request_digest"], parts, message)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"round_number": 2}, "bad-query"),
        ({"round_number": 0}, "malformed"),
        ({"sites": {"s9": ANOTHER}}, "bad-query"),
        ({"sites": {"s0": ANOTHER}}, "malformed"),  # a letter for each
        ({"sites": {"s0": {"sealing": "0"}}}, "malformed"),
        ({"request_digest": ""}, "malformed"),
        ({"parts": []}, "malformed"),
        ({"parts": [{"size": 0, "deviation": 2.0**30, "layout": "vector"}]}, "malformed"),
        ({"parts": [{"size": -1, "deviation": 2.0**30, "layout": "vector"}]}, "malformed"),
        ({"parts": [{"size": 10**12, "deviation": 2.0**30, "layout": "vector"}]}, "bad-query"),
        ({"parts": [{"size": 5, "deviation": 0.0, "layout": "vector"}]}, "malformed"),
        ({"parts": [{"size": 5, "deviation": 1.0, "layout": "vector"}]}, "bad-query"),
        ({"parts": [{"size": 5, "deviation": 1e300, "layout": "vector"}]}, "malformed"),
        ({"parts": [{"size": 5, "deviation": math.nan, "layout": "vector"}]}, "malformed"),
        ({"parts": [{"size": 5, "deviation": 2.0**30, "layout": "symmetric"}]}, "bad-query"),
        ({"parts": [{"size": 3, "deviation": 2.0**30, "layout": "symmetric"}]}, "bad-query"),
        ({"parts": [{"size": 5, "deviation": 2.0**30, "layout": "tensor"}]}, "bad-query"),
        ({"parts": [{"size": 10**12, "deviation": 2.0**30, "layout": "tensor"}]}, "bad-query"),
        ({"parts": [{"size": 5, "deviation": 2.0**30, "layout": "cone"}]}, "malformed"),
        ({"parts": [{"size": 5, "deviation": 2.0**30}]}, "malformed"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_helper_draws_no_masks_that_fit_no_round(body, code, tmp_path):
    helper, request, _ = masked(tmp_path)
    assert refusal(helper, HELPER, changed(request, body=body)) == code


def test_the_helper_draws_masks_of_tensors_of_at_most_as_many_components(tmp_path):
    helper, request, consortium = masked(tmp_path)
    components = consortium.study.components
    for rows, code in ((components + 1, "bad-query"), (components, None)):
        parts = [{"size": tensor_size(rows), "deviation": 2.0**30, "layout": "tensor"}]
        tensor = changed(request, body={"parts": parts})
        if code:
            assert refusal(helper, HELPER, tensor) == code
        else:
            arrays = query(helper, HELPER, tensor).arrays
            size = helpers_bytes([Part(tensor_size(rows))])
            assert {array.size for array in arrays.values()} == {size}


def test_the_helper_knows_only_sessions_that_were_opened(tmp_path):
    helper, request, _ = masked(tmp_path)
    assert refusal(helper, HELPER, changed(request, session="t")) == "session-of-no-helper"
    for step in ("keys", "mask 1", "masks", "round 1", ""):
        assert refusal(helper, HELPER, changed(request, step=step)) == "unknown-step"
    assert refusal(helper, HELPER, changed(request, study="t")) == "other-study"
    assert refusal(helper, HELPER, changed(request, sender="s0")) == "wrong-sender"
    assert refusal(helper, HELPER, b"EVM1") == "malformed"


def test_the_helper_forgets_the_oldest_of_many_sessions(tmp_path):
    study = study_of(3, masks="helper")
    helper = Helper(settle(study))
    keys = [
        query(helper, HELPER, request_of(study, f"s{i}", "join", payloads.JoinRequest())).body[
            "keys"
        ]["sealing"]
        for i in (*range(40), 39, 0)
    ]
    assert keys[39] == keys[40]
    assert keys[0] != keys[41]
    assert len(set(keys)) == 41


def test_a_mask_that_is_not_the_helpers_is_refused(tmp_path):
    _, _, consortium = masked(tmp_path)
    call = at(consortium, "round 1", session="t")
    party, request = consortium.parties["s0"], call.payloads["s0"]
    mask = decode(request, sender=AGGREGATOR, limit=LIMIT).arrays["mask"]
    flipped = mask.copy()
    flipped[0] ^= 1
    theirs = decode(call.payloads["s1"], sender=AGGREGATOR, limit=LIMIT).arrays["mask"]
    size = mask.size - 16
    for wrong, code in (
        (flipped, "bad-seal"),
        (theirs, "bad-seal"),
        (mask[:-1], "malformed"),
        (mask.view(np.uint8)[:0], "malformed"),
        (np.zeros(size + 16, np.uint8), "bad-seal"),
    ):
        assert refusal(party, "s0", changed(request, arrays={"mask": wrong})) == code
    without = decode(request, sender=AGGREGATOR, limit=LIMIT)
    bare = encode(Message("round 1", without.study, "t", AGGREGATOR, without.body))
    assert refusal(party, "s0", bare) == "malformed"
    assert spent(consortium, "s0") == NOTHING
    assert query(party, "s0", request).step == "round 1"
