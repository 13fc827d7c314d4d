"""Tables, numbers as text, and lines of CSV files."""


def median(values):
    """None: there are no values."""
    values = sorted(value for value in values or [] if value is not None)
    n = len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2 if n else None


def ratio(a, b):
    return None if a is None or not b else a / b


def scaled(value, base, limit, n_units):
    """The value in the largest unit in which it is below the limit, and the unit's place."""
    place = 0
    while place + 1 < n_units and value >= limit:
        value, place = value / base, place + 1
    return value, place


def text_of_bytes(n):
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    n, place = scaled(n, 1024, 1024 * 0.99995, len(units))
    decimals = 0 if place == 0 else 2 if place > 2 and n < 100 else 1
    return f"{n:.{decimals}f} {units[place]}"


def text_of_us(us):
    units = ("us", "ms", "s")
    if not us > 0:
        return "0" if us == 0 else "-"
    us, place = scaled(us, 1000, 999.5, len(units))
    return f"{us:.{2 if us < 9.995 else 1 if us < 99.95 else 0}f} {units[place]}"


def plural(n, word):
    return f"{n} {word}{'' if n == 1 else 's'}"


def value_at(row, path):
    """The value at a path such as "peak_bytes.planned"; the largest of a list."""
    for key in [path] if path.startswith(".") else path.split("."):
        row = row.get(key) if row else None
    return max(row, default=None) if isinstance(row, list) else row


def cell(row, field, kind):
    """`kind`: decimals, or "text", "bytes", "percent", "error" (with its sign)."""
    value = value_at(row, field)
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    if kind in ("percent", "error"):
        return f"{100 * value:{'+' * (kind == 'error')}.1f} %"
    return text_of_bytes(value) if kind == "bytes" else f"{value:.{0 if kind == 'text' else kind}f}"


def aligned(text, width):
    """To the left if the width is negative."""
    return f"{text:<{-width}}" if width < 0 else f"{text:>{width}}"


def lines(rows, columns):
    """The heads, then the rows. A column: head, field, width, kind. A row with "no_figures" has that
    sentence after its columns of text. A row with ".begins" follows an empty line."""
    yield " ".join(aligned(head, width) for head, _, width, _ in columns)
    for row in rows:
        if row.get(".begins"):
            yield ""
        why = row.get("no_figures")
        shown = [c for c in columns if not why or c[3] == "text"]
        line = " ".join(aligned(cell(row, field, kind), width) for _, field, width, kind in shown)
        yield f"{line}  no figures: {why}" if why else line


def csv(*cells):
    """A line of a CSV file."""
    def text(value):
        if isinstance(value, str):
            return f'"{value}"' if "," in value or " " in value else value
        return "nan" if value is None else f"{value:.17g}"
    return ",".join(map(text, cells)) + "\n"
