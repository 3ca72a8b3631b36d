"""Reasoning and tool calls in generated text: one incremental machine, and a table per model family."""
