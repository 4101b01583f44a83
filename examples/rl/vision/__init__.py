"""A computer-use agent that learns: it looks at a page in Chromium, clicks, types, and says when it is done."""
