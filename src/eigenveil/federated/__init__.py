"""Estimators over several sites, and sites in one process."""
