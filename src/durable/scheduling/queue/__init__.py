"""When a request that waits is decided again, and how urgent it is."""
