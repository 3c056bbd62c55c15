"""`durable queue`: who waits for a node, in order, and what for."""

from durable.cli.commands.get import resource_command
from durable.resources.table import QUEUE

queue = resource_command(QUEUE)
