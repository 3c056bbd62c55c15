"""The life of regions: leases, fences, and what is left behind them."""
