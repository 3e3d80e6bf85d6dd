"""What several sites agree on."""
