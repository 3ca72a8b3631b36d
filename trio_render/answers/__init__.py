"""A rendered request's answer, whole or as a stream: what an engine and a derenderer make of it."""
