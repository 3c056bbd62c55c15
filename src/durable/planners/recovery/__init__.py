"""How the loss of a region is distinguished from lesser losses, and from not being able to see."""
