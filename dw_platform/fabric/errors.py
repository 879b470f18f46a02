"""What an operator can ask of the fabric in vain."""

from dw_platform.fabric.limits import TopologyKind
from dw_platform.foundation import UserError


class TopologyFixedError(UserError):
    """A switch was asked for while the limits fix another topology."""

    def __init__(self, wanted: TopologyKind, fixed: str) -> None:
        self.wanted, self.fixed = wanted, fixed
        super().__init__(
            f"The fabric stays a {fixed}, because its limit `topology` says so. "
            f"Run `dw scale set fabric topology={wanted}` to fix {wanted} instead, or topology=auto and switch again."
        )


class NoRoomError(UserError):
    """A switch was asked for to a topology that does not carry the nodes there are."""

    def __init__(self, wanted: TopologyKind, nodes: int, most: int) -> None:
        self.wanted, self.nodes, self.most = wanted, nodes, most
        super().__init__(
            f"A {wanted} carries {most:,} nodes and there are {nodes:,}. "
            f"Choose a larger topology, or raise the limit: dw scale set fabric {wanted}={nodes}."
        )
