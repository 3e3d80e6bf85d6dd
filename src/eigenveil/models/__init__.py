"""The models: what each offers, and where its parts are."""
