"""Layout keys, and their counts against enumeration."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.layouts import KEYS, count_layouts, layout_key
from mtp.windows import Group, SlotView, rotate_grow

SIZES = (1, 2, 4)


@pytest.mark.parametrize(("slots", "count"), [(2, 15), (4, 178), (6, 1241), (8, 6053)])
def test_published_key_counts(slots, count):
    assert count_layouts(slots, 8, SIZES, "slots") == count


@pytest.mark.parametrize(("key", "count"), [("ordered", 126), ("sorted", 34), ("rows", 8)])
def test_coarser_key_counts_for_eight_slots(key, count):
    assert count_layouts(8, 8, SIZES, key) == count


def test_keys_of_one_window():
    groups = (Group(1, 2), Group(4, 4), Group(9, 1))
    assert layout_key(groups, "slots") == ((1, 2), (4, 4), (9, 1))
    assert layout_key(groups, "ordered") == (2, 4, 1)
    assert layout_key(groups, "sorted") == (4, 2, 1)
    assert layout_key(groups, "rows") == 7


@pytest.mark.parametrize("key", KEYS)
def test_a_key_does_not_depend_on_the_order_of_the_groups(key):
    groups = (Group(1, 2), Group(4, 4), Group(9, 1))
    assert {layout_key(order, key) for order in permutations(groups)} == {layout_key(groups, key)}


def test_a_key_does_not_depend_on_where_the_rotation_began():
    views = [SlotView(slot, 3, room=9, position=0, context=99) for slot in range(4)]
    assert (
        len({layout_key(rotate_grow(views, start=start).groups, "slots") for start in range(4)})
        == 1
    )


def own_key(layout: tuple[int, ...], key: str) -> Hashable:
    """layout: rows of every slot, 0 = not in the window."""
    lengths = [rows for rows in layout if rows]
    return {
        "slots": layout,
        "ordered": tuple(lengths),
        "sorted": tuple(sorted(lengths)),
        "rows": sum(lengths),
    }[key]


@pytest.mark.parametrize("slots", range(9))
def test_counts_equal_enumeration_up_to_eight_slots(slots):
    layouts = [layout for layout in product((0, *SIZES), repeat=slots) if 1 <= sum(layout) <= 8]
    for rows in range(1, 9):
        fitting = [layout for layout in layouts if sum(layout) <= rows]
        for key in KEYS:
            assert count_layouts(slots, rows, SIZES, key) == len(
                {own_key(layout, key) for layout in fitting}
            ), (rows, key)


@settings(max_examples=80, deadline=None)
@given(
    slots=st.integers(0, 5),
    rows=st.integers(1, 10),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
)
def test_counts_and_keys_agree_for_any_sizes(slots, rows, sizes):
    layouts = [
        layout for layout in product((0, *set(sizes)), repeat=slots) if 1 <= sum(layout) <= rows
    ]
    for key in KEYS:
        seen = {
            layout_key([Group(slot, n) for slot, n in enumerate(layout) if n], key)
            for layout in layouts
        }
        assert (
            count_layouts(slots, rows, sizes, key)
            == len(seen)
            == len({own_key(layout, key) for layout in layouts})
        )


def test_many_slots_are_counted_without_enumeration():
    assert count_layouts(64, 8, (1,), "slots") == sum(
        n for n in (64, 2016, 41664, 635376, 7624512, 74974368, 621216192, 4426165368)
    )


def test_an_unknown_key_is_refused():
    for call in (lambda: layout_key((), "shape"), lambda: count_layouts(2, 8, SIZES, "shape")):
        with pytest.raises(
            ValueError, match="layout key is 'shape', expected one of slots, ordered, sorted, rows"
        ):
            call()


@pytest.mark.parametrize(
    ("slots", "rows", "sizes"), [(-1, 8, SIZES), (2, 0, SIZES), (2, 8, (0, 1)), (2, 8, (-1, 2))]
)
def test_impossible_counts_are_refused(slots, rows, sizes):
    with pytest.raises(ValueError, match="expected slots >= 0, rows >= 1, sizes >= 1"):
        count_layouts(slots, rows, sizes, "slots")
