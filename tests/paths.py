from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / "examples" / "templates").glob("*.yaml"))
EXAMPLE_JOBS = sorted({*(ROOT / "examples").rglob("*.yaml")} - {*TEMPLATES})
