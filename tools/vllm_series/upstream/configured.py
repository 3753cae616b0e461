"""What the configuration files of pip and uv say, by option name.

pip (https://pip.pypa.io/en/stable/topics/configuration/): the files of the machine, the user and
the virtual environment and the one that `PIP_CONFIG_FILE` names, each over the ones before; in a
file, the section of the command goes over `[global]`. uv
(https://docs.astral.sh/uv/concepts/configuration-files/): the user's `uv.toml`, then the machine's.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_series.errors import EnvironmentRefusedError

_ETC = Path("/etc")
_SECTIONS = ("global", "download", "install")
"""Later ones win: the choice of a wheel is that of `pip install`."""


def pip_values(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The value and the file of each option that pip's files set, by its long name.

    Raises EnvironmentRefusedError for a file that cannot be read.
    """
    by_section: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in _SECTIONS}
    for place in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            with place.open(encoding="utf-8") as stream:
                parser.read_file(stream)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            raise _unreadable(place, error) from error
        for section in _SECTIONS:
            if parser.has_section(section):
                for key, value in parser.items(section):
                    name = key.lower().replace("_", "-").removeprefix("--")
                    by_section[section][name] = (value, str(place))
    merged: dict[str, tuple[str, str]] = {}
    for section in _SECTIONS:
        # pip takes an empty value for one that is not set.
        merged.update({key: pair for key, pair in by_section[section].items() if pair[0].strip()})
    return merged


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    override = environ.get("PIP_CONFIG_FILE")
    if override == os.devnull:
        return []
    home = _home(environ)
    name = "pip.ini" if os.name == "nt" else "pip.conf"
    user = _config_home(environ) / "pip" / name
    if os.name == "nt":
        machine = [Path(environ.get("PROGRAMDATA", "C:/ProgramData")) / "pip" / name]
        user = Path(environ.get("APPDATA", str(home / "AppData/Roaming"))) / "pip" / name
        old = home / "pip" / name
    elif sys.platform == "darwin":
        machine = [Path("/Library/Application Support/pip") / name]
        mac = home / "Library/Application Support/pip"
        user = mac / name if mac.is_dir() else home / ".config/pip" / name
        old = home / ".pip" / name
    else:
        folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        machine = [Path(folder) / "pip" / name for folder in folders.split(os.pathsep) if folder]
        machine.append(_ETC / name)
        old = home / ".pip" / name
    site = Path(environ.get("VIRTUAL_ENV") or sys.prefix) / name
    return [*machine, old, user, site, *([Path(override).expanduser()] if override else [])]


def uv_values(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The value and the file of what concerns the index in uv's files, by the key that uv gives it.

    Lists are joined by blanks; `[[index]]` tables become `index-url` (`default = true`) and
    `extra-index-url`. Raises EnvironmentRefusedError for a file that cannot be read.
    """
    merged: dict[str, tuple[str, str]] = {}
    for place in _uv_files(environ):
        try:
            text = place.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(place, error) from error
        for key, value in _uv_keys(_toml(text, place)).items():
            merged.setdefault(key, (value, str(place)))
    return merged


def _uv_files(environ: Mapping[str, str]) -> list[Path]:
    if environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes"):
        return []
    override = environ.get("UV_CONFIG_FILE")
    if override:
        return [Path(override).expanduser()]
    if os.name == "nt":
        home = environ.get("APPDATA", str(_home(environ) / "AppData/Roaming"))
        machine = [Path(environ.get("PROGRAMDATA", "C:/ProgramData"))]
        return [Path(home) / "uv/uv.toml", *(folder / "uv/uv.toml" for folder in machine)]
    folders = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    machine = [*(Path(folder) for folder in folders if folder), _ETC]
    return [folder / "uv" / "uv.toml" for folder in (_config_home(environ), *machine)]


def _toml(text: str, place: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        value: dict[str, Any] = tomllib.loads(text)
        return value
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(place, error) from error


def _uv_keys(value: dict[str, Any]) -> dict[str, str]:
    """What concerns the index; the `[pip]` table goes over the top, as for `uv pip`."""
    pip = value.get("pip")
    keys: dict[str, str] = {}
    for table in (value, pip if isinstance(pip, dict) else {}):
        for name in (
            "index-url",
            "extra-index-url",
            "find-links",
            "no-index",
            "allow-insecure-host",
        ):
            if name in table:
                keys[name] = _joined(table[name])
        tables = [item for item in _list(table.get("index")) if isinstance(item, dict)]
        named = [(item, _named(item)) for item in tables if isinstance(item.get("url"), str)]
        main = [address for item, address in named if item.get("default") is True]
        extra = [address for item, address in named if item.get("default") is not True]
        if main:
            keys["index-url"] = main[0]
        if extra:
            keys["extra-index-url"] = " ".join(extra)
    return {name: text for name, text in keys.items() if text}


def _named(item: dict[str, Any]) -> str:
    return f"{item['name']}={item['url']}" if isinstance(item.get("name"), str) else item["url"]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _config_home(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CONFIG_HOME")
    return Path(given) if given else _home(environ) / ".config"


def _unreadable(place: Path, error: Exception) -> EnvironmentRefusedError:
    reason = error.strerror if isinstance(error, OSError) else str(error).replace("\n", " ")
    # A parser's message may quote a line, and a line may hold a password.
    if isinstance(error, configparser.Error):
        reason = type(error).__name__
    return EnvironmentRefusedError(
        f"{place} cannot be read: {reason}. Mend it, or set PIP_CONFIG_FILE={os.devnull} and "
        "UV_NO_CONFIG=1 to do without such files."
    )
