"""`python -m turnstile.cli`."""

from turnstile.cli import main

main()
