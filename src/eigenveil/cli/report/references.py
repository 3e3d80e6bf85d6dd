"""What a report cites, as BibTeX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

from eigenveil.privacy.releases import ReleaseRecord

_SOFTWARE = """@software{{eigenveil,
  author  = {{{{The eigenveil authors}}}},
  title   = {{eigenveil: differentially private {{PCA}} and tensor decomposition for data that
             cannot be pooled}},
  version = {{{version}}}
}}"""
_DEFINITION = """@inproceedings{dwork2006calibrating,
  author    = {Dwork, Cynthia and McSherry, Frank and Nissim, Kobbi and Smith, Adam},
  title     = {Calibrating noise to sensitivity in private data analysis},
  booktitle = {Theory of Cryptography Conference},
  pages     = {265--284},
  year      = {2006}
}"""
_GAUSSIAN_DP = """@article{dong2022gaussian,
  author  = {Dong, Jinshuo and Roth, Aaron and Su, Weijie J.},
  title   = {Gaussian differential privacy},
  journal = {Journal of the Royal Statistical Society: Series B},
  volume  = {84},
  number  = {1},
  pages   = {3--37},
  year    = {2022}
}"""
_ANALYZE_GAUSS = """@inproceedings{dwork2014analyze,
  author    = {Dwork, Cynthia and Talwar, Kunal and Thakurta, Abhradeep and Zhang, Li},
  title     = {Analyze {G}auss: optimal bounds for privacy-preserving principal component analysis},
  booktitle = {ACM Symposium on Theory of Computing},
  pages     = {11--20},
  year      = {2014}
}"""
_EXPONENTIAL = """@inproceedings{mcsherry2007mechanism,
  author    = {McSherry, Frank and Talwar, Kunal},
  title     = {Mechanism design via differential privacy},
  booktitle = {IEEE Symposium on Foundations of Computer Science},
  pages     = {94--103},
  year      = {2007}
}"""
_TENSORS = """@article{anandkumar2014tensor,
  author  = {Anandkumar, Animashree and Ge, Rong and Hsu, Daniel and Kakade, Sham M. and
             Telgarsky, Matus},
  title   = {Tensor decompositions for learning latent variable models},
  journal = {Journal of Machine Learning Research},
  volume  = {15},
  pages   = {2773--2832},
  year    = {2014}
}"""
_BY_KEY = {
    "dwork2006calibrating": _DEFINITION,
    "dong2022gaussian": _GAUSSIAN_DP,
    "dwork2014analyze": _ANALYZE_GAUSS,
    "mcsherry2007mechanism": _EXPONENTIAL,
    "anandkumar2014tensor": _TENSORS,
}
_MOMENTS = ("second-moment", "sketch")
_THIRD = ("third-moment", "document-triples")


def keys_of(records: Iterable[ReleaseRecord]) -> tuple[str, ...]:
    """Keys of what the releases of a fit rest on, in the order in which they are cited."""
    found = ["dwork2006calibrating"]
    for record in records:
        if not record.pure:
            found.append("dong2022gaussian")
        if not record.pure and record.mechanism.added and record.statistic in _MOMENTS:
            found.append("dwork2014analyze")
        if not record.mechanism.added:
            found.append("mcsherry2007mechanism")
        if record.statistic in _THIRD:
            found.append("anandkumar2014tensor")
    return tuple(key for key in _BY_KEY if key in found)


def bibtex(certificate: Any) -> str:
    """The software's entry, of the version that fitted, and those of what is cited."""
    return "\n\n".join(_entries(certificate)) + "\n"


def _entries(certificate: Any) -> Iterator[str]:
    fitted = certificate.software.partition(" ")[2] or version("eigenveil")
    # the text is a file's: what could close the entry is left out
    yield _SOFTWARE.format(version="".join(c for c in fitted if c.isalnum() or c in ".+-"))
    for key in keys_of(certificate.releases):
        yield _BY_KEY[key]
