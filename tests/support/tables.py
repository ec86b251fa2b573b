"""Tables of parametrised tests as text."""


def rows(text: str) -> list[list[str]]:
    """Returns the cells of each line: `|` separates them, and ` ; ` the lines of a cell."""
    return [
        [cell.strip().replace(" ; ", "\n") for cell in line.split("|")]
        for line in text.strip("\n").split("\n")
    ]
