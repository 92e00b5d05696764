"""The usual range of a figure: which values of tonight would not surprise, after those of the last nights.

The range is the median of the last nights, plus and minus `LIMIT` times their spread. The spread is the median absolute
deviation (MAD), scaled to the standard deviation of a normal distribution. The limit is that of Iglewicz and Hoaglin's
modified z-score. Fewer than half of the nights cannot move the range far, so a spike of last week hides no spike of
tonight. A steady drift stays inside at any slope, because the spread of the nights grows with it.

The rule does not know weekdays: figures that fall every Sunday are outside of it every Sunday. After a lasting jump,
the range follows once half of the nights are new.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

NIGHTS = 14  # the most that count, the newest ones
LEAST = 7  # nights without which there is no range
LIMIT = 3.5
TO_DEVIATION = 1.4826  # a normal distribution's standard deviation, in units of its MAD


def usual_range(history: Sequence[float], least_spread: float) -> tuple[float, float] | None:
    """The usual range after these nights, the oldest first; None with fewer than `LEAST` nights.

    Args:
        history: One figure per night.
        least_spread: The least spread, in the unit of the figure. Equal nights have a MAD of 0, and then any change
            would be unusual.
    """
    nights = history[-NIGHTS:]
    if len(nights) < LEAST:
        return None
    middle = statistics.median(nights)
    deviation = statistics.median(abs(value - middle) for value in nights)
    reach = LIMIT * max(TO_DEVIATION * deviation, least_spread)
    return middle - reach, middle + reach
