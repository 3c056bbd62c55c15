"""What a region could take of a workload, and which slots each region gets."""
