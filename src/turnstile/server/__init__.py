"""HTTP for agents and for whoever runs rollouts."""
