"""Turnstile: exact token trajectories from agents that speak text."""

__version__ = "0.1.0"
