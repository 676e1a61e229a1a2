"""Draws shares by the number of spares as lines of an SVG. Pure."""

from collections.abc import Mapping, Sequence

# With its margins.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 380, 50, 270, 20, 50
COLORS = ("#888888", "#b35900", "#1f5fd0")
LABEL_HEIGHT = 18


def picture(lines: Mapping[str, Sequence[float]], spares: Sequence[int]) -> str:
    """The picture of titled lines: a share from 0 to 1 for each number of spares."""
    drawn = [_text(LEFT - 8, _y(tick / 5) + 4, f"{20 * tick} %", "end") for tick in range(6)]
    drawn += [
        f'<path d="M{LEFT} {_y(tick / 5):g}H{WIDTH - RIGHT}" stroke="#ddd"/>' for tick in range(6)
    ]
    drawn += [
        _text(_x(spare, spares), HEIGHT - BOTTOM + 20, str(spare), "middle") for spare in spares
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    below = "spare nodes beside 64, whose hours count too"
    drawn.append(_text(middle, HEIGHT - 10, below, "middle"))
    lowest = 0.0
    highest_first = sorted(
        zip(COLORS, lines.items(), strict=True), key=lambda line: -line[1][1][-1]
    )
    for color, (title, shares) in highest_first:
        points = zip(spares, shares, strict=True)
        at = [f"{_x(spare, spares):g} {_y(share):.1f}" for spare, share in points]
        drawn.append(f'<path d="M{"L".join(at)}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        lowest = max(_y(shares[-1]) + 4, lowest + LABEL_HEIGHT)  # no label on another one
        drawn.append(_text(WIDTH - RIGHT + 8, lowest, title.replace("`", ""), "start", color))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *drawn, "</svg>\n"])


def _x(spare: int, spares: Sequence[int]) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * spare / max(spares)


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _text(x: float, y: float, text: str, anchor: str, color: str = "#333") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{text}</text>'
