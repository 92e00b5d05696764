"""What tells the series of a chart apart: ten colours, and a marker that changes when the colours begin again.

A series has one number on a whole page; number 13 has the colour of number 3 and another marker. style.css has both for
the legends.
"""

# They keep their distance on white and on near-black.
COLOURS = (
    "#3b82c4", "#e0862f", "#4fa36b", "#b565b8", "#c9556b", "#8a8f98", "#2aa5a0", "#9c8347", "#6f6fd8", "#a3b043",
)  # fmt: skip
GREY = 5
MARKERS = ("circle", "square", "triangle-up", "diamond")  # Vega's names
BARS = (1.0, 0.4, 0.7, 0.15)  # a bar has no marker, but an edge


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of a series."""
    return MARKERS[_round(number)]


def fillings(numbers: list[int]) -> list[float]:
    """How much the bars of these series are filled: wholly, unless two of them have one colour."""
    if len({colour(number) for number in numbers}) == len(numbers):
        return [1.0] * len(numbers)
    return [BARS[_round(number)] for number in numbers]


def classes(number: int) -> str:
    """The style classes of a series in a legend."""
    return f"c{number % len(COLOURS)} {MARKERS[_round(number)]}"


def _round(number: int) -> int:
    return number // len(COLOURS) % len(MARKERS)
