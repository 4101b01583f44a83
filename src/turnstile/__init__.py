"""Turnstile: exact token trajectories from agents that speak text."""
