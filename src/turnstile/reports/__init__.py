"""What a person wants to know about a store: drift, replay."""
