"""`durable replace`: places slots of a workload anew, each up before another is stopped."""

from durable.cli.workload_verbs import workload_command

replace = workload_command(
    "replace",
    "replace",
    "Replace slots of a workload, each up before another is stopped.",
    is_followed=True,
).function()
