"""From sampled ids to reasoning, text and tool calls."""
