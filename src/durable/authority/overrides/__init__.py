"""Overrides: proposed and ended on the global side, copied by number into the regions they mean."""
