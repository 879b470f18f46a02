"""`platform.yaml` as typed, frozen values; `load_config` is the way in.

Loading is quick and touches nothing but the file: no Spark, no Great Expectations, no Dagster.
"""

from dw_platform.config.backups import BackupPolicySection, BackupsSection
from dw_platform.config.checks import CheckSection, QualitySection
from dw_platform.config.load import load_config, parse_config
from dw_platform.config.operations import GatewaySection, ScalingSection
from dw_platform.config.platform import PlatformConfig
from dw_platform.config.problems import ConfigError, Problem
from dw_platform.config.producers import Producer, produced_tables
from dw_platform.config.schema import config_schema, config_schema_text
from dw_platform.config.sources import BrokerSection, DatabaseSection, ExtractSection, StreamSection
from dw_platform.config.storage import GenerateSection, LakeSection, SparkSection, StoreSection, TableSection

__all__ = [
    "BackupPolicySection",
    "BackupsSection",
    "BrokerSection",
    "CheckSection",
    "ConfigError",
    "DatabaseSection",
    "ExtractSection",
    "GatewaySection",
    "GenerateSection",
    "LakeSection",
    "PlatformConfig",
    "Problem",
    "Producer",
    "QualitySection",
    "ScalingSection",
    "SparkSection",
    "StoreSection",
    "StreamSection",
    "TableSection",
    "config_schema",
    "config_schema_text",
    "load_config",
    "parse_config",
    "produced_tables",
]
