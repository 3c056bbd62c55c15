"""One slot on its way: requests, reasons to wait, intents, claims and what is recorded of them."""
