"""Making a restored log visible, finishing that, or taking it back, from wherever a crash has left it.

All files of the log wait in `_delta_log.dw-<job>` until the last one is there. The claim in `_dw_restore.json` says
how far the restore has come (see `restore_claim`), and each step can be repeated:

    publish_log      writing: check and sync everything, note the log's files    -> staged
                     staged: let the log appear                                  -> published
    finish_publish   staged: as above; published                                 -> settled
                     settled: remove the log that was there before, and the claim
    undo_publish     staged, published                                           -> withdrawn
                     withdrawn: put the logs back to where they were             -> writing
                     writing: remove the waiting log, and the claim

On a disk the log appears by one rename; one that was there before is renamed to `_delta_log.dw-before-<job>` first,
so between two renames there is no table, and never half of one. In a bucket files are copied in the order of
`log_order`. A `_last_checkpoint` is no part of it: it only saves a listing, and it may name what was not restored.

Data files that were written stay in either case. Without a log that names them they are what VACUUM removes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dw_platform.backup.contents import FileKind, StoredFile
from dw_platform.backup.delta_listing import LOG
from dw_platform.backup.log_moves import BucketLog, LocalLog
from dw_platform.backup.place import Place
from dw_platform.backup.restore_claim import Claim, Phase, drop_claim, read_claim, write_claim
from dw_platform.backup.restore_errors import LogIncompleteError, RestorePhaseError, TargetClaimedError


def publish_log(target: Place, job: str, files: Iterable[StoredFile]) -> None:
    """Let readers see the restored table; `files` are those of the backup, of which the log's are looked at.

    Raise LogIncompleteError if one of them is not restored yet.
    """
    claim = _held(target, job)
    if claim is None:
        raise RestorePhaseError(target.shown, job, "not under way", "Claim the target and restore its files first.")
    if claim.phase is Phase.WRITING:
        log = {_below(entry): entry.source.size for entry in files if entry.source.kind is FileKind.LOG}
        claim = _stage(target, claim, log)
    if claim.phase not in {Phase.STAGED, Phase.PUBLISHED}:
        raise _not_now(target, claim)
    _show(target, claim)


def finish_publish(target: Place, job: str) -> bool:
    """Complete the restore and forget what was there before; return False if none of that name is under way."""
    claim = _held(target, job)
    if claim is None:
        return False
    if claim.phase in {Phase.WRITING, Phase.WITHDRAWN}:
        raise _not_now(target, claim)
    if claim.phase is not Phase.SETTLED:
        claim = _enter(target, _show(target, claim), Phase.SETTLED)
    _moves(target, claim).forget()
    drop_claim(target)
    return True


def undo_publish(target: Place, job: str) -> bool:
    """Let readers see what they saw before the restore; return False if none of that name is under way."""
    claim = _held(target, job)
    if claim is None:
        return False
    if claim.phase is Phase.SETTLED:
        raise _not_now(target, claim)
    moves = _moves(target, claim)
    if claim.phase is not Phase.WRITING:
        moves.check_unused()
        if claim.phase is not Phase.WITHDRAWN:
            claim = _enter(target, claim, Phase.WITHDRAWN)
        moves.take_back()
        _enter(target, claim, Phase.WRITING)
    moves.forget_staging()
    drop_claim(target)
    return True


def _stage(target: Place, claim: Claim, log: Mapping[str, int]) -> Claim:
    moves = _moves(target, claim)
    staged = moves.staged()
    missing = sorted(name for name, size in log.items() if staged.get(name) != size)
    if missing or not log:
        raise LogIncompleteError(target.shown, missing)
    moves.settle_staging(keep=log)
    return _enter(target, replace(claim, log=dict(log)), Phase.STAGED)


def _show(target: Place, claim: Claim) -> Claim:
    if claim.phase is not Phase.STAGED:
        return claim
    _moves(target, claim).show()
    return _enter(target, claim, Phase.PUBLISHED)


def _enter(target: Place, claim: Claim, phase: Phase) -> Claim:
    entered = replace(claim, phase=phase)
    write_claim(target, entered)
    return entered


def _held(target: Place, job: str) -> Claim | None:
    claim = read_claim(target)
    if claim is not None and claim.job != job:
        raise TargetClaimedError(target.shown, claim.job)
    return claim


def _moves(target: Place, claim: Claim) -> LocalLog | BucketLog:
    return LocalLog(target, claim) if target.is_local else BucketLog(target, claim)


def _below(entry: StoredFile) -> str:
    return entry.source.path.removeprefix(f"{LOG}/")


def _not_now(target: Place, claim: Claim) -> RestorePhaseError:
    advice = {
        Phase.WRITING: "Restore its files and publish the log first, or take the restore back.",
        Phase.SETTLED: "It cannot be taken back any more; finish it.",
        Phase.WITHDRAWN: "It cannot be finished any more; take it back to the end, then restore again.",
    }
    return RestorePhaseError(target.shown, claim.job, claim.phase.value, advice[claim.phase])
