"""The items table of a store: one row an item, in the order of the activations, as Parquet."""

from __future__ import annotations

import io

import pandas as pd

from sally_anne.core.errors import StoreError


def items_to_bytes(items: pd.DataFrame) -> bytes:
    """The table as Parquet, the same bytes for the same table.

    Raises:
        StoreError: no column `item_id`, an id that is missing or not unique, or a value that
            Parquet cannot hold.
    """
    if "item_id" not in items.columns:
        raise StoreError(f"the items table has no column 'item_id', only {list(items.columns)}.")
    if items["item_id"].isna().any():
        raise StoreError("the items table has rows without an item_id.")
    if items["item_id"].duplicated().any():
        first = items.loc[items["item_id"].duplicated(), "item_id"].iloc[0]
        raise StoreError(f"the items table has item_id {first!r} more than once.")
    buffer = io.BytesIO()
    try:
        items.reset_index(drop=True).to_parquet(buffer, engine="pyarrow", index=False)
    except (ValueError, TypeError) as error:  # pyarrow's own errors are kinds of these
        raise StoreError(f"the items table cannot be stored as Parquet: {error}") from error
    return buffer.getvalue()


def items_from_bytes(data: bytes) -> pd.DataFrame:
    """The table that `items_to_bytes` wrote."""
    return pd.read_parquet(io.BytesIO(data), engine="pyarrow")


def first_difference(stored: pd.DataFrame, given: pd.DataFrame) -> str | None:
    """Say where two items tables differ first, or None. Both must come from `items_from_bytes`."""
    if list(stored.columns) != list(given.columns):
        return f"columns {list(stored.columns)} in the store, {list(given.columns)} in this run"
    if len(stored) != len(given):
        return f"{len(stored)} items in the store, {len(given)} in this run"
    for row, (old, new) in enumerate(
        zip(stored.to_dict("records"), given.to_dict("records"), strict=True)
    ):
        for column in stored.columns:
            if not _same(old[column], new[column]):
                return (
                    f"item {row} ({stored['item_id'].iloc[row]!r}), column {column!r}: "
                    f"{old[column]!r} in the store, {new[column]!r} in this run"
                )
    return None


def _same(old: object, new: object) -> bool:
    if pd.api.types.is_scalar(old) and pd.api.types.is_scalar(new):
        return (pd.isna(old) and pd.isna(new)) or bool(old == new)
    return repr(old) == repr(new)
