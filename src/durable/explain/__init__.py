"""Why a workload is where it is."""
