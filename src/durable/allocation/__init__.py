"""Which region gets which slots: admission, and moves out of a lost region."""
