"""The pictures of terminals in the documentation."""

import re

from screens import draw_screens

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "use" / "plugin.md").read_text()


def test_each_screen_of_the_documentation_is_drawn() -> None:
    assert set(re.findall(r"!\[.*\]\(screens/(.*\.svg)\)", PAGE)) == set(draw_screens())


def test_a_screen_shows_what_the_verb_prints_and_fetches_nothing() -> None:
    for name, picture in draw_screens().items():
        assert re.sub(r"&#160;|<.*?>", " ", picture).count(f"kubectl epj {name.removesuffix('.svg')}"), name
        assert "@font-face" not in picture
        assert not re.search(r"url\((?!#)|href", picture)
