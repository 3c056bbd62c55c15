"""What people read of a thing, made once from its status: for a page and for a terminal."""
