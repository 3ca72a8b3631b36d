"""What the README shows and points to is there."""

import re

from readme.blocks import README, ROOT


def test_links_to_files_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", README)
    files = [link for link in links if "://" not in link]
    assert any(link.endswith(".png") for link in files)
    assert [link for link in files if not (ROOT / link).exists()] == []
