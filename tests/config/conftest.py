from collections.abc import Callable
from pathlib import Path

import pytest

from dw_platform.config import ConfigError, PlatformConfig, parse_config

Parse = Callable[..., PlatformConfig]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Reads a text as if it stood in platform.yaml in a temporary folder."""

    def read(text: str, **environ: str) -> PlatformConfig:
        return parse_config(text, source=tmp_path / "platform.yaml", environ=environ)

    return read


@pytest.fixture
def refuse(parse: Parse) -> Callable[..., ConfigError]:
    """Reads a text that cannot be used and returns the error."""

    def read(text: str, **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            parse(text, **environ)
        return caught.value

    return read
