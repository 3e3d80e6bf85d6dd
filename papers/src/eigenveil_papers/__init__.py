"""The five papers' algorithms as published, and their experiments reproduced."""
