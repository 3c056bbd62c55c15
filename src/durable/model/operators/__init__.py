"""Who may do what, and how a message proves its sender."""
