from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import PushRejected
from prefetch import lfn
from prefetch.lfn import checked_lfn, path_below

BAD = [
    "",
    "/",
    "store/x",
    "//store/x",
    "/store//x",
    "/store/x/",
    "/store/../x",
    "/store/./x",
    "/store/x?authz=1",
    "/store/x#y",
    "/store/x\\y",
    "/store/x\n",
    "/store/x\x00",
    "/store/\x7fx",
    "/store/\u202ex",
    "/store/\u2028x",
    "/store/\ud800x",
    "/ store/x",
    "/store/x ",
    "/store/\u00a0x",
    "/xrdpfc_command/remove_file/x",
    "/xrdpfc_command",
    "/store/x.cinfo",
    "/" + "a" * 250,
    "/a" * 513,
]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(PushRejected):
        checked_lfn(name)


@pytest.mark.parametrize(
    "name", ["/store/mc/a.root", "/a", "/store/a b/c", "/store/%2e%2e/x", "/store/..x", "/é"]
)
def test_plain_names_pass_unchanged(name: str) -> None:
    assert checked_lfn(name) == name


@given(st.one_of(st.text(), st.text("/.? #\\ab\n").map(lambda text: "/" + text)))
def test_what_passes_stays_below_its_root_and_in_one_url(name: str) -> None:
    try:
        checked_lfn(name)
    except PushRejected:
        return
    parts = PurePosixPath(name).parts
    assert name == "/" + "/".join(parts[1:])
    assert ".." not in parts and "." not in name.split("/")
    assert not set("?#\\\n\r\0") & set(name) and name == name.strip()
    assert len(name.encode()) <= 1024


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "store").symlink_to(tmp_path)
    with pytest.raises(PushRejected, match="link"):
        path_below(tmp_path / "cache", "/store/x")
    assert path_below(tmp_path / "cache", "/mc/x") == tmp_path / "cache" / "mc" / "x"


def test_a_link_into_a_space_of_the_cache_is_followed_and_no_other(tmp_path: Path) -> None:
    cache, disk = tmp_path / "cache", tmp_path / "disk1"
    for folder in (cache, disk, tmp_path / "disk10"):
        folder.mkdir()
    (cache / "held").symlink_to(disk / "00")
    (cache / "stray").symlink_to(tmp_path / "disk10" / "00")
    assert path_below(cache, "/held", spaces=[disk]) == cache / "held"
    for name, spaces in (("/held", []), ("/stray", [disk])):
        with pytest.raises(PushRejected, match="link"):
            path_below(cache, name, spaces=spaces)


@given(st.lists(st.text("aB0_.+=:,@~-/ cinfo?\t\u00e9", max_size=12), max_size=5), st.integers(0, 300))
def test_a_name_that_is_taken_at_a_glance_has_no_fault(parts: list[str], n: int) -> None:
    for name in ("/" + "/".join(parts), "/".join(parts), "/a" * n, "/" + "a" * n, "/" + "a/" * n + "b"):
        for whole in (name, f"{name}.cinfo", f"/xrdpfc_command{name}", f"{name}\n"):
            assert not lfn._is_plain(whole) or lfn._fault(whole) is None
    assert lfn._is_plain("/store/mc/Run3-v1/AOD_1.root")
