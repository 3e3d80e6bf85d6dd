"""Studies: what cannot be is refused in words, what can be survives its file unchanged."""

import json
import math
import re
import tomllib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_tensor_study import tensor_studies

from eigenveil import DataError, OutputError, PrivacyError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.consistency import neighbours
from eigenveil.federation.study.file import read_study, schema, template, write_toml
from eigenveil.federation.study.study import (
    FORMAT,
    WEIGHT_BITS,
    Study,
    StudySite,
    default_neighbours,
    make_study,
    parse_study,
)
from eigenveil.privacy.accountant import Loss, mu_of_epsilon
from eigenveil.privacy.mechanisms.base import lattice_error
from eigenveil.tables.names import looks_like_identifier, reads_as_value
from eigenveil.tables.schema import parse_schema
from refusal_tools import refuses
from soak_tools import times

WHOLE = 1 << WEIGHT_BITS


def named(count):
    return [{"name": f"site-{i}"} for i in range(count)]


def weighed(*weights):
    return [{"name": f"s{i}", "weight": weight} for i, weight in enumerate(weights)]


def fields(**changes):
    usual = {"name": "trial", "features": 8, "components": 2, "sites": named(5)}
    return usual | changes


def study(**changes):
    return make_study(**fields(**changes))


# -- studies that can be

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,20}\Z")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: not reads_as_value(text) and not looks_like_identifier(text)
)
WISHES = st.floats(0.05, 20.0)


def weights_of(count):
    return st.just([None] * count) | st.lists(st.floats(0.5, 5.0), min_size=count, max_size=count)


@st.composite
def studies(draw):
    if draw(st.booleans()):
        columns = draw(st.lists(TEXTS, min_size=1, max_size=9, unique=True))
        shape, width = {"columns": columns}, len(columns)
    else:
        width = draw(st.integers(1, 300))
        shape = {"features": width}
    components = draw(st.integers(1, min(width, 20)))
    delta = draw(st.sampled_from([0.0, 1e-9, 1e-6, 0.01]))
    epsilon = draw(WISHES)
    names = draw(st.lists(NAMES, min_size=1, max_size=20, unique=True))
    collusion = draw(st.integers(0, len(names) - 1))
    dropouts = draw(st.integers(0, (len(names) - collusion - 1) // 2))
    masks = ["modular"] if dropouts or delta == 0 else ["modular", "pairwise", "helper"]
    protocols = ["auto", "cape", "local"] + ["sketch", "dpdispca", "full"] * (delta > 0)
    row_norm = draw(st.sampled_from(["unit", "auto"]) | st.floats(1e-3, 1e6))
    optional = {
        "neighbours": st.integers(max(1, collusion + 2 * dropouts + 1), 40),
        "expected_rows": st.integers(components, 10**9),
    }
    if row_norm != "auto":
        optional["row_bound"] = st.floats(1e-3, 1e6)
    protocol = draw(st.sampled_from(protocols))
    if delta > 0 and protocol in ("auto", "sketch", "dpdispca"):
        optional["sketch_size"] = st.integers(components, 500)
    chosen = draw(st.fixed_dictionaries({}, optional=optional))
    entries = st.lists(st.floats(-1e6, 1e6), min_size=width, max_size=width)
    center = st.booleans() | (entries if width <= 20 else st.just([0.5] * width))
    center = draw(center)
    if draw(st.booleans()):
        steps = ["scale"] * ("row_bound" not in chosen) + ["center"] * (center is True)
        shares = {step: st.floats(0.01, 1.0) for step in (*steps, "moment", "variance")}
        chosen["budget_split"] = draw(st.fixed_dictionaries(shares))
    own = st.none() | st.just(epsilon) | st.floats(epsilon / 50, epsilon)
    return make_study(
        name=draw(NAMES),
        components=components,
        epsilon=epsilon,
        delta=delta,
        adjacency=draw(st.sampled_from(["add-remove", "replace-one"])),
        protocol=protocol,
        masks=draw(st.sampled_from(masks)),
        collusion=collusion,
        dropouts=dropouts,
        row_norm=row_norm,
        center=center,
        sites=[
            {"name": name, "epsilon": draw(own), "weight": weight}
            for name, weight in zip(names, draw(weights_of(len(names))), strict=True)
        ],
        **shape,
        **chosen,
    )


@given(studies() | tensor_studies())
@settings(max_examples=times(150))
def test_a_study_survives_its_file(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("study") / "study.toml"
    write_toml(made, path)
    assert read_study(path) == made
    assert read_study(path).hash == made.hash
    assert parse_study(json.loads(json.dumps(made.model_dump(mode="json")))) == made


@given(studies())
@settings(max_examples=times(100))
def test_masks_hide_and_can_be_mended_whoever_is_lost(made):
    names = [site.name for site in made.sites]
    near = {name: set(neighbours(name, names, made.degree)) for name in names}
    assert {len(others) for others in near.values()} == {made.degree}
    assert made.honest >= 1
    holders = made.degree + 1
    if made.dropouts:
        assert holders - made.dropouts >= made.threshold
    # two stories, each told to enough holders, would need more honest ones than there are
    assert 2 * (made.threshold - made.collusion) > holders - made.collusion or made.threshold <= 1


@given(studies())
@settings(max_examples=times(100))
def test_plan_takes_the_study_over(made):
    plan = made.plan(made.width)
    assert (plan.features, plan.n_components) == (made.width, made.components)
    assert (plan.epsilon, plan.delta, plan.adjacency) == (made.epsilon, made.delta, made.adjacency)
    pure, sketched = made.delta == 0, made.likely_protocol.sketches
    once = made.protocol in ("full", "dpdispca") or made.components == made.width
    whole = "gaussian" if once else "adaptive"
    assert plan.mechanism == ("wishart" if pure else "sketch" if sketched else whole)
    assert made.components <= plan.sketch_columns == made.sketch_columns <= made.width
    draws = 1 if made.protocol == "local" else len(made.sites)
    assert plan.noise_draws >= draws


# -- the file


def test_template_is_commented_and_parses_back():
    made = study(
        columns=['a"b\\', "tab\t", "line\n", "#", "\x7f", "\u2028", "ünï", "'"],
        features=None,
        budget_split={"moment": 1.0, "scale": 0.1, "variance": 0.2},
        center=[0.0, 1.5, -2.0, 1e-300, 1e300, 3.0, 4.0, 5.0],
        sites=[{"name": "north"}, {"name": "south", "epsilon": 0.25}],
    )
    text = template(made)
    assert parse_study(tomllib.loads(text)) == made
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("#"))
    assert all(info.description for info in Study.model_fields.values())
    # an example that is commented out is one that could be taken
    assert "# neighbours = 16" in text


def test_a_file_is_written_whole_and_not_over_another(tmp_path):
    path = tmp_path / "study.toml"
    write_toml(study(), path)
    before = path.read_text()
    with pytest.raises(OutputError, match="exists"):
        write_toml(study(epsilon=2.0), path)
    assert path.read_text() == before
    write_toml(study(epsilon=2.0), path, overwrite=True)
    assert read_study(path).epsilon == 2.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"name = \n", "line 1"),
        (b'name = "a"\nname = "b"\n', "name"),
        (b"\xff\xfe", "not TOML"),
    ],
)
def test_bad_toml_names_file_and_line(tmp_path, text, said):
    path = tmp_path / "study.toml"
    path.write_bytes(text)
    with refuses("bad-toml") as caught:
        read_study(path)
    assert "study.toml" in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.toml cannot be read"):
        read_study(tmp_path / "nowhere.toml")
    with pytest.raises(DataError, match="cannot be read"):
        read_study(tmp_path)


def test_messages_name_the_file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(template(study()).replace("collusion = 0", "collusion = 9"))
    with pytest.raises(PrivacyError, match=r"study.toml: 5 sites less collusion = 9"):
        read_study(path)


# -- refusals

TENSORS, WORDS = {"task": "gaussian-mixture"}, {"task": "topic-model"}
VECTOR, IN_FULL = TENSORS | {"mechanism": "vector"}, WORDS | {"clip_documents": False}
REFUSED = [
    # changes, error, code, words
    ({"sites": []}, DataError, "bad-field", "sites"),
    ({"sites": [{"name": "a"}, {"name": "a"}]}, DataError, "duplicate-name", "'a'"),
    ({"sites": [{"name": "a b"}]}, DataError, "bad-field", "sites[0]: name = 'a b'"),
    ({"sites": [{"name": "a\n"}]}, DataError, "bad-field", "sites[0]: name"),
    ({"sites": [{"epsilon": 1.0}]}, DataError, "missing-field", "sites[0]: name is missing"),
    ({"sites": ["north"]}, DataError, "bad-field", "sites[0] = 'north'"),
    ({"sites": [{"name": "a", "epsilom": 1}]}, DataError, "unknown-field", "site 'a'"),
    ({"sites": [{"name": "a", "epsilon": "1"}]}, DataError, "bad-field", "site 'a': epsilon"),
    ({"sites": [{"name": "a", "epsilon": 0}]}, PrivacyError, "bad-option", "site 'a'"),
    ({"sites": [{"name": "a", "epsilon": 1.5}]}, PrivacyError, "target-above-study", "1.5"),
    ({"sites": [{"name": "a", "epsilon": 1e-4}]}, PrivacyError, "weight-too-small", "site 'a'"),
    ({"sites": [{"name": "a", "weight": "1"}]}, DataError, "bad-field", "site 'a': weight"),
    ({"sites": [{"name": "a", "weight": True}]}, DataError, "bad-field", "site 'a': weight"),
    ({"sites": weighed(0.0, 1.0)}, DataError, "bad-option", "site 's0': weight = 0.0"),
    ({"sites": weighed(1.0, -1.0)}, DataError, "bad-option", "site 's1': weight = -1.0"),
    ({"sites": weighed(1.0, math.nan)}, DataError, "bad-option", "site 's1': weight = nan"),
    ({"sites": weighed(1.0, math.inf)}, DataError, "bad-option", "site 's1': weight = inf"),
    ({"sites": weighed(1.0, None)}, DataError, "site-without-weight", "site 's1' has no weight"),
    ({"sites": weighed(1.0, 1e4)}, DataError, "weights-too-far-apart", "site 's0': weight = 1"),
    (
        {"sites": weighed(1.0, 2.0), "unit": "who", "sites_per_unit": 2},
        PrivacyError,
        "weights-differ",
        "weights of sites differ",
    ),
    ({"within_sites": 1}, DataError, "bad-option", "within_sites = 1"),
    ({"within_sites": True, "center": False}, DataError, "no-center-of-sites", "within_sites"),
    ({"within_sites": True, "center": [0.0] * 8}, DataError, "no-center-of-sites", "within_sites"),
    ({"within_sites": True, "missing": "zero"}, DataError, "sites-with-missing", "'zero'"),
    (TENSORS | {"within_sites": True}, DataError, "field-of-other-task", "within_sites"),
    ({"name": ""}, DataError, "bad-field", "name = ''"),
    ({"name": "x" * 65}, DataError, "bad-field", "name = 'xxx"),
    ({"format": "eigenveil-study-2"}, DataError, "bad-field", "format"),
    ({"task": "nmf"}, DataError, "unknown-task", "task = 'nmf'"),
    ({"componets": 2}, DataError, "unknown-field", "'componets'"),
    ({"components": None}, DataError, "bad-option", "components = None"),
    ({"components": 0}, DataError, "bad-option", "components = 0"),
    ({"components": True}, DataError, "bad-option", "components = True"),
    ({"components": 2.5}, DataError, "bad-option", "components = 2.5"),
    ({"components": 9}, DataError, "too-many-components", "components = 9 must be between"),
    ({"features": None}, DataError, "columns-or-features", "neither"),
    ({"columns": ["a", "b"]}, DataError, "columns-or-features", "both"),
    ({"columns": [], "features": None}, DataError, "bad-field", "columns = []"),
    ({"columns": ["a", ""], "features": None}, DataError, "bad-field", "columns[1] = ''"),
    ({"columns": ["a", "b", "a"], "features": None}, DataError, "duplicate-name", "'a'"),
    ({"features": 0}, DataError, "bad-field", "features = 0"),
    ({"epsilon": 0.0}, PrivacyError, "bad-option", "epsilon = 0.0"),
    ({"epsilon": math.inf}, PrivacyError, "bad-option", "epsilon = inf"),
    ({"epsilon": math.nan}, PrivacyError, "bad-option", "epsilon = nan"),
    ({"epsilon": "1"}, PrivacyError, "bad-option", "epsilon = '1'"),
    ({"epsilon": True}, PrivacyError, "bad-option", "epsilon = True"),
    ({"delta": 1.0}, PrivacyError, "bad-option", "delta = 1.0"),
    ({"delta": -1e-6}, PrivacyError, "bad-option", "delta"),
    ({"delta": 1e-60}, PrivacyError, "", "delta"),
    ({"adjacency": "swap"}, DataError, "bad-option", "adjacency = 'swap'"),
    ({"protocol": "capes"}, DataError, "bad-option", "protocol = 'capes'"),
    ({"masks": "none"}, DataError, "bad-option", "masks = 'none'"),
    ({"collusion": -1}, DataError, "bad-option", "collusion = -1"),
    ({"collusion": 5}, PrivacyError, "no-honest-site", "1 too few"),
    ({"collusion": 4, "dropouts": 3}, PrivacyError, "no-honest-site", "3 too few"),
    ({"dropouts": 1, "sites": named(1)}, PrivacyError, "no-honest-site", "1 sites"),
    ({"dropouts": 3}, PrivacyError, "too-many-dropouts", "dropouts = 3"),
    ({"dropouts": 1, "masks": "helper"}, PrivacyError, "dropouts-need-modular-masks", "helper"),
    ({"dropouts": 1, "masks": "pairwise"}, PrivacyError, "dropouts-need-modular-masks", "pairw"),
    ({"neighbours": 2, "collusion": 2}, PrivacyError, "too-few-neighbours", "neighbours = 2"),
    ({"neighbours": 0}, DataError, "bad-option", "neighbours = 0"),
    (
        {"neighbours": 6, "dropouts": 4, "sites": named(20)},
        PrivacyError,
        "too-many-dropouts",
        "among 7 sites",
    ),
    ({"delta": 0.0, "protocol": "sketch"}, PrivacyError, "pure-needs-other-mechanism", "sketch"),
    ({"delta": 0.0, "protocol": "full"}, PrivacyError, "pure-needs-other-mechanism", "full"),
    ({"delta": 0.0, "protocol": "dpdispca"}, PrivacyError, "pure-needs-other-mechanism", "dpdis"),
    ({"delta": 0.0, "masks": "pairwise"}, PrivacyError, "pure-needs-modular-masks", "pairwise"),
    ({"delta": 0.0, "masks": "helper"}, PrivacyError, "pure-needs-modular-masks", "helper"),
    ({"row_norm": "max"}, DataError, "bad-option", "row_norm = 'max'"),
    ({"row_norm": 0.0}, DataError, "bad-option", "row_norm = 0"),
    ({"row_norm": math.inf}, DataError, "bad-option", "row_norm = inf"),
    ({"row_norm": "auto", "row_bound": 1.0}, DataError, "", "row_bound"),
    ({"row_bound": -1.0}, DataError, "", "row_bound = -1.0"),
    ({"center": 1}, DataError, "bad-option", "center = 1"),
    ({"center": [0.0]}, DataError, "center-differs", "1 numbers"),
    ({"center": [0.0] * 7 + [math.nan]}, DataError, "bad-option", "center"),
    ({"budget_split": {"moments": 1.0}}, PrivacyError, "bad-option", "moments"),
    ({"budget_split": {"moment": -1.0}}, PrivacyError, "", "moment"),
    ({"budget_split": {"moment": 1.0, "scale": 1.0}}, PrivacyError, "step-without-share", "center"),
    ({"budget_split": {"scale": 1.0, "center": 1.0}}, PrivacyError, "", "moment"),
    (
        {"budget_split": {"moment": 1.0, "center": 1.0}, "center": False},
        PrivacyError,
        "unneeded-step",
        "center",
    ),
    ({"sketch_size": 6, "protocol": "cape"}, DataError, "sketch-not-sent", "cape"),
    ({"sketch_size": 1}, DataError, "small-sketch", "sketch_size must be at least"),
    ({"expected_rows": 1}, DataError, "fewer-rows-than-components", "rows = 1 is fewer"),
    ({"expected_rows": 0}, DataError, "bad-option", "expected_rows = 0"),
    ({"noise_variance": 1.0}, DataError, "field-of-other-task", "noise_variance = 1.0"),
    ({"clip_documents": False}, DataError, "field-of-other-task", "clip_documents = False"),
    (TENSORS | {"row_norm": 3.0}, DataError, "field-of-other-task", "is for task 'pca'"),
    (TENSORS | {"clip_documents": False}, DataError, "field-of-other-task", "'topic-model'"),
    (WORDS | {"center": [0.0] * 8}, DataError, "field-of-other-task", "center = [0.0,"),
    (WORDS | {"noise_variance": 1.0}, DataError, "field-of-other-task", "'gaussian-mixture'"),
    (WORDS | {"sketch_size": 1}, DataError, "small-sketch", "sketch_size must be at least"),
    (TENSORS | {"components": 8, "center": False}, DataError, "noise-variance-needs-room", "8"),
    (TENSORS | {"protocol": "dpdispca"}, DataError, "bad-option", "dpdispca"),
    (WORDS | {"mechanism": "gaussian", "delta": 0.0}, PrivacyError, "", "delta = 0"),
    (VECTOR | {"masks": "pairwise"}, PrivacyError, "pure-needs-modular-masks", "'vector'"),
    (TENSORS | {"budget_split": {"variance": 1.0}}, PrivacyError, "bad-option", "variance"),
    (WORDS | {"budget_split": {"center": 1.0}}, PrivacyError, "unneeded-step", "center"),
    (IN_FULL | {"budget_split": {"scale": 1.0}}, PrivacyError, "unneeded-step", "scale"),
    (WORDS | {"budget_split": {"moment": 1.0, "scale": 1.0}}, PrivacyError, "", "tensor"),
    (IN_FULL | {"budget_split": {"moment": 1.0, "tensor": 0.0}}, PrivacyError, "", "tensor"),
]


@pytest.mark.parametrize(("changes", "kind", "code", "said"), REFUSED)
def test_what_cannot_be_is_refused_in_words(changes, kind, code, said):
    with pytest.raises((DataError, PrivacyError)) as caught:
        study(**changes)
    error = caught.value
    assert isinstance(error, kind)
    assert said in error.message
    assert error.hint
    if code:
        assert error.code == code


def test_a_study_cannot_be_made_around_the_checks():
    whole = study().model_dump()
    with pytest.raises(ValueError, match="honest"):
        Study(**(whole | {"collusion": 5}))
    with pytest.raises(ValueError, match="frozen"):
        study().epsilon = 9.0


def test_a_missing_field_is_named_and_a_misspelt_one_before_it():
    for field in ("name", "components", "sites"):
        with pytest.raises(DataError, match=f"{field} is missing"):
            make_study(**{k: v for k, v in fields().items() if k != field})
    with pytest.raises(DataError, match="format is missing"):
        parse_study(fields())
    with pytest.raises(DataError) as caught:
        make_study(**{("componnents" if k == "components" else k): v for k, v in fields().items()})
    assert caught.value.hint == "Did you mean 'components'?"


def test_dropouts_that_would_work_are_told_and_do():
    with pytest.raises(PrivacyError) as caught:
        study(dropouts=3, collusion=1, sites=named(6))
    hint = caught.value.hint
    most = int(re.search(r"dropouts = (\d+) or fewer", hint).group(1))
    sites = int(re.search(r"at least (\d+) sites", hint).group(1))
    assert study(dropouts=most, collusion=1, sites=named(6)).dropouts == most
    assert study(dropouts=3, collusion=1, sites=named(sites)).dropouts == 3
    with pytest.raises(PrivacyError):
        study(dropouts=most + 1, collusion=1, sites=named(6))
    with pytest.raises(PrivacyError):
        study(dropouts=3, collusion=1, sites=named(sites - 1))
    with pytest.raises(PrivacyError) as caught:
        study(dropouts=5, collusion=2, neighbours=8, sites=named(40))
    wanted = int(re.search(r"neighbours = (\d+) or more", caught.value.hint).group(1))
    assert study(dropouts=5, collusion=2, neighbours=wanted, sites=named(40)).degree == wanted


def test_masks_need_as_many_neighbours_as_the_hint_says():
    with pytest.raises(PrivacyError) as caught:
        study(collusion=6, neighbours=4, sites=named(30))
    wanted = int(re.search(r"neighbours = (\d+) or more", caught.value.hint).group(1))
    assert study(collusion=6, neighbours=wanted, sites=named(30)).degree == wanted
    # the helper needs no neighbours
    assert study(collusion=6, neighbours=4, sites=named(30), masks="helper").degree == 4


# -- what follows from a study


def test_counts_of_sites():
    made = study(sites=named(9), collusion=2, dropouts=2)
    assert (made.honest, made.fewest_sites, made.degree, made.threshold) == (5, 7, 8, 6)
    alone = study(sites=named(1))
    assert (alone.honest, alone.fewest_sites, alone.degree, alone.threshold) == (1, 1, 0, 1)


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 100))
def test_default_neighbours_suffice_wherever_all_would(sites, collusion, dropouts):
    degree = default_neighbours(sites, collusion, dropouts)
    assert degree <= sites - 1
    if sites <= 16:
        assert degree == sites - 1
    if collusion + dropouts < sites and sites >= collusion + 2 * dropouts + 1:
        made = study(sites=named(sites), collusion=collusion, dropouts=dropouts)
        assert made.degree == degree


def test_a_lone_honest_site_is_allowed_and_said():
    made = study(collusion=4)
    assert made.honest == 1
    assert "nobody is left to hide among" in made.notes[0]
    assert study(collusion=3).notes == ()
    assert study(sites=named(1)).notes == ()
    assert "site-0" in study(protocol="local").notes[0]


def test_draws_of_noise_and_masks_are_bounded():
    assert study().plan(8).noise_draws == 5
    assert study(protocol="local").plan(8).noise_draws == 1
    for masks in ("pairwise", "helper"):
        assert study(masks=masks).plan(8).noise_draws == 5 + 5 * 4


def test_sketch_sizes():
    assert study(protocol="sketch").sketch_columns == 8
    assert study(protocol="dpdispca").sketch_columns == 4
    assert study(protocol="sketch", features=100).sketch_columns == 8
    assert study(protocol="dpdispca", sketch_size=7).plan(8).sketch_columns == 7
    assert study(protocol="sketch", sketch_size=50).plan(8).sketch_columns == 8


def test_a_public_center_is_an_array():
    made = study(center=[float(i) for i in range(8)])
    assert np.array_equal(made.public_center, np.arange(8.0))
    assert made.plan(8).centered == "public"
    assert study().public_center is None
    assert study(center=False).plan(8).centered == "no"


# -- hashes

NUMBERS = {
    "format": "eigenveil-schema-1",
    "columns": [{"name": name, "kind": "number", "range": [0, 2]} for name in "abcdefgh"],
}
HALVED = NUMBERS | {"columns": [*NUMBERS["columns"][:7], NUMBERS["columns"][7] | {"range": [0, 1]}]}

CHANGES = [
    {"precision": "single"},
    {"name": "other"},
    {"requested_by": "somebody"},
    {"purpose": "another"},
    {"features": 9},
    {"features": None, "columns": list("abcdefgh")},
    {"features": None, "columns": list("abcdefhg")},
    {"components": 3},
    {"components": 0.5},
    {"components": "auto"},
    {"whiten": True},
    {"unit": "patient"},
    {"unit": "patient", "max_rows_per_unit": 2},
    {"unit": "patient", "sites_per_unit": 2},
    {"missing": "zero"},
    {"epsilon": 1.0 + 2**-52},
    {"delta": 1e-7},
    {"adjacency": "replace-one"},
    {"protocol": "cape"},
    {"masks": "pairwise"},
    {"collusion": 1},
    {"dropouts": 1},
    {"neighbours": 4},
    {"mechanism": "gaussian"},
    {"row_norm": "auto"},
    {"row_norm": 3.0},
    {"row_bound": 3.0},
    {"center": False},
    {"center": [0.0] * 8},
    {"budget_split": {"scale": 0.1, "center": 0.1, "moment": 1.0}},
    {"scale": "private"},
    {"scale": "private", "winsorize": 0.05},
    {"scale": [1.0] * 8},
    {"ranges": [[0.0, 1.0]] * 8},
    {"covariates": [2]},
    {"sketch_size": 6},
    {"scores": True},
    {"within_sites": True},
    {"scores": True, "scores_by": [6, 7]},
    {"unit": "who"},
    {"unit": "who", "max_rows_per_unit": 3},
    {"sites_per_unit": 2},
    {"features": None, "columns": list("abcdefgh"), "table_schema": NUMBERS},
    {"features": None, "columns": list("abcdefgh"), "table_schema": HALVED},
    {"expected_rows": 100},
    {"sites": [{"name": "site-9"}, *named(4)]},
    {"sites": named(5)[::-1]},
    TENSORS,
    TENSORS | {"noise_variance": 0.0},
    TENSORS | {"noise_variance": 1.0},
    TENSORS | {"covariance_type": "full"},
    VECTOR,
    WORDS,
    WORDS | {"alpha0": 1.0},
    IN_FULL,
    {"task": "covariance", "components": None},
    {"task": "covariance", "components": None, "row_quantile": 0.9},
    {"sites": [{"name": "site-0", "epsilon": 0.5}, *named(5)[1:]]},
    {"sites": [site | {"weight": 1.0} for site in named(5)]},
]


def test_every_change_changes_the_hash():
    touched = {field for change in CHANGES for field in change}
    assert touched == set(Study.model_fields) - {"format"}  # which has one value
    hashes = [study(**change).hash for change in ({}, *CHANGES)]
    assert len(set(hashes)) == len(hashes)
    assert study().hash == study(epsilon=1).hash == study(sites=tuple(named(5))).hash


def test_a_target_that_is_a_category_is_not_centred_within_sites():
    group = {"name": "g", "kind": "category", "levels": ["x", "y"], "role": "target"}
    schema = {"format": "eigenveil-schema-1", "columns": [{"name": "a", "kind": "number"}, group]}
    table = parse_schema(schema, origin="s")
    fields = {"task": "covariance", "components": None, "features": None, "columns": table.names}
    assert study(**fields, table_schema=table).plan(len(table.names))
    with refuses("sites-with-groups", "target that is a category"):
        study(**fields, table_schema=table, within_sites=True)


# -- weights


def test_all_count_alike_where_nobody_wishes_otherwise():
    assert set(study().weights().values()) == {WHOLE}
    own = [{"name": "a", "epsilon": 1.0}, {"name": "b"}]
    assert study(sites=own).weights() == {"a": WHOLE, "b": WHOLE}
    assert study(sites=own).row_weights() == {"a": 1.0, "b": 1.0}


@given(
    st.floats(0.1, 60.0),
    st.sampled_from([0.0, 1e-9, 1e-5, 0.05]),
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6),
)
@settings(max_examples=times(100))
def test_weights_give_each_site_its_wish_and_hardly_less(epsilon, delta, parts):
    sites = [{"name": f"s{i}", "epsilon": part * epsilon} for i, part in enumerate(parts)]
    made = study(sites=sites, epsilon=epsilon, delta=delta)
    weights = made.weights()
    plan = made.plan(8)
    for site in made.sites:
        weight = weights[site.name] / WHOLE
        assert 0 < weight <= 1
        if delta == 0:
            spent = weight * sum(b.epsilon for b in plan.budgets.values())
            assert spent <= site.epsilon
            assert weight >= min(site.epsilon, 40.0) / min(epsilon, 40.0) - 2 / WHOLE
            continue
        error = lattice_error(plan.released_values(), steps_a_scale=2.0**26, draws=plan.noise_draws)
        squares = [(weight * b.mu) ** 2 for b in plan.budgets.values()]
        loss = Loss(math.fsum(squares), 0.0, error.log_ratio, error.distance)
        assert loss.epsilon(delta) <= site.epsilon
        requested = mu_of_epsilon(min(site.epsilon, 40), delta) / mu_of_epsilon(
            min(epsilon, 40), delta
        )
        assert weight >= requested * (1 - 1e-4) - 1 / WHOLE


def test_a_smaller_wish_never_counts_more():
    targets = [1.0, 0.9, 0.5, 0.2, 0.1, 0.05]
    sites = [{"name": f"s{i}", "epsilon": target} for i, target in enumerate(targets)]
    for delta in (0.0, 1e-6):
        found = list(study(sites=sites, delta=delta).weights().values())
        assert found == sorted(found, reverse=True)
        assert len(set(found)) == len(found)
        backwards = study(sites=sites[::-1], delta=delta).weights()
        assert list(backwards.values()) == found[::-1]


def test_weights_are_of_the_studys_wish_not_of_the_largest_sites():
    # were they relative to the largest site's, the noise made for epsilon = 1 would give it 1
    sites = [{"name": "a", "epsilon": 0.5}, {"name": "b", "epsilon": 0.25}]
    assert max(study(sites=sites).weights().values()) < WHOLE


RATIOS = st.lists(st.integers(1, 200), min_size=2, max_size=6)


@given(RATIOS, st.sampled_from(["pca", "covariance", "gaussian-mixture"]))
@settings(max_examples=times(100))
def test_weights_that_are_given_keep_their_proportions(given, task):
    components = None if task == "covariance" else 2
    made = study(sites=weighed(*given), task=task, components=components)
    found = list(made.weights().values())
    assert max(found) == WHOLE
    lost = 1 / 16 if task == "gaussian-mixture" else 0.0
    for weight, number in zip(found, given, strict=True):
        wanted = WHOLE * number / max(given)
        assert (1 - lost) * (wanted - 0.5) <= weight <= wanted + 0.5
    # only proportions matter, and equal ones are none
    for factor in (3.0, 0.125):
        again = study(sites=weighed(*(factor * n for n in given)), task=task, components=components)
        assert list(again.weights().values()) == found
    alike = study(sites=weighed(*(given[0] for _ in given)))
    assert set(alike.weights().values()) == {WHOLE}


@given(RATIOS, st.lists(st.floats(0.1, 1.0), min_size=6, max_size=6), st.sampled_from([0.0, 1e-6]))
@settings(max_examples=times(100))
def test_weights_are_the_largest_that_every_target_allows(given, targets, delta):
    sites = [
        site | {"epsilon": epsilon}
        for site, epsilon in zip(weighed(*given), targets[: len(given)], strict=True)
    ]
    alone = [{"name": site["name"], "epsilon": site["epsilon"]} for site in sites]
    most = study(sites=alone, delta=delta, epsilon=1.0).weights()
    assume(min(most.values()) * min(given) >= max(given))
    found = study(sites=sites, delta=delta, epsilon=1.0).weights()
    assert all(found[name] <= most[name] for name in found)
    assert any(found[name] == most[name] for name in found)
    terms = settle(study(sites=sites, delta=delta, epsilon=1.0))
    for site in sites:
        assert terms.reservation(site["name"]).epsilon(delta) <= site["epsilon"]


def test_where_one_site_takes_part_weights_change_nothing_and_say_so():
    for fields in ({"sites": weighed(3.0)}, {"sites": weighed(1.0, 7.0), "protocol": "local"}):
        made = study(**fields)
        assert set(made.weights().values()) == {WHOLE}
        assert any("change nothing" in note for note in made.notes)


# -- changes, schema


def test_changes_are_checked_again():
    made = study()
    assert made.changed(epsilon=2.0).epsilon == 2.0
    assert made.changed() == made
    with pytest.raises(PrivacyError):
        made.changed(collusion=5)
    # nothing of the unchanged study sticks
    wishing = study(sites=[{"name": "a", "epsilon": 0.5}])
    assert wishing.changed(epsilon=4.0).weights() != wishing.weights()


def test_settled_names_a_protocol_and_changes_nothing_else():
    made = study()
    settled = made.settled()
    assert settled.protocol == "cape"
    assert settled.changed(protocol="auto") == made
    assert settled.settled() is settled


def fits(value, rule, whole):
    """Whether a value fits a JSON schema, as far as ours go."""
    if "$ref" in rule:
        return fits(value, whole["$defs"][rule["$ref"].rsplit("/", 1)[1]], whole)
    if "anyOf" in rule:
        return any(fits(value, one, whole) for one in rule["anyOf"])
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "null": type(None),
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    if "type" in rule and not isinstance(value, kinds[rule["type"]]):
        return False
    if "const" in rule and value != rule["const"]:
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if isinstance(value, str):
        return bool(re.search(rule.get("pattern", ""), value)) and len(value) >= rule.get(
            "minLength", 0
        )
    if isinstance(value, list):
        return len(value) >= rule.get("minItems", 0) and all(
            fits(one, rule["items"], whole) for one in value
        )
    if isinstance(value, dict):
        properties, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        if not set(rule.get("required", ())) <= set(value):
            return False
        return all(
            fits(one, properties[key], whole)
            if key in properties
            else (fits(one, others, whole) if isinstance(others, dict) else others)
            for key, one in value.items()
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            value >= rule.get("minimum", -math.inf)
            and value > rule.get("exclusiveMinimum", -math.inf)
            and value < rule.get("exclusiveMaximum", math.inf)
        )
    return True


@given(studies())
@settings(max_examples=times(75))
def test_schema_takes_every_study(made):
    whole = json.loads(json.dumps(schema()))
    assert fits(made.model_dump(mode="json"), whole, whole)


def test_schema_refuses_what_no_study_can_be():
    whole = schema()
    good = study().model_dump(mode="json")
    assert set(whole["required"]) == {"format", "name", "sites"}
    assert good["format"] == FORMAT
    for wrong in (
        {"extra": 1},
        {"format": "other"},
        {"name": "a b"},
        {"components": 0},
        {"epsilon": 0},
        {"delta": 1},
        {"protocol": "none"},
        {"sites": []},
        {"sites": [{"name": "a", "extra": 1}]},
    ):
        assert not fits(good | wrong, whole, whole), wrong
    assert all("description" in rule for rule in whole["properties"].values())


def test_sites_may_be_given_as_objects():
    assert study(sites=(StudySite(name="a"), StudySite(name="b"))).width == 8
