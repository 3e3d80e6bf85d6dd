"""The models: what each can be asked, and where its parts are."""
