"""The base class of a configuration's sections, and field types that several sections use."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Any

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what torch's generators take

Imported = Annotated[Any, msgspec.Meta(extra={"takes": "a !pyobject"})]
"""A Python object by its import path."""

DEVICES = ("auto", "cpu", "cuda", "xpu", "mps")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of fields."""

    def __getitem__(self, name: str) -> Any:
        """A field by its name, as in the plain data that the section was made from."""
        if name not in self.__struct_encode_fields__:
            raise KeyError(name)
        return getattr(self, self.__struct_fields__[self.__struct_encode_fields__.index(name)])
