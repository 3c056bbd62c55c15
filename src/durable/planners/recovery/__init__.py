"""How the loss of a region is told from lesser losses, and from not being able to see."""
