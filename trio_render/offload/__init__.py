"""Where CPU work leaves the event loop. Knows no models and no requests."""
