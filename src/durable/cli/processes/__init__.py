"""Commands that are processes of the control plane, and how they end."""
