"""Which held tokens a request builds on: digests, matching and the forest."""
