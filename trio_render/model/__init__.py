"""The model's text side: tokenizer, token table, chat template. Knows nothing of requests or event loops."""
