"""The neutral trajectory format: assemble, validate, read and write."""
