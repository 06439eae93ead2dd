"""The settings of a run from where people write them: the command line, over a file of options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CuveeError
from .config_file import Entry, read_config
from .rules import Names, Rule, Sources
from .run_folder import LATEST, run_of
from .settings import GivenData, TrainSettings, option_of, rules_of_settings

DATA = ("dataset_mix_config", "dataset_source", "dataset_path")
INLINE = ("dataset_mix_seed", "dataset_mix_exhaustion", "dataset_mix_samples_per_epoch")


def read_settings(
    given: Mapping[str, object], *, manifest: Path | None = None, config: Path | None = None
) -> TrainSettings:
    """Return the settings that a command line gives, over those of a file.

    Relative paths of the command line start at the current folder, those of the file at the file's. To name data on the
    command line replaces all that the file says of it.

    Args:
        given: values by field name: texts as they were typed, or values; None and empty lists were not given.
        manifest: the argument MANIFEST.
        config: a YAML file of options.

    Raises:
        CuveeError: anything in them is wrong; one sentence that names the option, and the file and line it stands in.
    """
    rules = rules_of_settings()
    typed = {name: _typed(name, rules[name], value) for name, value in given.items() if _is_given(value)}
    if manifest is not None:
        _check_alone(manifest, typed)
        typed["dataset_mix_config"] = manifest
    filed = {} if config is None else _from_file(config)
    if any(name in typed for name in DATA):
        replaced = DATA if "dataset_source" in typed else DATA + INLINE
        filed = {name: value for name, value in filed.items() if name not in replaced}
    values = filed | typed
    resume = values.get("resume")
    if resume not in (None, LATEST):
        values.setdefault("output_dir", run_of(Path(resume)))
    return TrainSettings(**values)


def _is_given(value: object) -> bool:
    return value is not None and value not in ([], ())


def _typed(name: str, rule: Rule, value: object) -> Any:
    return rule.read(value, option_of(name)) if isinstance(value, str) else rule.accepted(value, option_of(name))


def _check_alone(manifest: Path, typed: Mapping[str, Any]) -> None:
    """Check that no other data were named beside MANIFEST, while it is still known that it stood there."""
    GivenData(
        manifest=manifest,
        config=typed.get("dataset_mix_config"),
        sources=typed.get("dataset_source", ()),
        dataset_path=typed.get("dataset_path"),
    )


def _from_file(path: Path) -> dict[str, Any]:
    rules = rules_of_settings()
    entries = read_config(path, [name.replace("_", "-") for name in rules])
    folder = path.resolve().parent
    return {
        name: rules[name].anchored(_filed(option_of(name), rules[name], entry), folder)
        for name, entry in entries.items()
    }


def _filed(option: str, rule: Rule, entry: Entry) -> Any:
    """Return the value that a file gives to an option."""
    label = f"{entry.place}: {option}"
    if isinstance(rule, Sources | Names) and entry.kind == "a list":
        return rule.accepted(entry.texts, label)
    if entry.kind != "text":
        raise CuveeError(f"{label} must be {rule.text}, but got {entry.kind}")
    (text,) = entry.texts
    if entry.quoted and not rule.takes_quoted(text):
        raise CuveeError(f"{label} must be {rule.text}, but got {text!r} in quotes; write it without them")
    return rule.read(text, label)
