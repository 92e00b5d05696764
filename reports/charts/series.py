"""The looks of the series of a chart: ten colours and seven markers, so that no colour stands alone.

A series has one number on a whole page. Seventy numbers have different looks. style.css has the looks for legends.
"""

# They keep their distance on white and on near-black.
COLOURS = (
    "#3b82c4", "#e0862f", "#4fa36b", "#b565b8", "#c9556b", "#8a8f98", "#2aa5a0", "#9c8347", "#6f6fd8", "#a3b043",
)  # fmt: skip
GREY = 5
MARKERS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")  # Vega's names
BARS = (1.0, 0.4, 0.7, 0.15)  # a bar has no marker, but an edge


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of a series."""
    return MARKERS[number % len(MARKERS)]


def fillings(numbers: list[int]) -> list[float]:
    """The opacity of the bars of these series: full, unless two of them share a colour."""
    if len({colour(number) for number in numbers}) == len(numbers):
        return [1.0] * len(numbers)
    return [BARS[number // len(COLOURS) % len(BARS)] for number in numbers]


def classes(number: int) -> str:
    """The style classes of a series in a legend."""
    return f"c{number % len(COLOURS)} {marker(number)}"
