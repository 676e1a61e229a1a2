"""What a terminal shows, as a picture: text from DejaVu Sans Mono, bars and Braille drawn as terminals do, without gaps."""

from pathlib import Path

import matplotlib as mpl
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

SCALE = 2
FONT_SIZE = 14 * SCALE
CELL_WIDTH, CELL_HEIGHT = FONT_SIZE * 1233 // 2048, 20 * SCALE
MARGIN, BAR_HEIGHT = 16 * SCALE, 34 * SCALE
PAPER, FRAME, INK, FAINT = (22, 27, 34), (33, 40, 50), (213, 219, 227), (125, 135, 148)
BUTTONS = ((237, 106, 94), (245, 191, 79), (98, 197, 84))
THEME = TerminalTheme(
    PAPER,
    INK,
    [(22, 27, 34), (240, 113, 103), (126, 196, 106), (229, 192, 95), (97, 158, 232), (198, 120, 221), (86, 194, 206), INK],
    [FAINT, (240, 113, 103), (126, 196, 106), (229, 192, 95), (97, 158, 232), (198, 120, 221), (86, 194, 206), (255, 255, 255)],
)
LINES = {"─": (0, 1), "━": (0, 3), "╸": (0, 3), "│": (1, 1), "├": (2, 1), "└": (3, 1)}
BARS = "▁▂▃▄▅▆▇█"
BRAILLE_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # column and row of each bit


def picture(shown: RenderableType, *, command: str, width: int, path: Path) -> None:
    """Draws a terminal in which a command has just been typed.

    Args:
        shown: what it prints.
        command: what was typed.
        width: of the terminal, in characters.
        path: of the PNG.
    """
    console = Console(width=width, force_terminal=True, color_system="truecolor", highlight=False)
    rows = console.render_lines(shown, pad=False)
    rows = [[Segment("$ ", Style(color="green")), Segment(command, Style(bold=True))], *rows]
    size = (2 * MARGIN + width * CELL_WIDTH, BAR_HEIGHT + 2 * MARGIN + len(rows) * CELL_HEIGHT)
    image = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, size[0], BAR_HEIGHT), fill=FRAME)
    for number, color in enumerate(BUTTONS):
        x, y, r = MARGIN + 4 * SCALE + number * 20 * SCALE, BAR_HEIGHT // 2, 6 * SCALE
        draw.ellipse((x - r, y - r, x + r, y + r), fill=color)
    for number, row in enumerate(rows):
        column = 0
        for text, style, _ in row:
            for character in text.rstrip("\n"):
                left, top = MARGIN + column * CELL_WIDTH, BAR_HEIGHT + MARGIN + number * CELL_HEIGHT
                _character(draw, character, style or Style(), left, top)
                column += 1
    smaller = image.resize((size[0] * 3 // 4, size[1] * 3 // 4), Image.Resampling.LANCZOS)
    smaller.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def _character(draw: ImageDraw.ImageDraw, character: str, style: Style, left: int, top: int) -> None:
    color = _color(style)
    right, bottom = left + CELL_WIDTH, top + CELL_HEIGHT
    middle_x, middle_y = left + CELL_WIDTH // 2, top + CELL_HEIGHT // 2
    if character in BARS:
        height = (BARS.index(character) + 1) * (CELL_HEIGHT - 4 * SCALE) // len(BARS)
        draw.rectangle((left, bottom - 2 * SCALE - height, right - SCALE, bottom - 2 * SCALE), fill=color)
    elif 0x2800 <= ord(character) < 0x2900:
        for bit, (x, y) in enumerate(BRAILLE_DOTS):
            if (ord(character) - 0x2800) >> bit & 1:
                at_x, at_y = left + CELL_WIDTH * (2 * x + 1) // 4, top + CELL_HEIGHT * (2 * y + 1) // 8
                draw.ellipse((at_x - 3, at_y - 3, at_x + 3, at_y + 3), fill=color)
    elif character in LINES:
        kind, thick = LINES[character]
        half = thick * SCALE // 2 + (thick > 1)
        if kind == 0:
            end = middle_x if character == "╸" else right
            draw.rectangle((left, middle_y - half, end, middle_y + half - 1), fill=color)
        else:
            draw.rectangle((middle_x - 1, top, middle_x, middle_y if kind == 3 else bottom), fill=color)
            if kind > 1:
                draw.rectangle((middle_x, middle_y - 1, right, middle_y), fill=color)
    elif character == "■":
        draw.rectangle((left + SCALE, middle_y - 4 * SCALE, right - SCALE, middle_y + 4 * SCALE), fill=color)
    elif character == "□":
        box = (left + SCALE, middle_y - 4 * SCALE, right - SCALE, middle_y + 4 * SCALE)
        draw.rectangle(box, outline=color, width=SCALE)
    elif character.strip():
        draw.text((left, bottom - 5 * SCALE), character, fill=color, font=_font(bold=bool(style.bold)), anchor="ls")


def _color(style: Style) -> tuple[int, int, int]:
    if style.color is None:
        return INK
    red, green, blue = style.color.get_truecolor(THEME)
    return red, green, blue


_FONTS: dict[bool, ImageFont.FreeTypeFont] = {}


def _font(*, bold: bool) -> ImageFont.FreeTypeFont:
    if bold not in _FONTS:
        name = f"DejaVuSansMono{'-Bold' if bold else ''}.ttf"
        _FONTS[bold] = ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / name), FONT_SIZE)
    return _FONTS[bold]
