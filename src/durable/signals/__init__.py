"""THE MESSAGES: payloads, names and typed senders; the contract with operators."""
