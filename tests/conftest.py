"""Lets the tests import :mod:`statistics_tools`, which lies beside this file."""

from hypothesis import settings

settings.register_profile("eigenveil", deadline=None, database=None)
settings.load_profile("eigenveil")
