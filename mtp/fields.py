"""Fields of frozen settings that keep another type than they are given: configs and callers give
lists, and settings with lists would neither hash nor equal those with tuples."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, overload

T = TypeVar("T")
Kept = TypeVar("Kept")


class _Converted(Generic[T, Kept]):
    """A descriptor that a dataclass takes for a field with or without a default."""

    convert: ClassVar[Any]

    def __init__(self, *default: T, required: bool | None = None) -> None:
        self._default = default
        self._required = not default if required is None else required

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, settings: None, owner: type) -> Kept: ...

    @overload
    def __get__(self, settings: object, owner: type | None = None) -> Kept: ...

    def __get__(self, settings: Any, owner: type | None = None) -> Any:
        """Of the class: the default, which is how `dataclass` asks for it."""
        if settings is not None:
            return settings.__dict__[self._name]
        if self._required:
            raise AttributeError(f"{self._name} has no default")
        return self.convert(self._default)

    def __set__(self, settings: Any, value: Any) -> None:
        settings.__dict__[self._name] = self.convert(value)


class Tupled(_Converted[T, tuple[T, ...]]):
    """`sizes: Tupled[int] = Tupled(1, 2, 4)`; `Tupled()` has no default."""

    convert = tuple


class Frozen(_Converted[T, frozenset[T]]):
    """The same, kept as a frozenset."""

    convert = frozenset
