"""A site's ledger: what was spent on its rows, durable and chained."""
