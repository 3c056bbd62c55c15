"""THE NODE: drivers, lease renewal, observation."""
