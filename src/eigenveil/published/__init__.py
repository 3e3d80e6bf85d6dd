"""The papers' algorithms exactly as published: for reproduction, never certified."""
