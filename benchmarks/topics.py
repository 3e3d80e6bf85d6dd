"""Topics of documents that have several: error on synthetic ones, coherence on corpora found here.

Corpora are read where they are (descriptions of Debian's packages, manual pages); nothing of them
is kept. Run with ``python -m benchmarks.topics``.
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from eigenveil import PrivateTopicModel

DELTA, TOPICS, WORDS = 1e-5, 10, 2000
# Words of a topic that coherence and diversity look at.
_COHERENT, _DIVERSE = 10, 25
# Of a fit whose noise is next to nothing.
_NO_PRIVACY = 1e6


def mixed_documents(
    seed: int, *, topics: int = 10, words: int = 1000, count: int = 100_000, length: int = 100
) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Documents of latent Dirichlet allocation with alpha0 = 1, and topics of a Dirichlet(0.1)."""
    rng = np.random.default_rng(seed)
    made = rng.dirichlet(np.full(words, 0.1), topics)
    shares = rng.dirichlet(np.full(topics, 1.0 / topics), count)
    drawn = np.array([rng.multinomial(length, share) for share in shares])
    rows = [np.repeat(np.arange(count), drawn[:, k]) for k in range(topics)]
    columns = [rng.choice(words, size=each.size, p=made[k]) for k, each in enumerate(rows)]
    places = (np.concatenate(rows), np.concatenate(columns))
    counts = scipy.sparse.coo_array((np.ones(places[0].size), places), shape=(count, words))
    return counts.tocsr(), made


def l1_error(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Mean L1 distance of matched topics; of one that was not found, 2."""
    distances = np.abs(found[:, None] - true[None]).sum(axis=2)
    rows, columns = scipy.optimize.linear_sum_assignment(distances)
    return float((distances[rows, columns].sum() + 2.0 * (len(true) - len(rows))) / len(true))


def coherence(topics: NDArray[np.float64], counts: Any) -> float:
    """Mean normalised pointwise mutual information of pairs of each topic's first words."""
    present = (counts > 0).astype(np.float64).tocsc()
    found = []
    for topic in topics:
        some = present[:, np.argsort(-topic, kind="stable")[:_COHERENT]]
        together = (some.T @ some).toarray() / present.shape[0]
        for i, j in combinations(range(_COHERENT), 2):
            both, apart = together[i, j], together[i, i] * together[j, j]
            found.append(np.log(both / apart) / -np.log(both) if 0 < both < 1 else -1.0)
    return float(np.mean(found))


def diversity(topics: NDArray[np.float64]) -> float:
    """Share of different words among the first ones of all topics."""
    first = np.argsort(-topics, axis=1, kind="stable")[:, :_DIVERSE]
    return float(np.unique(first).size / first.size)


def descriptions() -> Iterator[str]:
    """Short descriptions of Debian's packages."""
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout
    for block in listed.decode(errors="ignore").split("\n\n"):
        if found := re.search(r"^Description(?:-en)?: (.*(?:\n .*)*)", block, re.MULTILINE):
            yield found[1]


def manual_pages() -> Iterator[str]:
    """Manual pages without their markup."""
    for path in sorted(Path("/usr/share/man").glob("man*/*.gz")):
        if not path.is_symlink():
            text = gzip.decompress(path.read_bytes()).decode(errors="ignore")
            yield re.sub(r"\\f.|\\\(..|\\[-&]|^\.[A-Za-z]+", "", text, flags=re.MULTILINE)


def counted(texts: Iterator[str]) -> tuple[Any, NDArray[Any]]:
    """Counts of the most frequent words, and these: a public list would be taken in earnest."""
    counter = CountVectorizer(
        stop_words="english", token_pattern=r"[a-z]{3,}", max_features=WORDS, max_df=0.3
    )
    counts = counter.fit_transform(list(dict.fromkeys(texts)))
    return counts, counter.get_feature_names_out()


def main() -> None:
    """All numbers."""
    counts, true = mixed_documents(0)
    for epsilon in (_NO_PRIVACY, 1.0):
        for alpha0 in (0.0, 1.0):
            model = PrivateTopicModel(TOPICS, epsilon=epsilon, delta=DELTA, alpha0=alpha0)
            print(f"synthetic: epsilon {epsilon:g}, alpha0 {alpha0:g}: L1", end=" ", flush=True)
            print(f"{l1_error(model.fit(counts).topics_, true):.4f}", flush=True)
    for name, texts in (("descriptions", descriptions), ("manual pages", manual_pages)):
        counts, _ = counted(texts())
        print(f"{name}: {counts.shape[0]} documents, mean {counts.sum(axis=1).mean():.1f} words")
        rival = LatentDirichletAllocation(
            TOPICS, learning_method="online", max_iter=5, batch_size=1024, random_state=0
        )
        _say(name, "scikit-learn, not private", rival.fit(counts).components_, counts)
        for epsilon in (1.0, 3.0):
            for pair in ("sketch", "full"):
                model = PrivateTopicModel(
                    TOPICS, epsilon=epsilon, delta=DELTA, alpha0=1.0, pair=pair
                ).fit(counts)
                _say(name, f"epsilon {epsilon:g}, pair={pair!r}", model.topics_, counts)


def _say(name: str, what: str, topics: NDArray[np.float64], counts: Any) -> None:
    found = f"NPMI {coherence(topics, counts):.3f}, diversity {diversity(topics):.2f}"
    print(f"{name}: {what}: {len(topics)} topics, {found}", flush=True)


if __name__ == "__main__":
    main()
