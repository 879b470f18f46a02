"""A repository in a bucket: backed up, verified, healed, restored to a folder and to the bucket, pruned."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from dw_platform.backup import BackupKind
from dw_platform.foundation import FakeClock
from dw_platform.pipelines.backup_care import prune_backups, verify_backups
from dw_platform.pipelines.backup_jobs import recorded_jobs
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table
from tests.pipelines.backups import ORDERS, back_up, grow, headers, held, objects_of, open_shop, shop_text
from tests.servers import start_s3

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        with urlopen(Request(f"{endpoint}/bucket", method="PUT"), timeout=10):
            pass
        yield endpoint


def test_a_bucket_keeps_backups_as_a_folder_does(s3: str, tmp_path: Path) -> None:
    access = f"s3: {{endpoint: {s3}, access_key: key, secret_key: secret}}"
    backups = f"repository: s3://bucket/backups\n  {access}\n  encryption: {{key: correct horse battery staple}}"
    text = shop_text(backups=backups, policy="keep: {last: 2}").replace("lake:\n", f"lake:\n  {access}\n", 1)
    clock = FakeClock(datetime.now(UTC))
    with open_shop(tmp_path, text, clock) as platform:
        for kind in (BackupKind.FULL, BackupKind.INCREMENTAL):
            grow(platform, size=400_000)
            grow(platform, size=200_000)
            assert back_up(platform).kind is kind
        repository = open_repository(platform)
        first, second = [header.backup_id for header in headers(platform)]
        name = objects_of(repository, second, only=True)[0]
        path = f"bucket/backups/objects/{name}"
        system = repository.place.system
        content = bytearray(system.open_input_file(path).read())
        content[len(content) // 2] ^= 1
        with system.open_output_stream(path) as stream:
            stream.write(bytes(content))
        assert set(verify_backups(platform).broken) == {second}
        assert restore_table(platform, ORDERS, str(tmp_path / "older")).backup_id == first
        third = back_up(platform).backup_id
        assert verify_backups(platform).healthy
        for target in (str(tmp_path / "newest"), "s3://bucket/restored"):
            restore_table(platform, ORDERS, target)
            assert held(platform, target)[0].equals(held(platform)[0])
            assert held(platform, target)[1] == 4
        assert [header.backup_id for header in prune_backups(platform).plan.remove] == [first]
        clock.advance(timedelta(days=40).total_seconds())
        swept = prune_backups(platform).swept
        assert swept is not None
        assert swept.files > 0, "what was set aside, and what only the first one needed"
        assert verify_backups(platform).healthy
        restore_table(platform, ORDERS, str(tmp_path / "last"), backup_id=third)
        assert held(platform, tmp_path / "last")[0].equals(held(platform)[0])
        assert recorded_jobs(platform) == []
