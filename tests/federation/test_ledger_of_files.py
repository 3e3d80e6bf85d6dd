"""By what a ledger knows a table again: its files' places and contents, and what follows."""

import json
import os
import shutil
import warnings

import numpy as np
import pytest

import eigenveil
from eigenveil.errors import BudgetExceeded, DataError, LedgerWarning
from eigenveil.federation.ledger import fits
from eigenveil.federation.ledger.fits import content_mark, marks_of, place_mark, usual_name
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.io import open_rows
from ledger_tools import refused, tamper

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.errors.NoisyResultWarning")
KEY = bytes(range(32))
X = np.random.default_rng(0).normal(size=(20000, 3)) * [9, 1, 1]


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "tables.ledger")


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "table.npy", X)


def write(file, rows):
    np.save(file, rows)
    return file


def fit(place, *files, epsilon=1.0, **given):
    """What the ledger said of it."""
    model = eigenveil.PrivatePCA(1, epsilon=epsilon, ledger=place, **given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit_rows(open_rows(files))
    return [str(each.message) for each in caught if each.category is LedgerWarning]


def accounts(place):
    return [each.budget.data_set for each in Ledger(place).standings()]


def raise_budgets(place, epsilon=20.0):
    for standing in Ledger(place).standings():
        budget = standing.budget
        Ledger(place).set_budget(type(budget)(**{**vars(budget), "epsilon": epsilon}))


def test_a_table_is_called_by_its_path_and_charged_again(place, table):
    (said,) = fit(place, table)
    assert "opened an account" in said
    assert accounts(place) == [str(table)]
    with pytest.raises(BudgetExceeded):
        fit(place, table)


@pytest.mark.parametrize("how", ["copied", "renamed", "linked", "linked hard", "elsewhere"])
def test_a_copied_or_renamed_table_has_the_same_account(place, table, tmp_path, how):
    fit(place, table)
    other = tmp_path / "other.npy"
    match how:
        case "copied":
            shutil.copy(table, other)
        case "renamed":
            table.rename(other)
        case "linked":
            other.symlink_to(table)
        case "linked hard":
            other.hardlink_to(table)
        case "elsewhere":
            (tmp_path / "folder").mkdir()
            other = tmp_path / "folder" / "table.npy"
            shutil.copy(table, other)
    with pytest.raises(BudgetExceeded):
        fit(place, other)
    raise_budgets(place)
    said = fit(place, other)
    assert ("another place" in " ".join(said)) is (how != "linked")
    assert accounts(place) == [str(table)]


def test_a_table_that_grew_or_changed_keeps_its_account(place, table):
    fit(place, table)
    for rows in (np.vstack([X, X[:5]]), X + 1):
        write(table, rows)
        with pytest.raises(BudgetExceeded):
            fit(place, table)
    raise_budgets(place)
    (said,) = fit(place, table)
    assert "1 of the files changed" in said
    assert fit(place, table) == []
    assert accounts(place) == [str(table)]
    # and so does a copy of any version of it
    copy = write(table.parent / "copy.npy", X)
    assert "another place" in fit(place, copy)[0]


def test_a_table_that_grew_keeps_an_account_of_any_name(place, table):
    fit(place, table, data_set="patients")
    write(table, np.vstack([X, X[:5]]))
    with pytest.raises(BudgetExceeded, match="patients"):
        fit(place, table)
    assert accounts(place) == ["patients"]


def test_another_table_has_another_account(place, table, tmp_path):
    other = write(tmp_path / "other.npy", X + 1)
    fit(place, table)
    fit(place, other)
    assert accounts(place) == [str(table), str(other)]


def test_no_selection_of_files_is_new(place, table, tmp_path):
    """Whatever file was charged before charges its account again, with whatever others."""
    second, third = write(tmp_path / "b.npy", X + 1), write(tmp_path / "c.npy", X + 2)
    fit(place, table, second)
    assert accounts(place) == [f"{table} and 1 more"]
    for files in ([table], [second], [second, third], [third, table]):
        with pytest.raises(BudgetExceeded):
            fit(place, *files)
    fit(place, third)
    raise_budgets(place)
    said = fit(place, third, table)
    assert "all accounts that its files belong to" in said[-1]
    spent = [each.spent.mu_squared for each in Ledger(place).standings()]
    assert spent[0] == pytest.approx(spent[1])
    assert len(accounts(place)) == 2


def test_a_new_name_is_no_new_table(place, table):
    """The named account is charged, and so is the one that the file has."""
    fit(place, table)
    with pytest.raises(BudgetExceeded, match=str(table)):
        fit(place, table, data_set="mine")
    assert accounts(place) == [str(table)]  # nor was one opened
    raise_budgets(place)
    fit(place, table, data_set="mine")
    assert accounts(place) == [str(table), "mine"]
    assert all(each.spent.mu_squared > 0.05 for each in Ledger(place).standings())


def test_an_account_may_be_opened_by_its_path_before_the_first_fit(place, table):
    budget = eigenveil.Budget(str(table), "add-remove", 3.0, 1e-6)
    Ledger(place).set_budget(budget)
    assert not any("opened an account" in each for each in fit(place, table))
    assert Ledger(place).budget(str(table)) == budget


def test_what_is_known_by_its_place_is_refused_before_it_is_read(place, table, monkeypatch):
    fit(place, table)
    monkeypatch.setattr(fits, "content_mark", lambda *_: 1 / 0)
    rows = open_rows([table])
    monkeypatch.setattr(type(rows), "blocks", lambda _: 1 / 0)
    for adjacency in ("add-remove", "replace-one"):
        with pytest.raises(eigenveil.PrivacyError):
            eigenveil.PrivatePCA(1, ledger=place, adjacency=adjacency).fit_rows(rows)


# -- the digests


def test_the_digests_are_keyed_by_the_ledger(place, table, tmp_path):
    other = str(tmp_path / "other.ledger")
    for each in (place, other):
        fit(each, table)
    found = [
        json.loads(entry.line())["body"]["marks"]
        for each in (place, other)
        for entry in Ledger(each).entries()
        if entry.kind == "files"
    ]
    assert len(found) == 2
    assert not {*found[0][0].values()} & {*found[1][0].values()}


def test_neither_key_nor_digest_leave_the_ledger(place, table, tmp_path, monkeypatch):
    made = []
    marks = marks_of
    monkeypatch.setattr(
        "eigenveil.federation.ledger.fits.marks_of",
        lambda files, key: made.append((key, marks(files, key))) or made[-1][1],
    )
    model = eigenveil.PrivatePCA(1, ledger=place).fit_rows(open_rows([table]))
    model.save(tmp_path / "model.npz")
    ((key, (mark,)),) = made
    with np.load(tmp_path / "model.npz") as stored:
        saved = {name: stored[name].tolist() for name in stored.files}
    text = json.dumps([saved, model.certificate_.model_dump(mode="json")])
    assert not [each for each in (key.hex(), mark.path, mark.content, str(table)) if each in text]
    exported = "".join(entry.line() for entry in Ledger(place).entries())
    assert key.hex() not in exported
    assert mark.content in exported  # what no key is beside says nothing of the file


def test_a_damaged_key_is_told(place, table):
    fit(place, table)
    tamper(place, "UPDATE ledger_head SET key = 'x'")
    refused("ledger-damaged", fit, place, table)


def test_a_large_file_is_read_in_pieces(tmp_path, monkeypatch):
    for name, value in (("_WHOLE", 1000), ("_PIECE", 10), ("_PIECES", 5)):
        monkeypatch.setattr(fits, name, value)
    file = tmp_path / "large"
    content = bytearray(os.urandom(5000))
    file.write_bytes(content)
    first = content_mark(file, KEY)
    assert [*fits._starts(5000)] == [0, 1247, 2495, 3742, 4990]
    for place, seen in ((0, True), (4999, True), (1250, True), (600, False)):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        assert (content_mark(file, KEY) != first) is seen
    file.write_bytes(content + b"x")
    assert content_mark(file, KEY) != first  # whatever its size is


def test_every_byte_of_a_small_file_counts(tmp_path):
    file = tmp_path / "small"
    seen = set()
    for content in (b"", b"\0", b"\0\0", b"a", b"b", b"ab", b"ba", bytes(3 << 20)):
        file.write_bytes(content)
        seen.add(content_mark(file, KEY))
    assert len(seen) == 8
    with pytest.raises(DataError):
        content_mark(tmp_path / "none", KEY)


def test_names_of_new_accounts(tmp_path):
    assert usual_name([tmp_path / "a.csv"]) == str(tmp_path / "a.csv")
    assert usual_name([tmp_path / "a", tmp_path / "b"]) == f"{tmp_path / 'a'} and 1 more"
    for name in ("x" * 201, "new\nline"):
        found = usual_name([tmp_path / name])
        assert found.startswith("table ")
        assert found.isprintable()
        assert len(found) < 200
    assert place_mark(tmp_path / "a", KEY) != place_mark(tmp_path / "b", KEY)
