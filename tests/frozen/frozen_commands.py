"""What commands print as JSON: their keys and values, but for times, places, digests and prose."""

import io
import json
import os
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import numpy as np
from frozen_cases import clusters, documents, frame, people, plain
from frozen_tools import known_noise

from eigenveil.cli.app import main

LEFT_OUT = {"plan", "memory_bytes", "standard_error", "captured_energy", "captured_energy_error"}
GONE = {"duration", "exchanges"}  # the second stood within the first
OUT = ("--no-plots", "--json", "--epsilon", "6", "--out")
FIT = ("--one-row-per-person", *OUT)
TWO = ("--site", "a", "--site", "b", "--one-row-per-person")
COMMANDS = {
    "fit": ("fit", "{}/rows.csv", "--exclude", "who", *FIT, "{}/result"),
    "certify": ("certify", "{}/result", "--json"),
    "show": ("show", "{}/result", "--json"),
    "fit of units": ("fit", "{}/units.csv", "--unit", "who", *OUT, "{}/units"),
    "fit of sites": ("fit", "--site", "a={}/a.csv", "--site", "b={}/b.csv", *FIT, "{}/sites"),
    "show of sites": ("show", "{}/sites", "--json"),
    "fit of a mixture": ("fit", "{}/clusters.npy", "--task", "gaussian-mixture", *FIT, "{}/mix"),
    "fit of topics": ("fit", "{}/documents.npy", "--task", "topic-model", *FIT, "{}/topics"),
    "fit of a covariance": ("fit", "{}/a.csv", "--task", "covariance", *FIT, "{}/covariance"),
    "ledger show": ("ledger", "show", "{}/used.ledger", "--json"),
    "ledger verify": ("ledger", "verify", "{}/used.ledger", "--json"),
    "schema new": ("schema", "new", "{}/rows.csv", "--out", "{}/schema.toml", "--json"),
    "schema check": ("schema", "check", "{}/rows.csv", "--schema", "{}/schema.toml", "--json"),
    "schema format": ("schema", "format"),
    "plan": ("plan", "--features", "6", "--rows", "900", "--fits", "2", "--json"),
    "study new": ("study", "new", "{}/s.toml", *TWO, "--features", "6", "--json"),
    "study check": ("study", "check", "{}/s.toml", "--json"),
    "study plan": ("study", "plan", "{}/s.toml", "--rows", "2000", "--fits", "2", "--json"),
    "no such file": ("fit", "{}/none.csv", *FIT, "{}/none"),
    "too little budget": ("fit", "{}/rows.csv", "--exclude", "who", *FIT, "{}/again"),
}


def printed(folder):
    """What each command says, in their order: they share a folder and a ledger."""
    for name, rows in (("rows", plain()), ("units", plain(1200, seed=8))):
        frame(rows).assign(who=people(len(rows))).to_csv(folder / f"{name}.csv", index=False)
    for name, part in zip("ab", np.split(plain(), 2), strict=True):
        frame(part).to_csv(folder / f"{name}.csv", index=False)
    np.save(folder / "clusters.npy", clusters())
    np.save(folder / "documents.npy", documents().toarray())
    places = {"EIGENVEIL_LEDGER": f"{folder}/used.ledger", "EIGENVEIL_STATE": f"{folder}/state"}
    with mock.patch.dict(os.environ, places):
        return {
            name: said(name, [word.format(folder) for word in words])
            for name, words in COMMANDS.items()
        }


def said(name, words):
    """Status, and what is frozen of the standard output."""
    out, err = io.StringIO(), io.StringIO()
    with known_noise(name), redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            main(words)
            status = 0
        except SystemExit as end:
            status = end.code
    text = out.getvalue()
    values = json.loads(text) if text.startswith(("{", "[")) else bool(text)
    return {"status": status, "out": normal(values)}


def normal(value, name=""):
    """A value without what may differ: whatever does is named, so that its key stays."""
    if name in LEFT_OUT:
        return "..."
    if isinstance(value, dict):
        return {key: normal(each, key) for key, each in value.items() if key not in GONE}
    if isinstance(value, list):
        kept = [normal(each) for each in value]
        numbers = kept and not isinstance(kept[0], dict)
        return [len(kept), kept[0]] if numbers and len(kept) > 3 else kept
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str) and (
        len(value) > 40 or re.search(r"[/\\]|\d{4}-\d\d|[0-9a-f]{16}", value)
    ):
        return "..."
    return value
