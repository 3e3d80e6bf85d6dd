"""Models that follow from a released covariance, without any more of the budget."""
