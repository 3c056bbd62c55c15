"""Bad input into sentences: quantities, durations, locations in files, problems."""
