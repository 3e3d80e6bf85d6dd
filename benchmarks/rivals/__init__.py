"""Methods of the literature that find components privately, one a file, for comparison only."""

from __future__ import annotations

from benchmarks.rivals.adaptive_covariance import AdaptiveCovariance
from benchmarks.rivals.analyze_gauss import AnalyzeGauss
from benchmarks.rivals.coinpress import CoinPress
from benchmarks.rivals.dp_pca import DpPca, KDpPca
from benchmarks.rivals.emcov import EMCov
from benchmarks.rivals.kendall import SphericalKendall
from benchmarks.rivals.rival import Rival
from benchmarks.rivals.separate_covariance import SeparateCovariance
from benchmarks.rivals.subsample import SubsampleAggregate

RIVALS: tuple[Rival, ...] = (
    AnalyzeGauss(),
    EMCov(),
    CoinPress(),
    SubsampleAggregate(),
    SeparateCovariance(),
    AdaptiveCovariance(),
    DpPca(),
    KDpPca(),
    SphericalKendall(),
)
