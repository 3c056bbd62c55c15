"""What an apply would do, decided without changing anything."""
