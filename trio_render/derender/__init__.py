"""Generated token ids -> OpenAI answers. Plain synchronous functions: no await, no threads, no I/O."""
