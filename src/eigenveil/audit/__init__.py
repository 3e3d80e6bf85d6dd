"""Lower bounds on the privacy loss of a mechanism, from its outputs alone."""

from eigenveil.audit.bounds import epsilon_lower_bound, mu_lower_bound

__all__ = ["epsilon_lower_bound", "mu_lower_bound"]
