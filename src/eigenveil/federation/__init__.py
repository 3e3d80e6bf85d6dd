"""Several sites that keep their rows: studies, roles, masks, the site's ledger; no network."""
