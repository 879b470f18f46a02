"""From a decision to a limit in force, so that exactly what was applied is what is recorded.

Three writes, each of which may be the last one before a crash:

1. The decision is recorded, not applied. Crash: the record is true, nothing was changed.
2. The limit is set; its own history names the decision. Crash: the limit is in force, the record is behind.
3. The record says that it was applied.

A tick that runs again has the same id and goes on where it stopped, with the value that was recorded and not with what
it would decide by now. Whether the limit was set is read from the limit's history, so an operator's later change is
never overwritten by the second try. A tick that does not run again is settled by the next applier of that subsystem:
its record becomes applied if the history names it, and stays not applied if it does not.

A decision that is only recommended, or held, is recorded once: the same again is no news.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dw_platform.foundation import Clock, UserError
from dw_platform.scaling.control import HISTORY_KEPT, LimitControl
from dw_platform.scaling.decisions import DecisionLog, ScalingDecision, decision_id
from dw_platform.scaling.hold import Holds, ScalingMode, effective_mode
from dw_platform.scaling.limits import apply_changes, limits_to_json
from dw_platform.scaling.records import LimitRecord
from dw_platform.store.contract import PersistentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a sensor wants a limit to be after one of its ticks."""

    sensor: str
    tick: str
    """Names the tick, the same when it runs again: its cursor, or its scheduled time."""

    subsystem: str
    limit: str
    value: Any
    reason: str
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The decision's."""
        return decision_id(self.sensor, self.tick, f"{self.subsystem}.{self.limit}")


class DecisionApplier:
    """Puts proposals in force; used by one thread at a time, by any number of processes."""

    def __init__(
        self, store: PersistentStore, control: LimitControl, clock: Clock, *, log: DecisionLog | None = None
    ) -> None:
        self._control, self._clock = control, clock
        self._log = log or DecisionLog(store)
        self._holds = Holds(store, clock=clock)
        self._settled = set[str]()

    def apply(self, proposal: Proposal, configured: ScalingMode = ScalingMode.ACT) -> ScalingDecision | None:
        """Put `proposal` in force, or record that it would have been; return the record, None if nothing would change.

        A value that the limit does not allow is recorded as refused, because a sensor that raised at each tick would
        hide its other decisions. A store that does not answer raises.
        """
        self.settle(proposal.subsystem)
        recorded = self._log.find(proposal.id)
        if recorded is None:
            decision, acts = self._decision(proposal, configured)
            if decision.after == decision.before:
                return None
            recorded = (None if acts else self._told_before(decision)) or self._log.add(decision)
        return self._finished(recorded)

    def settle(self, subsystem: str) -> None:
        """Mark what an earlier process has applied and did not live to record; looked for once."""
        if subsystem in self._settled:
            return
        for decision in self._log.newest(subsystem):
            if decision.mode is ScalingMode.ACT and not decision.applied and (record := self._set_by(decision)):
                self._log.replace(_as_set(decision, record))
        self._settled.add(subsystem)

    def _decision(self, proposal: Proposal, configured: ScalingMode) -> tuple[ScalingDecision, bool]:
        """Return the decision, and whether it will be acted on."""
        limits = self._control.effective(proposal.subsystem)
        before, refused = limits_to_json(limits).get(proposal.limit), ""
        try:
            after = limits_to_json(apply_changes(limits, {proposal.limit: proposal.value}))[proposal.limit]
        except UserError as error:
            after, refused = str(proposal.value), f"; refused: {error}"
        now = self._clock.now()
        mode = effective_mode(configured, self._holds.current(proposal.subsystem), now)
        decision = ScalingDecision(
            id=proposal.id,
            at=now,
            subsystem=proposal.subsystem,
            limit=proposal.limit,
            before=before,
            after=after,
            reason=proposal.reason + refused,
            decided_by=f"sensor:{proposal.sensor}",
            inputs=proposal.inputs,
            mode=mode,
            applied=False,
        )
        return decision, mode is ScalingMode.ACT and not refused

    def _told_before(self, decision: ScalingDecision) -> ScalingDecision | None:
        """Return the last record about the same limit if it says the same."""
        for earlier in self._log.newest(decision.subsystem):
            if earlier.limit == decision.limit:
                same = (earlier.mode, earlier.before, earlier.after) == (decision.mode, decision.before, decision.after)
                return earlier if same else None
        return None

    def _finished(self, decision: ScalingDecision) -> ScalingDecision:
        if decision.applied or decision.mode is not ScalingMode.ACT:
            return decision
        record = self._set_by(decision)
        if record is None and self._holds.current(decision.subsystem):
            return decision  # the hold came after the decision, and before this try
        try:
            record = record or self._control.set(
                decision.subsystem,
                {decision.limit: decision.after},
                changed_by=decision.decided_by,
                reason=_marked(decision),
            )
        except UserError:
            return decision  # refused, as its reason says
        return self._log.replace(_as_set(decision, record))

    def _set_by(self, decision: ScalingDecision) -> LimitRecord | None:
        """Return the change in the limit's history that this decision made."""
        history = self._control.history(decision.subsystem, limit=HISTORY_KEPT + 1)
        return next((record for record in history if record.reason == _marked(decision)), None)


def _as_set(decision: ScalingDecision, record: LimitRecord) -> ScalingDecision:
    """Return the decision as it was applied: somebody may have changed the limit between deciding and setting.

    If they set the very same value, the record in force is theirs, and this decision changed nothing.
    """
    mine = record.reason == _marked(decision)
    before, _ = record.changes[decision.limit] if mine else (decision.after, decision.after)
    return replace(decision, before=before, applied=True)


def _marked(decision: ScalingDecision) -> str:
    """Return the reason as the limit's history has it: the id is what a second try looks for."""
    return f"{decision.reason} [decision {decision.id}]"
