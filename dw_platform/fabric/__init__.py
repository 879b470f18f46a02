"""The processes that work together: who they are, whether they live, and who reports to whom."""

from dw_platform.fabric.errors import NoRoomError, TopologyFixedError
from dw_platform.fabric.events import EventKind, FabricEvent, Journal, JournalPage
from dw_platform.fabric.limits import FabricLimits, Pace, SwitchMode, TopologyChoice, TopologyKind
from dw_platform.fabric.manager import FabricScalingManager
from dw_platform.fabric.membership import Address, Claim, NodeKind, NodeState, merge_views
from dw_platform.fabric.node import FabricNode, NodeStatus
from dw_platform.fabric.switching import TopologyDecision, decide_topology
from dw_platform.fabric.topology import Group, Seat
from dw_platform.fabric.view import NodeView, TopologyView, read_nodes, read_topology_view
from dw_platform.fabric.wish import ask_for_switch

__all__ = [
    "Address",
    "Claim",
    "EventKind",
    "FabricEvent",
    "FabricLimits",
    "FabricNode",
    "FabricScalingManager",
    "Group",
    "Journal",
    "JournalPage",
    "NoRoomError",
    "NodeKind",
    "NodeState",
    "NodeStatus",
    "NodeView",
    "Pace",
    "Seat",
    "SwitchMode",
    "TopologyChoice",
    "TopologyDecision",
    "TopologyFixedError",
    "TopologyKind",
    "TopologyView",
    "ask_for_switch",
    "decide_topology",
    "merge_views",
    "read_nodes",
    "read_topology_view",
]
