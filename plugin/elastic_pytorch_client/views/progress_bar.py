"""How far something is, as a bar of characters."""

from rich.text import Text

from elastic_pytorch_client.views.styles import ACCENT, GOOD, MUTED


def progress_bar(fraction: float, width: int) -> Text:
    """A bar, in half characters.

    Args:
        fraction: from 0 to 1.
        width: in characters.
    """
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    full, half = divmod(halves, 2)
    done = "━" * full + "╸" * half
    return Text(done, GOOD if fraction >= 1 else ACCENT).append("─" * (width - full - half), MUTED)
