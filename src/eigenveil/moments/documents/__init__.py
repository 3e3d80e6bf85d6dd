"""Sums over documents of words: pairs and triples, released as matrices and tensors."""
