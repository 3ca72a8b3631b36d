"""Engines: token ids in, token ids out. What the front end puts between rendering and derendering."""
