"""Lower bounds on the privacy loss of a mechanism, from its outputs alone."""

from eigenveil.audit.bounds import delta_lower_bounds, epsilon_lower_bound, mu_lower_bound
from eigenveil.audit.run import Finding, all_cases, audit, chosen, mechanisms

__all__ = [
    "Finding",
    "all_cases",
    "audit",
    "chosen",
    "delta_lower_bounds",
    "epsilon_lower_bound",
    "mechanisms",
    "mu_lower_bound",
]
