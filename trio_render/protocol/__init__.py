"""Wire types: what travels as JSON. They import nothing of ours but the error types."""
