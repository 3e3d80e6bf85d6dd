"""The roles of a study and the messages between them."""
