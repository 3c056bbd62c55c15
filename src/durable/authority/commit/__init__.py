"""The regional commit: a batch of intents becomes truth in one transaction."""
