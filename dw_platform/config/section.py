"""What every part of the platform file has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen part of the file that knows its keys and no others; a field's docstring is its documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # a wrong value may be a misplaced password
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )
