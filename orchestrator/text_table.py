"""Rows of cells as lines of text, their columns aligned."""

from collections.abc import Collection, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], to_the_left: Collection[int]) -> Iterator[str]:
    """Yield a line per row of ``rows``; the columns ``to_the_left`` by number, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if at in to_the_left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
