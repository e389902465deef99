"""Where results go, and when it is safe to write there."""

import json
from pathlib import Path

import pytest

from hazardlens.errors import InputError, OutputError, OutputExistsError, VideoError
from hazardlens.outputs.folder import RECORDS, SUMMARY, VideoFolder, folders, identity, marked_name, to_do

SETUP = {"detector": "d", "pipeline": {"ask": [1, 2]}}


@pytest.fixture
def videos(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a" / "site.mp4", tmp_path / "b" / "site.mp4", tmp_path / "b" / "other.mp4"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(path))
    return paths


def finish(folder: VideoFolder, *, complete: bool = True, setup: dict = SETUP) -> None:
    folder.path.mkdir(parents=True)
    (folder.path / RECORDS).write_text("")
    told = {"complete": complete, "video": identity(folder.video), **setup}
    (folder.path / SUMMARY).write_text(json.dumps(told))


def test_videos_of_the_same_name_get_folders_of_their_own(videos: list[Path], tmp_path: Path) -> None:
    planned = folders(tmp_path / "out", videos)
    names = [folder.path.name for folder in planned]
    assert names[2] == "other"
    assert len(set(names)) == 3
    assert all(name.startswith("site-") for name in names[:2])
    assert planned == folders(tmp_path / "out", videos)


def test_a_folder_is_found_again_whatever_other_videos_are_named(videos: list[Path], tmp_path: Path) -> None:
    both = folders(tmp_path / "out", videos[:2])
    for folder in both:
        finish(folder)
    assert folders(tmp_path / "out", videos[:1]) == both[:1]
    (alone,) = folders(tmp_path / "alone", videos[:1])
    finish(alone)
    assert alone.path.name == "site"
    first, second = folders(tmp_path / "alone", videos[:2])
    assert first == alone
    assert second.path.name.startswith("site-")


def test_long_names_fit(tmp_path: Path) -> None:
    video = tmp_path / ("ы" * 125 + ".mp4")
    video.write_text("x")
    (folder,) = folders(tmp_path / "out", [video])
    folder.clear()
    (tmp_path / "out" / marked_name(video)).mkdir()


def test_a_video_that_vanished_is_named(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        identity(tmp_path / "gone.mp4")


def test_results_without_records_are_not_finished(videos: list[Path], tmp_path: Path) -> None:
    (folder,) = folders(tmp_path / "out", videos[:1])
    finish(folder)
    (folder.path / RECORDS).unlink()
    assert to_do([folder], "resume", SETUP) == [folder]


def test_a_video_that_is_named_twice_gets_one_folder(videos: list[Path], tmp_path: Path) -> None:
    twice = tmp_path / "a" / ".." / "a" / "site.mp4"
    assert len(folders(tmp_path / "out", [videos[0], twice])) == 1


def test_a_name_of_dots_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "...mp4").write_text("x")
    (folder,) = folders(tmp_path / "out", [tmp_path / "...mp4"])
    assert folder.path.resolve().parent == (tmp_path / "out").resolve()


def test_a_video_that_would_be_replaced_by_its_own_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "annotated").mkdir()
    (tmp_path / "annotated" / "annotated.mp4").write_text("a result to be looked at again")
    with pytest.raises(InputError, match="itself a result"):
        folders(tmp_path, [tmp_path / "annotated" / "annotated.mp4"])


def test_results_that_are_there_are_refused_unless_told(videos: list[Path], tmp_path: Path) -> None:
    planned = folders(tmp_path / "out", videos)
    assert to_do(planned, "refuse", SETUP) == planned
    finish(planned[0])
    with pytest.raises(OutputExistsError, match="site-"):
        to_do(planned, "refuse", SETUP)
    assert to_do(planned, "overwrite", SETUP) == planned


def test_resuming_leaves_out_what_is_finished_and_as_it_was(videos: list[Path], tmp_path: Path) -> None:
    done, half, new = folders(tmp_path / "out", videos)
    finish(done)
    finish(half, complete=False)
    assert to_do([done, half, new], "resume", SETUP) == [half, new]
    done.video.write_text("the same name, copied anew")
    assert to_do([done], "resume", SETUP) == [done]


def test_resuming_never_loses_results_of_something_else(videos: list[Path], tmp_path: Path) -> None:
    (yesterday,) = folders(tmp_path / "out", videos[:1])
    finish(yesterday)
    (today,) = folders(tmp_path / "out", videos[1:2])
    assert today.path == yesterday.path
    with pytest.raises(OutputExistsError, match="of another video"):
        to_do([today], "resume", SETUP)
    with pytest.raises(OutputExistsError, match="other settings"):
        to_do([yesterday], "resume", {**SETUP, "detector": "another"})


def test_clearing_removes_results_and_nothing_else(videos: list[Path], tmp_path: Path) -> None:
    (folder,) = folders(tmp_path / "out", videos[:1])
    finish(folder)
    (folder.path / "mine.txt").write_text("kept")
    folder.clear()
    assert [path.name for path in folder.path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file in the way")
    with pytest.raises(OutputError, match="cannot be used"):
        VideoFolder(video=Path("a.mp4"), path=tmp_path / "a").clear()
