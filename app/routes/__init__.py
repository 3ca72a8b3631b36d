"""One file per family of endpoints. Handlers read a body, hand it over, and write what comes back."""
