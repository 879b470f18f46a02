"""The platform file as JSON Schema, for editors: completion, documentation and checking while one types."""

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from dw_platform.config.platform import PlatformConfig

_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
    "description": "A text with environment variables, ${NAME} or ${NAME:-default}.",
}


class _Generator(GenerateJsonSchema):
    """Writes defaults the way people would: 7d, not a number of seconds."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        described = super().default_schema(schema)
        shown = schema["schema"].get("serialization", {})
        if "default" in described and shown.get("type") == "function-plain":
            described["default"] = shown["function"](schema["default"])
        return described


def config_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12); what it accepts may still break a rule across the file, never the reverse."""
    schema = PlatformConfig.model_json_schema(by_alias=True, schema_generator=_Generator)
    schema["$defs"]["Variable"] = _VARIABLE
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": "dw_platform: platform.yaml", **_editable(schema)}


def config_schema_text() -> str:
    """Return the schema as `dw config schema` prints it and docs/platform.schema.json holds it."""
    return json.dumps(config_schema(), indent=2) + "\n"


def _editable(node: Any) -> Any:
    """Return `node` without what only programs need, and with variables and empty keys where the file allows them."""
    if isinstance(node, list):
        return [_editable(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A default that is a whole section or list says nothing that its own fields do not say.
    found = {key: value for key, value in node.items() if key != "title" and not _is_bulky(key, value)}
    if "properties" in found and "if" not in found:
        found["properties"] = {name: _optional(_editable(value)) for name, value in found["properties"].items()}
    for key in found.keys() - {"properties", "if", "default"}:
        found[key] = (
            {name: _editable(value) for name, value in found[key].items()} if key == "$defs" else _editable(found[key])
        )
    return found


def _is_bulky(key: str, value: Any) -> bool:
    return key == "default" and (value is None or value == "" or isinstance(value, dict | list))


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key that may also be a variable, or be left without a value."""
    kept: dict[str, Any] = {key: schema[key] for key in ("description", "examples", "default") if key in schema}
    core = {key: value for key, value in schema.items() if key not in kept}
    options = [option for option in core.get("anyOf", [core]) if option != {"type": "null"}]
    variable = [] if any(_takes_variables(option) for option in options) else [{"$ref": "#/$defs/Variable"}]
    return {**kept, "anyOf": [*options, *variable, {"type": "null"}]}


def _takes_variables(option: dict[str, Any]) -> bool:
    """Return whether a text with a variable is a valid value already, or never is one."""
    types = option.get("type", [])
    types = types if isinstance(types, list) else [types]
    is_free_text = "string" in types and not option.keys() & {"pattern", "enum", "const"}
    return is_free_text or "$ref" in option or bool({"array", "object"} & set(types))
