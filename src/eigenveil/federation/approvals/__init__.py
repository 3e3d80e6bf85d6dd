"""Decisions of a site: what approvers sign, what it amounts to, and the desk where they do."""
