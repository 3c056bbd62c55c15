"""THE NOUNS: frozen values of the domain; no I/O, no clock."""
