"""The drain: empties nodes, and says what keeps it from that."""
