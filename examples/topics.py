"""Private topics of real text: the paragraphs of the Python documentation on this machine.

Every paragraph of a docstring of the standard library and of the installed scientific packages is
a document. Nothing is downloaded, but with ``--corpus 20newsgroups``, whose posts scikit-learn
fetches from the network.

    python examples/topics.py
    python examples/topics.py --epsilon 4 --figure topics.png
"""

from __future__ import annotations

import argparse
import re
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import CountVectorizer

from eigenveil import PrivacyError, PrivateTopicModel, plots

PACKAGES = ("numpy", "scipy", "sklearn", "matplotlib", "pandas")
FEWEST_WORDS = 3
# A string that begins a line: with few exceptions a docstring.
DOCSTRING = re.compile(r'^[ \t]*r?"""(.*?)"""', re.MULTILINE | re.DOTALL)


def paragraphs() -> Iterator[str]:
    """Paragraphs of docstrings of the standard library and of packages, tests left out."""
    packages = Path(sysconfig.get_path("purelib"))
    folders = [Path(sysconfig.get_path("stdlib")), *(packages / name for name in PACKAGES)]
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            inside = file.relative_to(folder).parts
            if any("test" in part or part.startswith(("site-", "dist-")) for part in inside):
                continue
            for text in DOCSTRING.findall(file.read_text(encoding="utf-8", errors="ignore")):
                yield from text.split("\n\n")


def documents(corpus: str) -> list[str]:
    """The documents of a corpus."""
    if corpus == "docstrings":
        return list(paragraphs())
    posts: list[str] = fetch_20newsgroups(
        subset="all", remove=("headers", "footers", "quotes"), random_state=0
    ).data
    return posts


def say(text: str) -> None:
    """Print a text in lines that fit."""
    print(textwrap.fill(text, 96))


def main() -> None:
    """Count words, fit privately, print the likeliest words of each topic."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", choices=("docstrings", "20newsgroups"), default="docstrings")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--words", type=int, default=300, help="size of the vocabulary")
    parser.add_argument("--figure", type=Path, help="file for a figure, such as topics.png")
    options = parser.parse_args()

    start = time.monotonic()
    try:
        texts = documents(options.corpus)
    except OSError as error:
        raise SystemExit(f"{options.corpus} cannot be fetched: {error}") from None
    counter = CountVectorizer(
        stop_words="english",
        max_features=options.words,
        token_pattern=r"(?u)\b[a-z]{3,}\b",
        binary=True,  # a word that is said again says little
    )
    counts = counter.fit_transform(texts)
    used = int(np.count_nonzero(np.asarray(counts.sum(axis=1)).ravel() >= FEWEST_WORDS))
    print(f"corpus: {len(texts):,} documents read in {time.monotonic() - start:.1f} s")
    size = counts.shape[1]
    print(f"used: {used:,} documents with {FEWEST_WORDS} or more of {size} words")
    say(
        "note: here the vocabulary is the most frequent words of these very texts, which is not "
        "private. In earnest take a public list of words; the guarantee below is about the counts."
    )

    start = time.monotonic()
    model = PrivateTopicModel(epsilon=options.epsilon, delta=1e-6)
    try:
        model.fit(counts)
    except PrivacyError as error:
        raise SystemExit(f"no result: {error.message}\n{error.hint}") from None
    print(f"\nfitted in {time.monotonic() - start:.1f} s; one document counts as one row:")
    say(str(model.guarantee_))

    print(f"\n{model.n_components_} topics stand above the noise at epsilon {options.epsilon:g}:")
    names = counter.get_feature_names_out()
    for number, (weight, words) in enumerate(
        zip(model.weights_, model.top_words(names, n_words=9), strict=True), start=1
    ):
        print(f"  topic {number:<2} {100 * weight:4.1f} %  {' '.join(words)}")
    strengths = ", ".join(f"{value:.0f}" for value in model.strengths_[: model.n_components_ + 1])
    print(f"\nstrengths {strengths}; noise alone shows up to {model.noise_floor_:.0f}.")
    say(
        "What stands above the noise is all there is to see: real text has no sharp topics, and "
        "frequent words are common to most of them. The last ones are just above the noise and "
        "vague. More documents, fewer words in the vocabulary or a larger epsilon show more topics."
    )
    if options.figure is not None:
        plots.save_figure(plots.plot_topics(model, names), options.figure)
        print(f"written: {options.figure}")


if __name__ == "__main__":
    main()
