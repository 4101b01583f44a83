"""Inference engines: ids in, ids and log-probabilities out."""
