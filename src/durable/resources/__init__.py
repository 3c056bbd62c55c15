"""What can be listed, shown and followed: one table of resources over the authority."""
