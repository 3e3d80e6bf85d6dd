"""The report: one page that stands alone, of every task, and of nothing but what was released."""

import functools
import re
import warnings
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from browser_tools import broken_rules, excess, look
from eigenveil import (
    FederatedPCA,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivateICA,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.app.methods import _IN_WORDS, CUMULANTS, bibtex, methods
from eigenveil.app.report import report_page
from eigenveil.app.results import load_model
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.protocol.certificates import NOT_VALID, Checked, check
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.models.task import TASKS
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.statistics import STATISTICS
from soak_tools import some

EVIL = "<script>alert(1)</script>"
NAMES = [EVIL, "b]]>", "c", "d", "e", "f"]
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(600, 6)) * [9.0, 6.0, 4.0, 1.0, 1.0, 1.0]
FRAME = pd.DataFrame(ROWS, columns=NAMES)


def tree():
    study = make_tree_study(
        MergeTree.with_leaves(3, fan_out=2), features=6, n_components=2, epsilon=4.0, delta=1e-6
    )
    sites = {name: ArrayRows(ROWS[part::3]) for part, name in enumerate("abc")}
    return fit_tree(study, sites, charges=[])


def stream():
    model = PrivateStreamingPCA(2, epsilon=5.0, publish="continual", horizon=3,
                                adjacency="replace-one")  # fmt: skip
    for block in np.split(ROWS, 3):
        model.partial_fit(pd.DataFrame(block, columns=NAMES))
    return model


def mixture():
    means = 8.0 * np.eye(2, 6)
    return PrivateGaussianMixture(2, epsilon=4.0).fit(
        means[RNG.integers(2, size=3000)] + RNG.standard_normal((3000, 6))
    )


def topics():
    parts = np.repeat(np.eye(2), 3, axis=1) / 3
    return PrivateTopicModel(2, epsilon=4.0).fit(RNG.multinomial(15, parts[np.arange(3000) % 2]))


MADE = {
    "pca": lambda: PrivatePCA(3, epsilon=4.0).fit(FRAME),
    "sites": lambda: FederatedPCA(2, epsilon=4.0).fit({"north": FRAME, "south": FRAME + 1.0}),
    "stream": stream,
    "tree": tree,
    "gaussian-mixture": mixture,
    "topic-model": topics,
    "ica": lambda: PrivateICA(2, epsilon=4.0).fit(FRAME),
    "covariance": lambda: PrivateCovariance(epsilon=4.0).fit(FRAME),
    "regression": lambda: MADE["covariance"]().regression([EVIL, "c"], ["b]]>"]),
}


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (PrivatePCA, {}, "Columns were not scaled. Each row was divided by its norm"),
        (PrivatePCA, {"scale": "private"}, "scales that were found within the budget. Each row"),
        (PrivatePCA, {"scale": np.ones(6)}, "divided by public scales. Each row"),
        (PrivatePCA, {"ranges": [[-30.0, 30.0]] * 6}, "clipped to public ranges"),
        (PrivatePCA, {}, "centred at a mean that was found within the budget. Columns"),
        (PrivatePCA, {"center": False}, "Rows were not centred. Columns"),
        (PrivatePCA, {"center": np.zeros(6)}, "centred at a public point. Columns"),
        (PrivatePCA, {"row_norm": "auto"}, "or kept their lengths, by what the releases showed"),
        (PrivatePCA, {"row_norm": 20.0}, "shortened at a public norm of 20."),
        (PrivateCovariance, {}, "Rows kept their lengths up to a bound that was chosen from"),
        (PrivateCovariance, {"row_bound": 20.0}, "shortened at a public norm of 20."),
    ],
)
def test_the_methods_say_what_was_done_to_rows_and_columns(make, options, said):
    model = make(epsilon=4.0, **options).fit(ROWS)
    assert said in methods(model, check(model.certificate_))


@pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("leave-out", "Rows with a missing or infinite entry were left out"),
        ("zero", "were taken for their column's mean"),
        ("independent", "corrected for by noisy counts of each column's entries"),
        ("pairs", "corrected for by noisy counts of each pair of columns"),
    ],
)
def test_the_methods_say_what_became_of_missing_entries_and_whose_rows_are_one(missing, said):
    model = PrivatePCA(2, epsilon=4.0, missing=missing, unit="ward")
    model.fit(FRAME.assign(ward=np.arange(600) // 2))
    found = methods(model, check(model.certificate_))
    assert said in found
    assert "all rows of a unit, told apart by column 'ward', together count as one row" in found
    assert "for adding or removing all rows of one 'ward'" in found
    count = int(found.partition("to about ")[2].partition(" units of 6 features")[0])
    assert count == round(model.n_samples_)
    assert abs(count - 300) < 100  # units, not the 600 rows; over ten deviations of its noise


def test_every_statistic_has_words_of_its_own():
    assert set(_IN_WORDS) == set(STATISTICS)
    assert len(set(_IN_WORDS.values())) == len(STATISTICS)


class Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.text, self.ids = [], [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.ids.append(found.get("id"))
        if tag == "img":
            assert found["alt"]

    def handle_data(self, data):
        self.text += data


@functools.cache
def made(name):
    """A model and its report."""
    with warnings.catch_warnings(action="ignore"):
        model = MADE[name]()
    return model, report_page(model, check(model.certificate_))


@pytest.mark.parametrize("name", some(MADE, step=5))
def test_a_report_is_accessible_and_fits_its_screen(name, browser, tmp_path):
    (tmp_path / "report.html").write_text(made(name)[1], encoding="utf-8")
    for width, dark in ((1280, False), (390, True)):
        look(browser, width=width, dark=dark)
        browser.get((tmp_path / "report.html").as_uri())
        assert broken_rules(browser) == []
        assert excess(browser) <= 0


@pytest.mark.parametrize("name", sorted({*MADE, *TASKS}))
def test_a_report_stands_alone_and_says_what_was_promised(name, tmp_path):
    model, page = made(name)
    found = Reader(page)
    assert not {"script", "iframe", "link", "object"} & set(found.tags)
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in found.links)
    assert {link[1:] for link in found.links if link[0] == "#"} <= set(found.ids)
    assert "img" in found.tags
    for view in model.certificate_.guarantees():
        assert view in found.text
    for text in (*model.guarantee_.assumptions, *model.guarantee_.caveats):
        assert text in found.text
    assert "@software{eigenveil" in found.text
    methods = found.text.partition("We fitted")[2].partition("BibTeX")[0]
    sums = methods.partition("noisy sums over the rows: ")[2].partition(". The guarantee")[0]
    kinds = (
        CUMULANTS if each.name == CUMULANTS else _IN_WORDS[each.statistic]
        for each in model.certificate_.releases
    )
    for kind, count in Counter(kinds).items():
        assert kind + (f" ({count} times)" if count > 1 else "") in sums
    assert model.certificate_.software in methods
    assert model.guarantee_.neighbours in methods
    assert all(name.removesuffix(".md") in methods for name in model.certificate_.proofs)
    about = r"about [\d,]+ rows of " if hasattr(model, "n_samples_") else ""
    assert re.search(rf" to {about}6 features with ", methods)
    assert re.search(r"\b(were left out and not counted|taken for|corrected for)\b", methods)
    assert "predicted losses" not in found.text
    assert str(model.guarantee_) in found.text
    # of the file alone, so of nothing that a fit knows beside what it released; the same bytes
    model.save(tmp_path / "model.npz" if hasattr(model, "load") else tmp_path)
    again = load_model(tmp_path / "model.npz")
    assert report_page(again, check(again.certificate_)) == page


def test_the_report_of_what_follows_is_of_the_covariance_that_was_paid_for():
    model, page = made("regression")
    text = Reader(page).text
    methods = text.partition("We fitted")[2].partition("BibTeX")[0]
    assert re.match(r" mean and covariance to about [56]\d\d rows of 6 features with ", methods)
    count = int(model.source_.usable_.sum())
    assert f"{count} of 6 directions stand above the noise" in methods
    said = f"without reading a row again: linear regression (target: {EVIL}, c; on: b]]>; ridge: 1)"
    assert said in methods
    assert "eigenveil.load_derived('RESULT')" in text
    assert text.count("Linear regression of ") == 2


def test_a_seeded_result_says_at_its_head_that_it_is_not_certified():
    model = PrivatePCA(2, epsilon=4.0, random_state=0).fit(FRAME)
    text = Reader(report_page(model, check(model.certificate_))).text
    assert text.index("NOT CERTIFIED") < text.index("Methods")
    assert "may be published" not in text.split("Result")[0]


def test_a_name_in_a_certificate_cannot_close_its_bibtex_entry():
    model = PrivatePCA(2, epsilon=4.0).fit(FRAME)
    changed = model.certificate_.model_copy(update={"software": "eigenveil 1}\n@evil{x"})
    assert "version = {1evilx}" in bibtex(changed)


def test_the_command_writes_one_file_and_refuses_what_does_not_hold(run, tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    result, deep = tmp_path / "result", tmp_path / "a" / "b" / "page.html"
    fit = ("fit", tmp_path / "rows.csv", "-k", 2, "--epsilon", 4, "--no-ledger", "--quiet")
    assert run(*fit, "--no-plots", "--out", result)[0] == 0
    before = {path.name for path in result.iterdir()}
    status, out, err = run("report", result, "--title", "Sizes <of> persons")
    assert (status, err) == (0, "")
    assert "report.html" in out
    assert {path.name for path in result.iterdir()} - before == {"report.html"}
    assert "<h1>Sizes &lt;of&gt; persons</h1>" in (result / "report.html").read_text()
    assert run("certify", result)[0] == 0
    assert run("report", result)[0] == 7
    assert run("report", result, "--overwrite", "--quiet")[1] == ""
    assert run("report", result, "--out", deep)[0] == 0
    assert deep.exists()
    assert "does not exist" in run.fails("report", tmp_path / "nothing", status=7)


def test_a_certificate_that_does_not_hold_gets_no_report(run, tmp_path, monkeypatch):
    model = PrivatePCA(2, epsilon=4.0).fit(FRAME)
    result = tmp_path / "result"
    result.mkdir()
    model.save(result / "model.npz")
    verdict = Checked(False, NOT_VALID, None, "A release is missing.")
    monkeypatch.setattr("eigenveil.app.report.check", lambda certificate: verdict)
    assert "does not hold" in run.fails("report", result, status=4)
    assert not (result / "report.html").exists()
