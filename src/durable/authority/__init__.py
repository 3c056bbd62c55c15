"""THE TRUTH: the only code that knows Postgres."""
