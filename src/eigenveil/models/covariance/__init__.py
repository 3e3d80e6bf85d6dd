"""Private mean and covariance."""
