"""Messages between roles: what is sent arrives, and what is malformed is refused in words."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import (
    LETTERS,
    MAGIC,
    MASK,
    Message,
    decode,
    encode,
    expect,
)
from eigenveil.moments.describe import Description
from refusal_tools import refuses
from soak_tools import times

LIMIT = 1 << 20
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
KINDS = {"u8": np.uint64, "f8": np.float64, "b1": np.uint8}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
arrays = st.dictionaries(
    TEXTS,
    st.one_of(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
        for dtype in KINDS.values()
    ),
    max_size=3,
)
messages = st.builds(
    Message, TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, values, max_size=4), arrays
)


def raw(header, tail=b""):
    """A message with any header at all."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + tail


def header(**changed):
    fields = {"step": "round 1", "study": "a", "session": "s", "sender": "north", "body": {}}
    return fields | changed


def array_head(**changed):
    return {"name": "sum 0", "dtype": "u8", "shape": [2]} | changed


def small():
    """A message of every kind of part."""
    return Message(
        "round 1",
        "a1",
        "s1",
        "north",
        {"round_number": 1, "queries": [{"name": "x", "scale": 0.5}]},
        {
            "sum 0": np.arange(3, dtype=np.uint64),
            "basis 1": np.array([[0.5, -2.0]]),
            "b": np.arange(5, dtype=np.uint8),
        },
    )


def refused(data, code="malformed", *, sender="north", limit=LIMIT):
    with refuses(code, kind=ProtocolError) as caught:
        decode(data, sender=sender, limit=limit)
    assert sender in caught.value.message
    return caught.value


@given(messages)
@settings(max_examples=times(100))
def test_what_is_encoded_is_decoded(message):
    found = decode(encode(message), sender=message.sender, limit=1 << 30)
    assert (found.step, found.study, found.session) == (
        message.step,
        message.study,
        message.session,
    )
    assert found.sender == message.sender
    assert found.body == message.body
    assert found.arrays.keys() == message.arrays.keys()
    for name, array in message.arrays.items():
        sent = found.arrays[name]
        # a number by itself is sent as an array of one
        assert sent.dtype == array.dtype
        assert sent.shape == (array.shape or (1,))
        assert sent.tobytes() == array.tobytes()
        assert not sent.flags.writeable


@given(messages)
@settings(max_examples=times(75))
def test_a_decoded_message_is_encoded_to_the_same_bytes_and_fingerprint(message):
    data = encode(message)
    found = decode(data, sender=message.sender, limit=1 << 30)
    assert encode(found) == data
    assert found.fingerprint == message.fingerprint


def test_signed_integers_and_other_layouts_arrive_as_the_same_words():
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    sent = Message(
        "a", "b", "c", "north", {}, {"i": np.array([-1, 5]), "f": columns, "v": np.arange(8.0)[::2]}
    )
    found = decode(encode(sent), sender="north", limit=LIMIT)
    assert found.arrays["i"].tolist() == [2**64 - 1, 5]
    assert np.array_equal(found.arrays["f"], columns)
    assert found.arrays["v"].tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_fingerprint_leaves_out_masks_and_letters_and_nothing_else():
    message = small()
    for name in (MASK, LETTERS):
        arrays = {**message.arrays, name: np.zeros(9, np.uint8)}
        assert replace(message, arrays=arrays).fingerprint == message.fingerprint
    others = [
        {"step": "round 2"},
        {"study": "a2"},
        {"session": "s2"},
        {"sender": "south"},
        {"body": {"round_number": 1, "queries": [{"name": "x", "scale": math.nextafter(0.5, 1)}]}},
        {"arrays": message.arrays | {"basis 1": np.array([[0.5, math.nextafter(-2.0, 0)]])}},
    ]
    prints = {replace(message, **changed).fingerprint for changed in others}
    assert len(prints | {message.fingerprint}) == len(others) + 1


def test_every_truncation_is_refused():
    data = encode(small())
    for size in range(len(data)):
        refused(data[:size])


def test_every_extension_is_refused():
    data = encode(small())
    for extra in (b"\0", b"EVM1", data):
        refused(data + extra)


def test_any_changed_byte_of_the_header_gives_a_refusal_or_a_message_of_the_same_bytes():
    data = encode(small())
    end = 8 + int.from_bytes(data[4:8], "little")
    for place in range(end):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(data)
            changed[place] ^= flip
            try:
                found = decode(bytes(changed), sender="north", limit=LIMIT)
            except ProtocolError:
                continue
            reported = b"".join(array.tobytes() for array in found.arrays.values())
            assert reported == data[end:]


@given(st.binary(max_size=200), st.sampled_from([b"", MAGIC, MAGIC + b"\x10\0\0\0"]))
@settings(max_examples=times(500))
@example(b"", MAGIC)
@example(b"\xff\xff\xff\xff", MAGIC)
def test_noise_is_refused(data, start):
    refused(start + data)


def test_a_message_above_its_limit_is_refused_unread():
    data = encode(small())
    decode(data, sender="north", limit=len(data))
    refused(data, "too-large", limit=len(data) - 1)


def test_a_header_longer_than_the_message_or_than_any_is_refused():
    refused(MAGIC + (1 << 31).to_bytes(4, "little") + b"{}")
    huge = raw(header(body={"x": "y" * (1 << 24)}))
    refused(huge, limit=1 << 30)


def test_a_message_under_another_name_is_refused():
    refused(encode(small()), "wrong-sender", sender="south")


@pytest.mark.parametrize(
    ("field", "code"),
    [("study", "other-study"), ("session", "other-session"), ("step", "other-step")],
)
def test_a_message_of_another_study_session_or_step_is_refused(field, code):
    here = {"study": "a1", "session": "s1", "step": "round 1"}
    message = small()
    assert expect(message, **here) is message
    with refuses(code, kind=ProtocolError):
        expect(message, **(here | {field: "another"}))


@pytest.mark.parametrize("depth", [100, 900, 5_000, 200_000])
def test_deep_nesting_is_refused(depth):
    text = json.dumps(header()).replace('"body": {}', '"body": {"x": ' + "[" * depth)
    data = raw((text[:-1] + "]" * depth + "}}").encode())
    with refuses("malformed", kind=ProtocolError):
        decode(data, sender="north", limit=LIMIT).read(payloads.Done)


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [-1, -2],
        [-1, 0],
        [2**31],
        [2**62, 2],
        [2**63, 2**63],
        [0, 2**62],
        [0, 2**70],
        [2**70, 0],
        [10**4000],
        [1, 2, 3],
        [1.5],
        ["x"],
        [None],
        None,
        7,
    ],
)
def test_impossible_shapes_are_refused(shape):
    for tail in (b"", bytes(16)):
        refused(raw(header(arrays=[array_head(shape=shape)]), tail))


@pytest.mark.parametrize("dtype", ["O", "<u8", "f4", "object", "U8", "", 5, None])
def test_unknown_types_are_refused(dtype):
    refused(raw(header(arrays=[array_head(dtype=dtype)]), bytes(16)))


def test_an_array_that_is_there_twice_is_refused():
    refused(raw(header(arrays=[array_head(), array_head()]), bytes(32)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"\xff\xfe",
        b'{"step": 1}',
        b'{"step": "\\ud800"}',
        json.dumps(header(step="x") | {"more": 1}).encode(),
        json.dumps(header(sender=None)).encode(),
        json.dumps(header(body=[])).encode(),
        json.dumps(header(arrays={})).encode(),
        json.dumps(header()).replace('"a"', '"\\ud800"').encode(),
        json.dumps(header(body={"x": 1})).replace(": 1", ": " + "9" * 5000).encode(),
    ],
)
def test_headers_that_are_none_are_refused(text):
    refused(raw(text))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    array = np.array([1.0, value])
    data = encode(Message("a", "b", "c", "north", {}, {"x": array}))
    found = decode(data, sender="north", limit=LIMIT)
    with refuses("non-finite", kind=ProtocolError) as caught:
        found.array("x", dtype="f8", shape=(2,))
    assert repr(value) not in caught.value.message


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("y", "u8", (3,)),
        ("sum 0", "f8", (3,)),
        ("sum 0", "u8", (2,)),
        ("sum 0", "u8", (3, 1)),
        ("sum 0", "b1", (24,)),
    ],
)
def test_an_array_of_another_name_type_or_shape_is_refused(name, dtype, shape):
    with refuses("malformed", kind=ProtocolError):
        small().array(name, dtype=dtype, shape=shape)


ASK = {
    "name": "moment",
    "description": {"kind": "second-moment", "features": 3, "precision": "double"},
    "scale": 1.0,
    "grid": -36,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": math.nan},
        {"scale": math.inf},
        {"scale": 5e-324},
        {"scale": 1e308},
        {"scale": "1e999"},
        {"grid": 41},
        {"grid": -101},
        {"grid": 0.5},
        {"grid": 10**400},
        {"name": "x" * 65},
        {"name": 3},
        {"extra": 1},
        {"description": None},
        {"description": ASK["description"] | {"kind": "exec"}},
        {"description": ASK["description"] | {"bound": math.nan}},
        {"description": ASK["description"] | {"sensitivity": 0.0}},
    ],
)
def test_asks_with_impossible_numbers_are_refused_naming_the_field(changed):
    def reported(query):
        # over JSON, as it comes in: NaN and Infinity are numbers there
        text = json.dumps(header(body={"round_number": 1, "queries": [query]})).encode()
        return decode(raw(text), sender="north", limit=LIMIT)

    reported(ASK).read(payloads.RoundRequest)
    with refuses("malformed", "queries", kind=ProtocolError) as caught:
        reported(ASK | changed).read(payloads.RoundRequest)
    assert len(caught.value.message) < 300


def test_a_refusal_never_repeats_a_long_field():
    message = Message("a", "b", "c", "north", {"f" * 100_000: 1})
    with pytest.raises(ProtocolError) as caught:
        message.read(payloads.Done)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("share", ["", "0f" * 15, "0f" * 17, "0F" * 16, "zz" * 16, "0" * 31])
def test_shares_have_sixteen_bytes(share):
    message = Message("unmask 1", "a", "s", "north", {"own": {"a": share}, "repair": {}})
    with pytest.raises(ProtocolError):
        message.read(payloads.UnmaskReply)


def test_a_description_says_what_and_never_how_sensitive():
    assert not {"sensitivity", "mu", "gain", "weight"} & Description.model_fields.keys()
