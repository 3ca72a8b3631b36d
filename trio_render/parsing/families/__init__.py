"""The families: tables only. `trio_render.parsing.selection` picks from them."""
