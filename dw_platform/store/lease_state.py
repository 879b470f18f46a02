"""Who holds a lease and who waits for it: pure decisions on one small document.

One rule: a claim enters when no holder and nobody ahead of it in the queue conflicts with it, and two claims
conflict when at least one is exclusive. So shared holders enter together, an exclusive claim enters alone, a
waiting exclusive claim stops later shared ones, and neither kind starves the other.

Every claim has an end; one that is over is dropped by whoever looks next.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


class LeaseMode(StrEnum):
    """Together with others, or alone."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Claim:
    """One acquisition, from its first attempt to its release."""

    id: str
    owner: str
    mode: LeaseMode
    expires_at: datetime

    def __str__(self) -> str:
        return f"{self.owner} ({self.mode} until {self.expires_at:%Y-%m-%d %H:%M:%S} UTC)"

    def conflicts_with(self, other: "Claim") -> bool:
        """Return whether the two may not hold at once; a claim does not conflict with itself."""
        return self.id != other.id and LeaseMode.EXCLUSIVE in (self.mode, other.mode)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The claims on one lease; those that wait are in the order of their arrival."""

    holders: tuple[Claim, ...] = ()
    waiting: tuple[Claim, ...] = ()

    def live(self, now: datetime) -> "LeaseState":
        """Return the state without claims that are over."""
        return LeaseState(
            tuple(claim for claim in self.holders if claim.expires_at > now),
            tuple(claim for claim in self.waiting if claim.expires_at > now),
        )

    def holding(self, claim_id: str) -> Claim | None:
        """Return the holder with that id."""
        return next((claim for claim in self.holders if claim.id == claim_id), None)

    def in_the_way_of(self, claim: Claim) -> tuple[Claim, ...]:
        """Return the holders and the earlier waiters that keep `claim` out."""
        ids = [waiter.id for waiter in self.waiting]
        ahead = self.waiting[: ids.index(claim.id)] if claim.id in ids else self.waiting
        return tuple(other for other in (*self.holders, *ahead) if claim.conflicts_with(other))

    def entered(self, claim: Claim) -> "LeaseState":
        """Return the state in which `claim` holds; it must not be kept out."""
        without = self.without(claim.id)
        return replace(without, holders=(*without.holders, claim))

    def queued(self, claim: Claim) -> "LeaseState":
        """Return the state in which `claim` waits, with a new end but in its old place if it had one."""
        if claim.id not in {waiter.id for waiter in self.waiting}:
            return replace(self, waiting=(*self.waiting, claim))
        return replace(self, waiting=tuple(claim if waiter.id == claim.id else waiter for waiter in self.waiting))

    def without(self, claim_id: str) -> "LeaseState":
        """Return the state after the claim has left."""
        return LeaseState(
            tuple(claim for claim in self.holders if claim.id != claim_id),
            tuple(claim for claim in self.waiting if claim.id != claim_id),
        )


def encode(state: LeaseState) -> bytes:
    """Return the state as JSON, readable for an operator who looks into the store."""
    document = {"holders": [_to_json(c) for c in state.holders], "waiting": [_to_json(c) for c in state.waiting]}
    return json.dumps(document).encode()


def decode(value: bytes) -> LeaseState:
    """Return the state that `encode` wrote; raise ValueError for anything else."""
    document = json.loads(value)
    try:
        holders, waiting = document["holders"], document["waiting"]
        return LeaseState(tuple(map(_from_json, holders)), tuple(map(_from_json, waiting)))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error!r} while reading it") from error


def _to_json(claim: Claim) -> dict[str, str]:
    expires_at = claim.expires_at.isoformat()
    return {"id": claim.id, "owner": claim.owner, "mode": claim.mode.value, "expires_at": expires_at}


def _from_json(document: dict[str, str]) -> Claim:
    expires_at = datetime.fromisoformat(document["expires_at"])
    return Claim(document["id"], document["owner"], LeaseMode(document["mode"]), expires_at)
