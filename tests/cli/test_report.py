"""The report: one page that stands alone, of every task, and of nothing but what was released."""

import functools
import warnings
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
from eigenveil.app.report import bibtex, report_page
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.protocol.certificates import NOT_VALID, Verdict, check
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.models.task import TASKS
from eigenveil.moments.source import ArrayRows
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
}


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
    methods = found.text.partition("Rows were read for")[2].partition("all else was")[0]
    assert all(f'"{each.name}"' in methods for each in model.certificate_.releases)
    assert str(model.guarantee_) in found.text
    # of the file alone, so of nothing that a fit knows beside what it released; the same bytes
    model.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    assert report_page(again, check(again.certificate_)) == page


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
    status, _, err = run("report", tmp_path / "nothing")
    assert status == 7
    assert "does not exist" in err


def test_a_certificate_that_does_not_hold_gets_no_report(run, tmp_path, monkeypatch):
    model = PrivatePCA(2, epsilon=4.0).fit(FRAME)
    result = tmp_path / "result"
    result.mkdir()
    model.save(result / "model.npz")
    verdict = Verdict(False, NOT_VALID, None, "A release is missing.")
    monkeypatch.setattr("eigenveil.app.report.check", lambda certificate: verdict)
    status, _, err = run("report", result)
    assert status == 4
    assert "does not hold" in err
    assert not (result / "report.html").exists()
