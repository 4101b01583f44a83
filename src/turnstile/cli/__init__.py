"""Commands: parse, call, print. No rule lives here."""
