"""Chat templates and tokenizers: render, bridge, plan a prompt."""
