"""Several sites that keep their rows: studies, roles, masks and the site's ledger. Knows no network."""
