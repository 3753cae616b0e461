"""Where the index is: from the places that pip and uv take it from, in their order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from indexes import sealed
from vllm_series.errors import EnvironmentRefusedError, UsageError
from vllm_series.upstream import configured
from vllm_series.upstream.settings import PYPI, IndexSettings, index_settings, redacted


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of nobody, on a machine that is told nothing."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "uv").mkdir()
    monkeypatch.setattr(configured, "_ETC", tmp_path / "etc")
    return tmp_path


def settings(home: Path, options: Mapping[str, Any] | None = None, **env: str) -> IndexSettings:
    # An empty folder for the virtual environment, whose own pip.conf counts too.
    environ = sealed(home, **{"VIRTUAL_ENV": str(home), **env})
    return index_settings(environ=environ, **(options or {}))


def pip_conf(home: Path, text: str) -> Path:
    place = home / ".config" / "pip" / "pip.conf"
    place.write_text(text)
    return place


def uv_toml(home: Path, text: str) -> Path:
    place = home / ".config" / "uv" / "uv.toml"
    place.write_text(text)
    return place


def test_nothing_said_means_pypi(home: Path) -> None:
    found = settings(home)
    assert found == IndexSettings(origins={})
    assert found.indexes == (PYPI,)
    assert found.lines() == []


@pytest.mark.parametrize(
    "variable", ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_PYPI_URL"]
)
def test_the_environment_names_the_index(home: Path, variable: str) -> None:
    found = settings(home, None, **{variable: "https://mirror.example/simple"})
    assert found.indexes == ("https://mirror.example/simple",)
    assert found.origins["indexes"] == variable


def test_an_option_wins_over_the_environment_and_that_over_files(home: Path) -> None:
    pip_conf(home, "[global]\nindex-url = https://pip-file.example/simple\n")
    uv_toml(home, 'index-url = "https://uv-file.example/simple"\n')
    env = {"PIP_INDEX_URL": "https://pip-env.example", "UV_INDEX_URL": "https://uv-env.example"}
    option = {"index_url": "https://option.example"}
    assert settings(home, option, **env).indexes == ("https://option.example",)
    assert settings(home, None, **env).indexes == ("https://pip-env.example",)
    del env["PIP_INDEX_URL"]
    assert settings(home, None, **env).indexes == ("https://uv-env.example",)
    assert settings(home).indexes == ("https://pip-file.example/simple",)
    pip_conf(home, "")
    assert settings(home).indexes == ("https://uv-file.example/simple",)


def test_options_add_to_lists_and_variables_replace_those_of_files(home: Path) -> None:
    (home / "more").mkdir()
    pip_conf(
        home,
        "[global]\nextra-index-url =\n  https://a.example/simple\n  https://b.example/simple\n"
        f"find-links = {home}\n",
    )
    found = settings(home, {"extra_index_urls": ("https://c.example",)})
    assert found.indexes == (
        PYPI, "https://a.example/simple", "https://b.example/simple", "https://c.example",
    )  # fmt: skip
    found = settings(
        home, {"find_links": (str(home / "more"),)}, PIP_EXTRA_INDEX_URL="https://d.example"
    )
    assert found.indexes == (PYPI, "https://d.example")
    assert found.find_links == ((home / "more").as_uri(), home.as_uri())


def test_the_section_of_install_wins_over_global_in_whatever_file(home: Path) -> None:
    place = pip_conf(home, "[install]\nindex-url = https://install.example\n")
    later = home / "later.conf"
    later.write_text("[global]\nindex-url = https://global.example\ntimeout = 7\n")
    found = settings(home, PIP_CONFIG_FILE=str(later))
    assert found.indexes == ("https://install.example",)
    assert found.origins["indexes"] == str(place)
    assert found.timeout == 7


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PIP_INDEX_URL": "http://env.example"},
        {"PIP_EXTRA_INDEX_URL": "http://one.example http://two.example"},
        {"PIP_CONFIG_FILE": "later.conf"},
        {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://env.example"},
    ],
    ids=["files", "index", "more", "file of the environment", "no files"],
)
def test_a_place_over_another_is_what_pip_says_too(home: Path, env: dict[str, str]) -> None:
    (home / "machine" / "pip").mkdir(parents=True)
    (home / "machine" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = http://machine.example\nextra-index-url =\n  http://a.example\n"
        "  http://b.example\n[install]\nno-deps = yes\n"
    )
    pip_conf(home, "[global]\nindex_url = http://user.example\n")
    (home / "later.conf").write_text(
        "[global]\nindex-url = http://later.example\n[install]\nextra-index-url = http://c.example"
    )
    env = {k: str(home / v) if v == "later.conf" else v for k, v in env.items()}
    # To a proxy that is not there, so that pip asks nobody.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--retries", "0", "--proxy",
         "http://127.0.0.1:9", "--disable-pip-version-check", "no-such-thing"],
        env=sealed(home, **env), capture_output=True, text=True, check=False,
    )  # fmt: skip
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("Looking in indexes")]
    assert told.partition(": ")[2].split(", ") == list(settings(home, None, **env).indexes)


def test_later_files_win(home: Path) -> None:
    (home / "machine" / "pip").mkdir(parents=True)
    (home / "machine" / "pip" / "pip.conf").write_text(
        "[global]\nretries = 2\nproxy = http://p.example:1\n"
    )
    pip_conf(home, "[global]\nretries = 3\n")
    assert settings(home).retries == 3
    # That of the virtual environment.
    (home / "pip.conf").write_text("[global]\nretries = 4\n")
    found = settings(home)
    assert (found.retries, found.proxy) == (4, "http://p.example:1")


def test_no_file_is_read_where_pip_reads_none(home: Path) -> None:
    pip_conf(home, "[global]\nindex-url = https://user.example\n")
    assert settings(home, PIP_CONFIG_FILE=os.devnull).indexes == (PYPI,)


def test_indexes_of_uv_by_name_with_their_credentials(home: Path) -> None:
    uv_toml(
        home,
        '[[index]]\nname = "inner-one"\nurl = "https://inner.example/simple"\n'
        '[[index]]\nurl = "https://main.example/simple"\ndefault = true\n',
    )
    found = settings(home, UV_INDEX_INNER_ONE_USERNAME="me", UV_INDEX_INNER_ONE_PASSWORD="p@ss")
    assert found.indexes == (
        "https://main.example/simple",
        "https://me:p%40ss@inner.example/simple",
    )
    assert "p%40ss" not in "\n".join(found.lines())
    assert settings(home, UV_NO_CONFIG="1").indexes == (PYPI,)
    found = settings(home, UV_INDEX="x=https://x.example https://y.example", UV_NO_CONFIG="1")
    assert found.indexes == (PYPI, "https://x.example", "https://y.example")


def test_no_index_leaves_the_links_alone(home: Path) -> None:
    found = settings(home, {"no_index": True, "find_links": (str(home),)})
    assert (found.indexes, found.find_links) == ((), (home.as_uri(),))
    assert settings(home, PIP_NO_INDEX="1").indexes == ()
    assert settings(home, PIP_NO_INDEX="0").indexes == (PYPI,)
    # An index that is named on the command line is meant.
    option = {"index_url": "https://option.example"}
    assert settings(home, option, PIP_NO_INDEX="1").indexes == ("https://option.example",)


def test_lists_are_parted_as_pip_and_uv_part_them(home: Path) -> None:
    (home / "a,b").mkdir()
    (home / "c").mkdir()
    found = settings(home, PIP_FIND_LINKS=f"{home}/a,b {home}/c")
    assert found.find_links == ((home / "a,b").as_uri(), (home / "c").as_uri())
    found = settings(home, UV_FIND_LINKS=f"{home}/c,{home}")
    assert found.find_links == ((home / "c").as_uri(), home.as_uri())


def test_folders_become_addresses(home: Path) -> None:
    (home / "a b").mkdir()
    found = settings(home, {"index_url": str(home / "a b")})
    assert found.indexes == ((home / "a b").as_uri(),)


def test_certificates_proxy_and_patience(home: Path) -> None:
    for name in ("pip.pem", "other.pem", "mine.pem"):
        (home / name).write_text("")
    found = settings(
        home,
        PIP_CERT=str(home / "pip.pem"),
        SSL_CERT_FILE=str(home / "other.pem"),
        PIP_CLIENT_CERT=str(home / "mine.pem"),
        PIP_PROXY="http://me:secret@proxy.example:3128",
        PIP_TRUSTED_HOST="one.example two.example:8080",
        PIP_DEFAULT_TIMEOUT="60",
        UV_HTTP_RETRIES="9",
    )
    assert found.cert == str(home / "pip.pem")
    assert found.client_cert == str(home / "mine.pem")
    assert found.trusted_hosts == ("one.example", "two.example:8080")
    assert (found.timeout, found.retries) == (60, 9)
    told = "\n".join(found.lines())
    assert "proxy http://me:****@proxy.example:3128 (PIP_PROXY)" in told
    assert "secret" not in told
    assert settings(home, SSL_CERT_FILE=str(home / "other.pem")).cert == str(home / "other.pem")


@pytest.mark.parametrize(
    ("env", "error", "word"),
    [
        ({"PIP_CERT": "/nowhere/ca.pem"}, EnvironmentRefusedError, "PIP_CERT names a certificate"),
        ({"PIP_RETRIES": "many"}, UsageError, "PIP_RETRIES is no number"),
        ({"PIP_NO_INDEX": "perhaps"}, UsageError, "PIP_NO_INDEX is neither yes nor no"),
        ({"PIP_INDEX_URL": "ftp://x.example"}, UsageError, "ftp://x.example is no address"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_meant_is_said(
    home: Path, env: dict[str, str], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        settings(home, None, **env)


def test_an_option_that_names_no_folder_is_wrong_usage(home: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*/nothing"):
        settings(home, {"find_links": (str(home / "nothing"),)})


def test_a_damaged_file_is_named_without_what_it_holds(home: Path) -> None:
    place = pip_conf(home, "index-url = https://me:secret@x.example\n")
    with pytest.raises(EnvironmentRefusedError, match=str(place)) as caught:
        settings(home)
    assert "secret" not in str(caught.value)
    pip_conf(home, "")
    place = uv_toml(home, "index-url = \n")
    with pytest.raises(EnvironmentRefusedError, match=str(place)):
        settings(home)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:secret@x.example/simple", "https://me:****@x.example/simple"),
        ("https://token@x.example/simple", "https://****@x.example/simple"),
        ("https://x.example/f?key=secret#sha256=1", "https://x.example/f?…"),
        ("https://[x.example/secret", "an address that cannot be read"),
    ],
)
def test_no_secret_of_an_address_is_shown(address: str, shown: str) -> None:
    assert redacted(address) == shown


def test_the_settings_of_this_process_are_found() -> None:
    assert json.dumps(index_settings().indexes)
