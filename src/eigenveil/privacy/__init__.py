"""What a guarantee is and how it is computed. Knows no data and draws no noise."""

from eigenveil.privacy.accountant import classic_sigma, delta_of_mu, epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.guarantee import Adjacency, Guarantee

__all__ = [
    "Adjacency",
    "Guarantee",
    "classic_sigma",
    "delta_of_mu",
    "epsilon_of_mu",
    "mu_of_epsilon",
]
