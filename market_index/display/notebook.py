"""The HTML that notebooks show for a value: a small table, with escaped text and without colours of its own.

A notebook calls the method `_repr_html_` of a value. It shows the table in its own colours, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape
from typing import Final

from market_index.assets import AssetId
from market_index.pairs import Pair

SHOWN_ROWS: Final = 10
"""The maximum number of rows of a table."""

_NO_VALUE: Final = "-"


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, left_out: int = 0) -> str:
    """Return a table of values, below a title, which is HTML.

    Args:
        title: HTML.
        headings: Texts.
        rows: Values: texts, numbers, assets and pairs; None if unknown.
        left_out: The number of rows that are not shown.

    >>> html_table("2 bids", ["price"], [[Decimal("1E-7")]], left_out=1)
    '<div>2 bids</div><table><tr><th>price</th></tr><tr><td>0.0000001</td></tr></table><div>… 1 more</div>'
    """
    head = "".join([f"<th>{escape(heading)}</th>" for heading in headings])
    lines = [f"<tr>{head}</tr>"] if headings else []
    lines += ["<tr>" + "".join([f"<td>{to_html(value)}</td>" for value in row]) + "</tr>" for row in rows]
    more = f"<div>… {left_out:,} more</div>" if left_out > 0 else ""
    return f"<div>{title}</div><table>{''.join(lines)}</table>{more}"


def to_html(value: object) -> str:
    """Return a value as escaped HTML. A printable name of an asset is beside its identifier, never instead of it.

    >>> to_html(AssetId(bytes(1) * 28, b"<b>"))
    '00000000000000000000000000000000000000000000000000000000:3c623e (<bdi>&lt;b&gt;</bdi>)'
    """
    if value is None:
        return _NO_VALUE
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Pair):
        return f"{to_html(value.base)} / {to_html(value.quote)}"
    text = escape(str(value))
    if isinstance(value, AssetId) and (name := value.asset_name_text):
        # Isolated, because letters of a script that is written from right to left would reorder the text around them.
        text += f" (<bdi>{escape(name)}</bdi>)"
    return text
