"""Error codes are declared once: those that are raised, the table and its page agree."""

import pickle
import string
from pathlib import Path

import pytest
from examples import error_page as tool

from eigenveil.errors import DataError, error_codes, number_text, received_code


def test_every_code_that_is_raised_is_declared_and_every_declared_one_is_raised():
    raised = set(tool.statuses())
    assert len(raised) > 250  # the search finds them
    assert raised - set(error_codes()) == set(), "declare these in error_codes.toml"
    assert set(error_codes()) - raised == set(), "nothing raises these: take them out"


def test_every_error_is_made_with_the_facts_that_its_sentence_and_hint_name():
    made = list(tool.constructions())
    wrong = []
    for where, code, given, whole in made:
        if code not in error_codes():
            wrong.append(f"{where}: {code} is not in error_codes.toml")
            continue
        wanted = placeholders(*error_codes()[code]) - {"help"}  # of an option, its own
        if not given <= wanted or (whole and given != wanted):
            wrong.append(f"{where}: {code} is of {sorted(wanted)}, and is given {sorted(given)}")
    assert not wrong, "\n".join(wrong)


def placeholders(*texts):
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}


def test_numbers_are_written_as_people_write_them():
    written = {1e-6: "1e-6", 1.5e-10: "1.5e-10", 1e16: "1e16", 1e-4: "0.0001", 12.0: "12"}
    assert {value: number_text(value) for value in written} == written
    assert number_text(1 / 3e6, 3) == "3.33e-7"
    error = DataError("too-small-for-noise", epsilon=2e-5, delta=1e-10)
    assert error.message.startswith("epsilon = 2e-5 and delta = 1e-10 are")
    error = DataError("unknown-part-of-url", scheme="s3", part="1e-06")  # another's words
    assert "1e-06" in error.message


def test_an_error_says_its_facts_and_keeps_them(monkeypatch):
    monkeypatch.setitem(error_codes(), "odd", ("{name!r} has {count:,}.", "Go."))
    error = DataError("odd", name="{count} {0}", count=1234)
    assert str(error) == "'{count} {0}' has 1,234. Go."
    assert (error.message, error.hint) == ("'{count} {0}' has 1,234.", "Go.")
    assert (error.code, dict(error.facts)) == ("odd", {"name": "{count} {0}", "count": 1234})
    for code in ("odd", "made-up"):  # a fact is missing; it is not declared
        with pytest.raises(KeyError):
            DataError(code, name="a")
    error.spent = 3
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code, again.spent) == (DataError, str(error), "odd", 3)


def test_the_words_of_another_are_not_formatted():
    error = DataError.relayed("{this}", hint="{that}", code="data")
    assert (str(error), error.code, error.args) == ("{this} {that}", "data", ("{this}",))


def test_every_code_has_an_exit_status_and_two_short_sentences():
    known = tool.statuses()
    for code, reported in error_codes().items():
        assert known[code], code
        assert len(reported) == 2, code
        for sentence in reported:
            assert len(sentence) > 4, code
            assert "|" not in sentence, code
        assert reported[0].endswith((".", "?", "}", "here", "answer")), code
    names = list(error_codes())
    assert names == sorted(names, key=lambda code: (code.casefold(), code))


def test_the_page_is_up_to_date():
    text = (Path(tool.__file__).parents[1] / "docs/errors.md").read_text(encoding="utf-8")
    assert text == tool.page(), "run python examples/error_page.py"


def test_exit_statuses_are_those_of_the_classes():
    found = tool.statuses()
    assert found["over-budget"] == [5]
    assert found["no-party"] == [7]
    assert found["rows-in-result"] == [2]
    assert found["stopped"] == [130]
    assert found["bad-party"] == [3, 7]
    assert found["other-session"] == found["study-failed"] == found["problem"] == [6]


@pytest.mark.parametrize("code", ["", "made-up", "\x1b[2J", "over-budget "])
def test_codes_that_other_parties_make_up_are_not_passed_on(code):
    assert received_code(code) == "problem"
    assert received_code("over-budget") == "over-budget"
