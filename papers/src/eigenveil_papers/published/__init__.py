"""The papers' algorithms exactly as published: for reproduction, never certified.

Each function returns its result with the guarantee that its paper claims; ``claim.caveats`` say why
that is not certified (docs/published.md has a table). The sound versions are the estimators of
:mod:`eigenveil`.
"""

from eigenveil_papers.published.cape_pca import PublishedMean, cape, capepca
from eigenveil_papers.published.distributed import dispca, djica, dpdispca, full, local, pooled
from eigenveil_papers.published.federated_pca import fpca
from eigenveil_papers.published.gibbs import ppca
from eigenveil_papers.published.infomax import GradientPrivacy, PublishedICA, joint_ica
from eigenveil_papers.published.moments import PublishedMoment, second_moment, second_moments
from eigenveil_papers.published.orthogonal import PublishedTensor, agn, avn, capeagn
from eigenveil_papers.published.power import private_power
from eigenveil_papers.published.result import PublishedPCA
from eigenveil_papers.published.sn import analyze_gauss, wishart_sn
from eigenveil_papers.published.sulq import mod_sulq

__all__ = [
    "GradientPrivacy",
    "PublishedICA",
    "PublishedMean",
    "PublishedMoment",
    "PublishedPCA",
    "PublishedTensor",
    "agn",
    "analyze_gauss",
    "avn",
    "cape",
    "capeagn",
    "capepca",
    "dispca",
    "djica",
    "dpdispca",
    "fpca",
    "full",
    "joint_ica",
    "local",
    "mod_sulq",
    "pooled",
    "ppca",
    "private_power",
    "second_moment",
    "second_moments",
    "wishart_sn",
]
