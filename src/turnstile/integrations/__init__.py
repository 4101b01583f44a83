"""Trainers that take trajectories from a running server. A trainer is imported when its function is called."""
