"""Backups of Delta tables: chains of full and incremental ones in a repository that verifies, restores and forgets."""

from dw_platform.backup.capture import capture_table
from dw_platform.backup.chain import (
    BackupChain,
    CopyPlan,
    KindDecision,
    build_chains,
    current_chain,
    decide_kind,
    full_plan,
    incremental_plan,
)
from dw_platform.backup.contents import FileKind, SourceFile, StoredFile, TableCapture, TableState
from dw_platform.backup.fence import Hold
from dw_platform.backup.findings import Finding, FindingKind, ObjectCheck, VerifyReport, VerifyScope
from dw_platform.backup.health import BrokenBackup, Problem
from dw_platform.backup.journal import Journal
from dw_platform.backup.layout import new_backup_id, time_of
from dw_platform.backup.log_publish import finish_publish, publish_log, undo_publish
from dw_platform.backup.manifest import (
    BackupHeader,
    BackupIdentity,
    BackupKind,
    BackupTotals,
    Manifest,
    new_manifest,
)
from dw_platform.backup.manifests import BackupListing, BackupRef, ManifestStore
from dw_platform.backup.objects import ObjectStore
from dw_platform.backup.packs import is_small, pack_groups
from dw_platform.backup.pins import Pin
from dw_platform.backup.place import Place
from dw_platform.backup.policy import ChainPolicy, RetentionPolicy, SweepPolicy
from dw_platform.backup.reading import Gate, no_gate
from dw_platform.backup.repository import BackupRepository
from dw_platform.backup.repository_errors import (
    BackupNotFoundError,
    KeyMissingError,
    KeyNotNeededError,
    ManifestDamagedError,
    NoRepositoryError,
    NotARepositoryError,
    ObjectDamagedError,
    ObjectMissingError,
    OtherPlatformError,
    RepositoryBusyError,
    RepositoryDamagedError,
    RepositoryForbiddenError,
    RepositoryFullError,
    RepositoryTooNewError,
    RepositoryUnavailableError,
    SourceFileChangedError,
    SourceFileGoneError,
    SourceUnreadableError,
    SweptMeanwhileError,
    TakenOverError,
    WrongKeyError,
)
from dw_platform.backup.restore_claim import read_claim
from dw_platform.backup.restore_files import holds, restore_file
from dw_platform.backup.restore_plan import RestorePlan, plan_restore
from dw_platform.backup.restore_target import claim_target, existing_files
from dw_platform.backup.retention import ExpiryPlan, HeldBackup, plan_expiry
from dw_platform.backup.sweep import SweepReport, expiry, prune
from dw_platform.backup.verify import verify

__all__ = [
    "BackupChain",
    "BackupHeader",
    "BackupIdentity",
    "BackupKind",
    "BackupListing",
    "BackupNotFoundError",
    "BackupRef",
    "BackupRepository",
    "BackupTotals",
    "BrokenBackup",
    "ChainPolicy",
    "CopyPlan",
    "ExpiryPlan",
    "FileKind",
    "Finding",
    "FindingKind",
    "Gate",
    "HeldBackup",
    "Hold",
    "Journal",
    "KeyMissingError",
    "KeyNotNeededError",
    "KindDecision",
    "Manifest",
    "ManifestDamagedError",
    "ManifestStore",
    "NoRepositoryError",
    "NotARepositoryError",
    "ObjectCheck",
    "ObjectDamagedError",
    "ObjectMissingError",
    "ObjectStore",
    "OtherPlatformError",
    "Pin",
    "Place",
    "Problem",
    "RepositoryBusyError",
    "RepositoryDamagedError",
    "RepositoryForbiddenError",
    "RepositoryFullError",
    "RepositoryTooNewError",
    "RepositoryUnavailableError",
    "RestorePlan",
    "RetentionPolicy",
    "SourceFile",
    "SourceFileChangedError",
    "SourceFileGoneError",
    "SourceUnreadableError",
    "StoredFile",
    "SweepPolicy",
    "SweepReport",
    "SweptMeanwhileError",
    "TableCapture",
    "TableState",
    "TakenOverError",
    "VerifyReport",
    "VerifyScope",
    "WrongKeyError",
    "build_chains",
    "capture_table",
    "claim_target",
    "current_chain",
    "decide_kind",
    "existing_files",
    "expiry",
    "finish_publish",
    "full_plan",
    "holds",
    "incremental_plan",
    "is_small",
    "new_backup_id",
    "new_manifest",
    "no_gate",
    "pack_groups",
    "plan_expiry",
    "plan_restore",
    "prune",
    "publish_log",
    "read_claim",
    "restore_file",
    "time_of",
    "undo_publish",
    "verify",
]
