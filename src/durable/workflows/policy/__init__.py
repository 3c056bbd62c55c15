"""The policy: brings a revision into force region by region, or rolls it back."""
