"""Policy revisions on their way: orders, regions, what they show, and recent decisions."""
