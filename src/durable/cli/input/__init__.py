"""Files, flags and names from the command line."""
