"""The page about the claims."""

import json

import pytest
from toy_experiment import TOY

from eigenveil.errors import OutputError
from eigenveil_papers.reproduction import page, results
from eigenveil_papers.reproduction.experiment import RunSettings

LOST = "shown at 0 of 1 positions, contradicted at 1, undecided at 0"
WON = "shown at 1 of 1 positions, contradicted at 0, undecided at 0"
pytestmark = pytest.mark.usefixtures("undrawn")


def written(tmp_path, folder="docs/images/reproduction"):
    out = tmp_path / folder
    out.mkdir(parents=True, exist_ok=True)
    outcome = results.make(TOY, RunSettings(scale="toy"), out=out)
    target = tmp_path / "docs" / "reproduction.md"
    page.write_page(out, target)
    return outcome, target.read_text()


def behind(tmp_path, name="000-toy"):
    return (tmp_path / "docs" / "reproduction" / f"{name}.md").read_text()


def test_the_first_page_has_pictures_a_sentence_each_and_counts(tmp_path):
    outcome, text = written(tmp_path)
    picture = "images/reproduction/000-toy"
    for line in (
        "## Paper 000: Differentially private distributed principal component analysis",
        "### 000-toy",
        f"[![Utility of a toy]({picture}.png)](reproduction/000-toy.md)",
        "The paper's 1 claims about it, by positions: contradicted at 1. "
        "[Utility of a toy: settings and verdicts](reproduction/000-toy.md).",
        "| paper 000 | 1 | 0 | 1 | 0 | 0 | 0 | 1 | 0 | 0 |",
        "| [this package](reproduction/eigenveil.md) | 1 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |",
    ):
        assert line in text.splitlines(), line
    assert "Measured at a scale for tests only" in text
    assert outcome.claims[0].measured not in text  # cells are behind
    assert (tmp_path / "docs" / f"{picture}.png").is_file()


def test_the_pages_behind_say_settings_verdicts_and_differences(tmp_path):
    outcome, _ = written(tmp_path)
    measured = outcome.claims[0].measured.replace("|", "\\|")
    text, picture = behind(tmp_path), "../images/reproduction/000-toy"
    for line in (
        "# 000-toy: Utility of a toy",
        "[All figures](../reproduction.md)",
        f"[![Utility of a toy]({picture}.png)]({picture}.svg)",
        "| runs | 2 | not printed | text |",
        "**Beside the authors' own curves.** Theirs are invented.",
        f"| Fig. 1 | theirs is best | {measured} By hand. | **{LOST}** |",
        f"| eigenveil | ours is better | {measured} By hand. | {WON} |",
    ):
        assert line in text.splitlines(), line
    assert f"[means]({picture}.csv), [every run]({picture}.runs.csv.gz)" in text
    own = behind(tmp_path, "eigenveil")
    assert f"| [000-toy](000-toy.md) | ours is better | {measured} By hand. | {WON} |" in own
    assert "theirs is best" not in own


def test_pictures_may_lie_anywhere_and_the_same_claims_give_the_same_page(tmp_path):
    (tmp_path / "docs").mkdir()
    _, text = written(tmp_path, "elsewhere")
    assert "(../elsewhere/000-toy.png)" in text
    assert written(tmp_path, "elsewhere")[1] == text


def test_papers_come_in_their_order_and_other_files_are_left_alone(tmp_path):
    for name, paper in (("003-fig1", "003"), ("000-fig2", "000"), ("000-fig1", "000")):
        values = {"name": name, "paper": paper, "title": name, "about": "", "claims": []}
        values |= {"headline": "", "given": []}
        (tmp_path / f"{name}.json").write_text(json.dumps({**values, "scale": "fast"}))
    (tmp_path / "audit.json").write_text("[1]")
    page.write_page(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    places = [text.index(f"### {name}") for name in ("000-fig1", "000-fig2", "003-fig1")]
    assert places == sorted(places)
    assert "[this package]" not in text
    assert (tmp_path / "page" / "003-fig1.md").is_file()


def test_a_folder_without_claims_is_refused(tmp_path):
    with pytest.raises(OutputError, match="no claims"):
        page.write_page(tmp_path, tmp_path / "page.md")
    (tmp_path / "000-fig1.json").write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        page.write_page(tmp_path, tmp_path / "page.md")


def test_verdicts_in_another_form_are_refused(tmp_path):
    values = {"name": "000-fig1", "paper": "000", "claims": [{"verdict": "holds"}]}
    (tmp_path / "000-fig1.json").write_text(json.dumps(values))
    with pytest.raises(OutputError, match="measure it again"):
        page.write_page(tmp_path, tmp_path / "page.md")
    assert not (tmp_path / "page").exists()


def test_a_caption_says_how_many_runs_its_bars_are_of(tmp_path, monkeypatch):
    results.make(TOY, RunSettings(scale="toy"), out=tmp_path)
    monkeypatch.setattr(page, "captions", lambda: {TOY.name: "Error. Bars: of {runs} runs."})
    claims = tmp_path / f"{TOY.name}.json"
    stored = json.loads(claims.read_text())
    for here, said in (("10; 1 of b", "10"), ("20; 5 of a; 10 of b", "5 to 20"), ("1", "1")):
        stored["given"] = [{"what": "runs", "here": here, "paper": "10", "whence": "text"}]
        claims.write_text(json.dumps(stored))
        page.write_page(tmp_path, tmp_path / "page.md")
        text = (tmp_path / "page" / f"{TOY.name}.md").read_text()
        assert f"**The picture.** Error. Bars: of {said} runs.\n" in text
