"""The one path of a request."""
