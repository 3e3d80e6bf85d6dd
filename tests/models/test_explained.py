"""Explained variances beside the released eigenvalues."""

import numpy as np

from eigenveil.models.explained import with_eigenvalues


def test_a_released_energy_of_zero_says_nothing_of_the_eigenvalues():
    along, strengths = np.array([3.0, 1.0]), np.array([2.0, 0.5])
    for energy in (0.0, -1.0):
        found, other = with_eigenvalues(along, 5.0, 0.1, strengths, 0.2, energy, unit_rows_of=None)
        assert np.array_equal(found, along)
        assert np.array_equal(other, [0.0, 0.0])
