"""Where results go, and when it is safe to write there."""

import json
from pathlib import Path

import pytest

from hazardlens.errors import OutputError, OutputExistsError
from hazardlens.outputs.folder import RECORDS, SUMMARY, VideoFolder, folders, to_do


def finished(folder: VideoFolder, *, complete: bool = True, source: str | None = None) -> None:
    folder.path.mkdir(parents=True)
    (folder.path / RECORDS).write_text("")
    told = {"complete": complete, "source": source or folder.video.name}
    (folder.path / SUMMARY).write_text(json.dumps(told))


def test_videos_of_the_same_name_get_folders_of_their_own(tmp_path: Path) -> None:
    videos = [Path("a/site.mp4"), Path("b/site.mp4"), Path("b/other.mp4")]
    planned = folders(tmp_path, videos)
    names = [folder.path.name for folder in planned]
    assert names[2] == "other"
    assert len(set(names)) == 3
    assert all(name.startswith("site-") for name in names[:2])
    assert names == [
        f.path.name for f in folders(tmp_path, [Path("a/site.mp4"), Path("b/site.mp4"), Path("b/other.mp4")])
    ]


def test_resuming_leaves_out_what_is_finished(tmp_path: Path) -> None:
    done, half, other, new = folders(tmp_path, [Path(f"{name}.mp4") for name in ("done", "half", "other", "new")])
    finished(done)
    finished(half, complete=False)
    finished(other, source="another video.mp4")
    assert to_do([done, half, other, new], "resume") == [half, other, new]
    assert to_do([done, half, other, new], "overwrite") == [done, half, other, new]
    with pytest.raises(OutputExistsError, match="done"):
        to_do([new, done], "refuse")
    assert to_do([new], "refuse") == [new]


def test_clearing_removes_results_and_nothing_else(tmp_path: Path) -> None:
    (folder,) = folders(tmp_path, [Path("a.mp4")])
    finished(folder)
    (folder.path / "mine.txt").write_text("kept")
    folder.clear()
    assert [path.name for path in folder.path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file in the way")
    with pytest.raises(OutputError, match="cannot be used"):
        VideoFolder(video=Path("a.mp4"), path=tmp_path / "a").clear()
