"""The repository of `platform.yaml`: where it is, how it is opened, and which policies fill it."""

from fnmatch import fnmatchcase
from pathlib import Path

from dw_platform.backup import BackupRepository, ChainPolicy, Place, RetentionPolicy, SweepPolicy
from dw_platform.config import BackupPolicySection, PlatformConfig, produced_tables
from dw_platform.foundation import UserError
from dw_platform.lake.location import TableLocation
from dw_platform.pipelines.platform import Platform


class UnknownPolicyError(UserError):
    """`backups.policies` in platform.yaml has no such policy."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, tuple(known)
        listed = ", ".join(known) if known else "none yet; add one under `backups.policies` in platform.yaml"
        super().__init__(f"There is no backup policy {name}. Policies: {listed}.")


class TableNotInPolicyError(UserError):
    """A policy backs up the tables that it names, and no others."""

    def __init__(self, table: str, policy: str, tables: list[str]) -> None:
        self.table, self.policy, self.tables = table, policy, tuple(tables)
        super().__init__(
            f"The policy {policy} does not name {table}. Its tables: {', '.join(tables) or 'none'}; more are added "
            "under `backups.policies` in platform.yaml."
        )


class BackupKeyUnreadableError(UserError):
    """The file with the key of the repository cannot be read."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"The key of the backups cannot be read from {path}: {cause}. Put the key there, or correct "
            "`backups.encryption.key_file` in platform.yaml; `dw backup key` makes a new one for a new repository."
        )


def find_policy(config: PlatformConfig, name: str) -> BackupPolicySection:
    """Return the policy of that name."""
    for policy in config.backups.policies:
        if policy.name == name:
            return policy
    raise UnknownPolicyError(name, [policy.name for policy in config.backups.policies])


def policy_tables(config: PlatformConfig, policy: BackupPolicySection) -> list[str]:
    """Return the tables that a policy names, by its patterns, sorted; whether they exist yet is another question."""
    return sorted(
        table for table in produced_tables(config) if any(fnmatchcase(table, pattern) for pattern in policy.tables)
    )


def open_repository(platform: Platform, *, create: bool = False) -> BackupRepository:
    """Open the platform's repository; with `create`, make it if there is none."""
    config = platform.config
    return BackupRepository.open(
        place_at(platform, config.backup_repository),
        platform=config.name,
        store=platform.store,
        secret=_secret(config),
        create=create,
        compress=config.backups.compress,
        clock=platform.clock,
    )


def place_at(platform: Platform, uri: str) -> Place:
    """Return a folder or an s3:// address as backups read and write it."""
    section = platform.config.backups.s3
    settings = section.settings() if section else platform.config.lake_settings.s3
    return place_of(TableLocation(uri.rstrip("/"), settings))


def place_of(location: TableLocation) -> Place:
    """Return where a table is, as backups read it."""
    system, root = location.filesystem()
    return Place(system, root)


def chain_policy(policy: BackupPolicySection) -> ChainPolicy:
    """Return when a backup by this policy is a full one."""
    return ChainPolicy(full_every=policy.full_every, max_length=policy.max_chain, max_share=policy.full_share)


def retention_policies(config: PlatformConfig) -> dict[str, RetentionPolicy]:
    """Return what each policy keeps."""
    return {
        policy.name: RetentionPolicy(
            max_count=policy.keep.last, max_age=policy.keep.age, max_bytes=policy.keep.max_size
        )
        for policy in config.backups.policies
    }


def sweep_policy(config: PlatformConfig) -> SweepPolicy:
    """Return how long what no backup needs is spared."""
    grace = config.backups.grace
    return SweepPolicy(grace=grace, notes_for=max(grace, SweepPolicy().notes_for))


def _secret(config: PlatformConfig) -> str | None:
    encryption = config.backups.encryption
    if encryption is None:
        return None
    if encryption.key is not None:
        return encryption.key.get_secret_value()
    assert encryption.key_file is not None  # the file's rules ask for one of the two
    try:
        return encryption.key_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise BackupKeyUnreadableError(encryption.key_file, cause) from error
