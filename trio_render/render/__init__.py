"""Requests -> token ids. Plain synchronous functions: no await, no threads, no I/O."""
