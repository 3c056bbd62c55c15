"""What each message does, in a sentence: shown beside it wherever people can send it."""

HOLD = "Place nothing new until resumed."
RESUME = "Go on placing after a hold."
RETRY_NOW = "Look for a place at once."
EVICT = "Stop slots and place them again."
SCALE = "Another number of replicas, at once."
DELETE = "Stop and release everything, then end."
