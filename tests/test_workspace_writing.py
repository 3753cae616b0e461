"""The new folder, the changelog and the store of resolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import everything
from vllm_series.workspace import writing
from vllm_series.workspace.lines import many, one
from vllm_series.workspace.markers import labelled, left
from vllm_series.workspace.state import Line

FILES = {"series": b"a.patch\n", "a.patch": b"text\n"}


def test_a_folder_replaces_another_as_a_whole(tmp_path: Path) -> None:
    writing.move_in(tmp_path, "vllm-0.2", {"series": b"old\n", "old.patch": b"x\n"})
    assert everything(tmp_path / "vllm-0.2") == {"series": b"old\n", "old.patch": b"x\n"}
    writing.prepare(tmp_path, "vllm-0.2", FILES)
    writing.move_in(tmp_path, "vllm-0.2", FILES)
    assert everything(tmp_path) == {f"vllm-0.2/{name}": data for name, data in FILES.items()}
    writing.move_in(tmp_path, "vllm-0.2", FILES)
    assert everything(tmp_path) == {f"vllm-0.2/{name}": data for name, data in FILES.items()}


CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n- A.\n\n## [1.0.0]\n\n### Added\n\n- B.\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            CHANGELOG,
            CHANGELOG.replace(
                "[Unreleased]\n\n", "[Unreleased]\n\n### Added\n\n- New.\n  More.\n\n"
            ),
        ),
        (
            CHANGELOG.replace("Fixed", "Added"),
            CHANGELOG.replace("Fixed", "Added").replace("- A.\n", "- A.\n- New.\n  More.\n"),
        ),
        (
            "# Changelog\n\n## [Unreleased]\n",
            "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n  More.\n",
        ),
        (
            "# Changelog\n\n## [1.0.0]\n\n- B.\n",
            "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n  More.\n\n"
            "## [1.0.0]\n\n- B.\n",
        ),
    ],
)
def test_an_entry_goes_under_the_unreleased_changes(before: str, after: str) -> None:
    assert writing.entered(before, "Added", "- New.\n  More.") == after


def test_what_changed_goes_below_what_was_added() -> None:
    before = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n### Fixed\n\n- F.\n"
    after = before.replace("- A.\n", "- A.\n\n### Changed\n\n- New.\n")
    assert writing.entered(before, "Changed", "- New.") == after


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    place = tmp_path / "CHANGELOG.md"
    place.write_text(CHANGELOG)
    writing.enter(place, "Added", "- New.", None, "- New.")
    once = place.read_text()
    writing.enter(place, "Added", "- New.", None, "- New.")
    assert place.read_text() == once != CHANGELOG


def test_an_entry_that_grows_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    place = tmp_path / "CHANGELOG.md"
    place.write_text(CHANGELOG)
    writing.enter(place, "Added", "- One.", None, "- One.")
    one = place.read_text()
    for _ in range(2):
        writing.enter(place, "Added", "- One, two.", "- One.", "- Two.")
    assert place.read_text() == one.replace("- One.", "- One, two.")


def test_an_entry_that_a_person_has_changed_is_not_made_again(tmp_path: Path) -> None:
    place = tmp_path / "CHANGELOG.md"
    place.write_text(CHANGELOG)
    writing.enter(place, "Added", "- One.", None, "- One.")
    own = place.read_text().replace("- One.", "- The one.")
    place.write_text(own)
    writing.enter(place, "Added", "- One, two.", "- One.", "- Two.")
    assert place.read_text() == own.replace("- The one.", "- The one.\n- Two.")


def test_the_series_file_keeps_comments_and_names_what_is_left_out() -> None:
    text = b"# first\na.patch\nb.patch # why\n\nc.patch -p1\n"
    assert writing.listing(text, {"b.patch": "Applied-Upstream: 0.2.0"}, ()) == (
        b"# first\na.patch\n# b.patch: Applied-Upstream: 0.2.0\n\nc.patch -p1\n"
    )


def test_resolutions_travel_with_all_their_variants(tmp_path: Path) -> None:
    inside = tmp_path / "rr-cache" / "abc"
    inside.mkdir(parents=True)
    for name in ("preimage", "postimage", "preimage.1", "postimage.1", "preimage.2", "thisimage"):
        (inside / name).write_text(name)
    writing.give_store(tmp_path / "rr-cache", tmp_path)
    kept = ["postimage", "postimage.1", "preimage", "preimage.1"]
    assert sorted(everything(tmp_path / ".rerere" / "abc")) == kept
    writing.take_store(tmp_path, tmp_path / "other")
    assert sorted(everything(tmp_path / "other" / "abc")) == kept


def test_markers_are_named_and_found() -> None:
    text = (
        b"a\n<<<<<<< HEAD\nb\n||||||| parent of 12ab34c (fix: it)\nc\n=======\nd\n"
        b">>>>>>> 12ab34c (fix: it)\n"
    )
    named = labelled(text, "0.1.0", "0.2.0", "fix.patch")
    assert named == (
        b"a\n<<<<<<< vllm 0.2.0\nb\n||||||| vllm 0.1.0 (base)\nc\n=======\nd\n>>>>>>> fix.patch\n"
    )
    assert left(named) == [2, 4, 8]
    assert left(b"Title\n=======\n<<<<<<<\n") == []


def test_lines_go_from_neighbour_to_neighbour() -> None:
    there = ["vllm-0.27", "vllm-0.33"]
    assert many(there, ["0.24.0", "0.25.0", "0.25.1", "0.29.0", "0.33.0"], None) == [
        Line("vllm-0.27", "0.29.0", "vllm-0.29"),
        Line("vllm-0.27", "0.25.1", "vllm-0.25"),
        Line("vllm-0.25", "0.24.0", "vllm-0.24"),
    ]
    assert one(there, "0.34.0", "vllm-0.34", None).source == "vllm-0.33"
    assert one(there, "0.30.0", "vllm-0.30", None).source == "vllm-0.33"
