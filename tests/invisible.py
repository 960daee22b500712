"""Characters that are shown as nothing, and the labels that they must not forge.

The tests of the library, of the command and of the page use the same table.
"""

from __future__ import annotations

from typing import Final

INVISIBLE: Final = (
    # Format characters.
    *("\u00ad", "\u200b", "\u2060", "\U000e0041"),
    # Other code points with the Unicode property Default_Ignorable_Code_Point: marks, fillers, variation selectors.
    *("\u034f", "\u115f", "\u1160", "\u17b4", "\u180b", "\u180f", "\u3164", "\ufe00", "\ufe0f", "\uffa0"),
    *("\U000e0100", "\U000e01ef"),
    # Blank symbols: a Braille pattern without dots, a note without a head.
    *("\u2800", "\U0001d159"),
)
