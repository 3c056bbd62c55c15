"""The policy: brings a revision into force region by region, and takes it back."""
