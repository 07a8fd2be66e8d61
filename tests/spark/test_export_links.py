"""An export with links, and with manifests that name files elsewhere: nothing outside the root is read or written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.errors import KlogError, Refused
from klog.export.compact import compact
from klog.export.gc import collect, find_garbage
from klog.export.stores.local import LocalStore
from klog.export.verify import verify
from tests.spark.handmade import HandmadeExport


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "export"


@pytest.fixture
def export(root: Path) -> HandmadeExport:
    export = HandmadeExport(root)
    export.commits(3)
    return export


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    folder = tmp_path / "foreign" / "folder"
    folder.mkdir(parents=True)
    (folder / "file").write_text("as it was")
    os.utime(folder / "file", (1, 1))
    os.utime(folder, (1, 1))
    return folder


def test_gc_leaves_what_lies_behind_a_link(root: Path, export: HandmadeExport, foreign: Path) -> None:
    shutil.rmtree(root / "_staging", ignore_errors=True)
    (root / "_staging").symlink_to(foreign.parent)
    for act in (lambda: collect(str(root), find_garbage(str(root))), export.place.discard_stale):
        with pytest.raises(Refused) as refused:
            act()
        assert str(root / "_staging") in refused.value.message
    assert (foreign / "file").read_text() == "as it was"


def test_what_a_manifest_names_elsewhere_is_not_read(root: Path, export: HandmadeExport) -> None:
    manifest = root / export.place.manifest_path(1)
    about = json.loads(manifest.read_bytes())
    outside = root.parent / "outside.parquet"
    data = root / "data/batch=0000000001" / about["files"][0]["path"]
    shutil.copy(data, outside)
    for path in (f"../../../{outside.name}", str(outside), "../batch=0000000000/x"):
        about["files"][0]["path"] = path
        manifest.write_text(json.dumps(about))
        with pytest.raises(Refused) as refused:
            compact(str(root))
        assert path in refused.value.message
        assert {row.state for row in verify(None, str(root))} != {"ok"}


def test_a_manifest_writes_nowhere_else(root: Path, export: HandmadeExport) -> None:
    manifest = root / export.place.manifest_path(1)
    about = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(about | {"run": "../../../elsewhere"}))
    with pytest.raises(Refused):
        export.place.manifest(1)


ACTS: list[Callable[[LocalStore, str], object]] = [
    LocalStore.read,
    lambda store, path: store.create(f"{path}2", b"new"),
    lambda store, path: store.replace(path, b"new"),
    lambda store, path: store.names(os.path.dirname(path)),
    lambda store, path: store.walk(os.path.dirname(path)),
    lambda store, path: store.touched_s(os.path.dirname(path)),
    LocalStore.remove,
    lambda store, path: store.make_folder(f"{path}2"),
    LocalStore.open_input,
    lambda store, path: store.open_output(f"{path}2"),
    LocalStore.location,
    lambda store, path: store.sync(os.path.dirname(path)),
    lambda store, path: store.rename(path, "here"),
]


@pytest.mark.parametrize("way", ["link/file", "../foreign/folder/file", "{}/file"])
@pytest.mark.parametrize("act", ACTS)
def test_no_way_leads_out_of_a_root(
    tmp_path: Path, foreign: Path, act: Callable[[LocalStore, str], object], way: str
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(foreign)
    with pytest.raises(KlogError):
        act(LocalStore(tmp_path / "root"), way.format(foreign))
    assert [(one.name, one.read_text()) for one in foreign.iterdir()] == [("file", "as it was")]


def test_a_link_goes_and_not_what_it_leads_to(tmp_path: Path, foreign: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(foreign)
    LocalStore(root).remove("link")
    assert not list(root.iterdir()) and (foreign / "file").exists()


def test_the_root_itself_may_be_a_link(tmp_path: Path, export: HandmadeExport, root: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    compact(str(link))
    assert {row.state for row in verify(None, str(link))} == {"ok"}
