"""Tables, progress and sentences on the terminal."""
