"""The life of a region's nodes: those that are silent become unknown, and then lost."""

import logging

from durable.authority.fleet.node_life import NodeMoves, judge_nodes
from durable.authority.sides import Regional
from durable.controllers.rounds import in_rounds

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
# After its lease has lapsed, until a silent node counts as lost.
GRACE_SECONDS = 30.0


class NodeLifeController:
    """One region's nodes, judged by their leases alone."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional

    async def run(self) -> None:
        await in_rounds(self.once, POLL_SECONDS, f"the nodes of {self._regional.region}")

    async def once(self) -> NodeMoves:
        """Judges every node once; answers which of them have changed."""
        regional = self._regional
        moves = await judge_nodes(regional.databases, regional.region, grace_seconds=GRACE_SECONDS)
        if moves.lost:
            log.warning("%s nodes of %s are lost", len(moves.lost), regional.region)
        return moves
