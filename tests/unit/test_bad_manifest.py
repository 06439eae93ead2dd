"""What users get wrong in a manifest or an inline source, and the one sentence that each of them reads."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cuvee import manifest
from cuvee.errors import ManifestError

Document = dict[str, Any]


def version_1(**changes: Any) -> Document:
    sources = [
        {"name": "math", "path": "math.jsonl", "weight": 0.7},
        {"name": "code", "path": "c.jsonl", "weight": 0.3},
    ]
    return {"version": 1, "seed": 42, "exhaustion": "cycle", "sources": sources} | changes


def version_2(**changes: Any) -> Document:
    return version_1(version=2) | changes


def without(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}


def code(document: Document | None = None, **changes: Any) -> Document:
    """Return a document whose second source is changed."""
    document = document or version_1()
    first, second = document["sources"]
    return document | {"sources": [first, second | changes]}


def unweighted(**changes: Any) -> Document:
    document = version_2(**changes)
    return document | {"sources": [without(source, "weight") for source in document["sources"]]}


def staged(*stages: Any) -> Document:
    return version_2(stages=list(stages))


def stage(at: Any = 100, **changes: Any) -> Document:
    return {"at": at, "weights": {"math": 0.5, "code": 0.5}} | changes


NOT_FINITE = "sources[1].weight must be finite and positive, but got"
NOT_A_NAME = "sources[1].name must be a non-empty, printable string without spaces at its ends, but got"
SOURCE_FIELDS = "the valid fields are name, path, weight; in version 2 also max_epochs, split, columns, rows"
NOT_A_POLICY = 'weights.policy must be "proportional", "temperature", "unimax" or "uniform", but got'
NOT_AN_AT = "stages[0].at must be an integer in [1, 2^63), but got"
NOT_A_SEED = "seed must be an integer in [0, 2^63), but got"

# (what was wrong, the document, the sentence)
DOCUMENTS: list[tuple[str, Any, str]] = [
    ("a list", [1, 2], "must be an object, but got [1, 2]"),
    ("a string", "mix", 'must be an object, but got "mix"'),
    ("null", None, "must be an object, but got null"),
    ("no version", without(version_1(), "version"), 'required field "version" is missing'),
    ("no seed", without(version_1(), "seed"), 'required field "seed" is missing'),
    ("no exhaustion", without(version_1(), "exhaustion"), 'required field "exhaustion" is missing'),
    ("no sources", without(version_1(), "sources"), 'required field "sources" is missing'),
    ("version 3", version_1(version=3, new=1), "version must be 1 or 2, but got 3"),
    ("version true", version_1(version=True), "version must be 1 or 2, but got true"),
    ("version 1.0", version_1(version=1.0), "version must be 1 or 2, but got 1.0"),
    ("version quoted", version_1(version="1"), 'version must be 1 or 2, but got "1"'),
    ("misspelt field", version_1(sed=1), 'unknown field "sed"; did you mean "seed"?'),
    (
        "field in capitals",
        version_1(Samples_Per_Epoch=9),
        'unknown field "Samples_Per_Epoch"; did you mean "samples_per_epoch"?',
    ),
    (
        "misspelt weight",
        version_1(sources=[{"name": "a", "path": "a.jsonl", "weigth": 1}] * 2),
        'sources[0]: unknown field "weigth"; did you mean "weight"?',
    ),
    (
        "foreign field",
        code(probability=0.3),
        f'sources[1]: unknown field "probability"; {SOURCE_FIELDS}',
    ),
    ("no path", version_1(sources=[{"name": "a"}] * 2), 'sources[0]: required field "path" is missing'),
    ("source a string", version_1(sources=["a.jsonl", "b.jsonl"]), 'sources[0] must be an object, but got "a.jsonl"'),
    (
        "sources an object",
        version_1(sources={"a": 1}),
        'sources must be a list of at least 2 sources, but got {"a": 1}',
    ),
    (
        "one source",
        version_1(sources=version_1()["sources"][:1]),
        "sources must be a list of at least 2 sources, but got 1",
    ),
    ("no source", version_1(sources=[]), "sources must be a list of at least 2 sources, but got 0"),
    ("weight negative", code(weight=-1), f"{NOT_FINITE} -1"),
    ("weight 0", code(weight=0), f"{NOT_FINITE} 0.0"),
    ("weight NaN", code(weight=float("nan")), f"{NOT_FINITE} NaN"),
    ("weight infinite", code(weight=float("inf")), f"{NOT_FINITE} Infinity"),
    ("weight true", code(weight=True), f"{NOT_FINITE} true"),
    ("weight quoted", code(weight="0.3"), f'{NOT_FINITE} "0.3"; write the number without quotes'),
    ("weight a word", code(weight="half"), f'{NOT_FINITE} "half"'),
    ("weight a list", code(weight=[0.3]), f"{NOT_FINITE} [0.3]"),
    ("weight huge", code(weight=10**400), f"{NOT_FINITE} 1{'0' * 58}…"),
    (
        "weight left out",
        version_1(sources=[{"name": n, "path": n} for n in "ab"]),
        "sources[0].weight must be finite and positive, but is missing",
    ),
    ("name empty", code(name=""), f'{NOT_A_NAME} ""'),
    ("name padded", code(name=" code"), f'{NOT_A_NAME} " code"'),
    ("name with newline", code(name="co\nde"), f'{NOT_A_NAME} "co\\nde"'),
    ("name invisible", code(name="co\u200bde"), f'{NOT_A_NAME} "co\\u200bde"'),
    ("name half a character", code(name="\ud800"), f'{NOT_A_NAME} "\\ud800"'),
    ("name a number", code(name=7), f"{NOT_A_NAME} 7"),
    ("name twice", code(name="math"), 'sources[1].name must be unique, but got "math", the name of source 0 too'),
    ("path empty", code(path=" "), 'sources[1].path must be a non-empty string without NUL, but got " "'),
    ("path with NUL", code(path="a\0b"), 'sources[1].path must be a non-empty string without NUL, but got "a\\u0000b"'),
    ("path null", code(path=None), "sources[1].path must be a non-empty string without NUL, but got null"),
    ("seed negative", version_1(seed=-1), f"{NOT_A_SEED} -1"),
    ("seed 2^63", version_1(seed=2**63), f"{NOT_A_SEED} 9223372036854775808"),
    ("seed huge", version_1(seed=10**999), f"{NOT_A_SEED} 1{'0' * 58}…"),
    ("seed true", version_1(seed=True), f"{NOT_A_SEED} true"),
    ("seed a float", version_1(seed=42.0), f"{NOT_A_SEED} 42.0; write 42"),
    ("seed quoted", version_1(seed="42"), f'{NOT_A_SEED} "42"; write the number without quotes'),
    ("seed null", version_1(seed=None), f"{NOT_A_SEED} null"),
    (
        "exhaustion misspelt",
        version_1(exhaustion="cylce"),
        'exhaustion must be "stop", "cycle" or "renormalize", but got "cylce"; did you mean "cycle"?',
    ),
    ("exhaustion a number", version_1(exhaustion=1), 'exhaustion must be "stop", "cycle" or "renormalize", but got 1'),
    (
        "shuffle a string",
        version_1(shuffle_within_sources="no"),
        'shuffle_within_sources must be true or false, but got "no"',
    ),
    (
        "shuffle a number",
        version_1(shuffle_within_sources=1),
        "shuffle_within_sources must be true or false, but got 1",
    ),
    (
        "epoch of 0",
        version_1(samples_per_epoch=0),
        'samples_per_epoch must be an integer in [1, 2^63) or "all_seen", but got 0',
    ),
    (
        "epoch a float",
        version_1(samples_per_epoch=1e6),
        'samples_per_epoch must be an integer in [1, 2^63) or "all_seen", but got 1000000.0; write 1000000',
    ),
    (
        "epoch all",
        version_2(samples_per_epoch="all-seen"),
        'samples_per_epoch must be an integer in [1, 2^63) or "all_seen", but got "all-seen"; did you mean "all_seen"?',
    ),
    (
        "epoch without cycle",
        version_1(exhaustion="stop", samples_per_epoch=1000),
        'samples_per_epoch must be left out unless exhaustion is "cycle", but got 1000 with "stop"',
    ),
    (
        "all_seen without cycle",
        version_2(exhaustion="renormalize", samples_per_epoch="all_seen"),
        'samples_per_epoch must be left out unless exhaustion is "cycle", but got "all_seen" with "renormalize"',
    ),
    (
        "all_seen in version 1",
        version_1(samples_per_epoch="all_seen"),
        'samples_per_epoch must be an integer in version 1, but got "all_seen"; set "version": 2',
    ),
    (
        "unit in version 1",
        version_1(unit="tokens"),
        'unit must be left out in version 1, but got "tokens"; set "version": 2 to use it',
    ),
    (
        "weights in version 1",
        unweighted(version=1, weights={"policy": "uniform"}),
        'weights must be left out in version 1, but got {"policy": "uniform"}; set "version": 2 to use it',
    ),
    (
        "max_epochs in version 1",
        code(max_epochs=2),
        'sources[1].max_epochs must be left out in version 1, but got 2; set "version": 2 to use it',
    ),
    (
        "columns in version 1",
        code(columns=["text"]),
        'sources[1].columns must be left out in version 1, but got ["text"]; set "version": 2 to use it',
    ),
    (
        "unit misspelt",
        version_2(unit="token"),
        'unit must be "rows" or "tokens", but got "token"; did you mean "tokens"?',
    ),
    ("window 0", version_2(window=0), "window must be an integer in [1, 65536], but got 0"),
    ("window too large", version_2(window=65537), "window must be an integer in [1, 65536], but got 65537"),
    (
        "control_interval 0",
        version_2(control_interval=0),
        "control_interval must be an integer in [1, 2^63), but got 0",
    ),
    (
        "max_length too large",
        version_2(max_length=2**31),
        "max_length must be an integer in [1, 2^31), but got 2147483648",
    ),
    (
        "max_epochs a fraction",
        code(version_2(), max_epochs=1.5),
        "sources[1].max_epochs must be an integer in [1, 2^32), but got 1.5",
    ),
    ("split empty", code(version_2(), split=""), 'sources[1].split must be a non-empty string, but got ""'),
    (
        "columns a string",
        code(version_2(), columns="text"),
        'sources[1].columns must be a list of at least 1 column, but got "text"',
    ),
    ("no columns", code(version_2(), columns=[]), "sources[1].columns must be a list of at least 1 column, but got 0"),
    (
        "column a number",
        code(version_2(), columns=["a", 3]),
        "sources[1].columns[1] must be a non-empty string, but got 3",
    ),
    (
        "weights as a word",
        unweighted(weights="proportional"),
        'weights must be an object such as {"policy": "proportional"}, but got "proportional"',
    ),
    (
        "policy misspelt",
        unweighted(weights={"policy": "temprature", "tau": 2}),
        f'{NOT_A_POLICY} "temprature"; did you mean "temperature"?',
    ),
    (
        "policy a list",
        unweighted(weights={"policy": ["uniform"]}),
        f'{NOT_A_POLICY} ["uniform"]',
    ),
    ("no tau", unweighted(weights={"policy": "temperature"}), 'weights: required field "tau" is missing'),
    (
        "tau 0",
        unweighted(weights={"policy": "temperature", "tau": 0}),
        "weights.tau must be finite and positive, but got 0",
    ),
    (
        "unimax without passes",
        unweighted(weights={"policy": "unimax", "max_epochs": float("nan")}),
        "weights.max_epochs must be finite and positive, but got NaN",
    ),
    (
        "tau for another policy",
        unweighted(weights={"policy": "unimax", "max_epochs": 4, "tau": 2}),
        'weights: unknown field "tau"; the valid fields are policy, max_epochs',
    ),
    (
        "policy and weights",
        version_2(weights={"policy": "uniform"}),
        'sources[0].weight must be left out where "weights" names a policy, but got 0.7',
    ),
    (
        "neither policy nor weights",
        unweighted(),
        'sources[0].weight must be finite and positive, but is missing; or give "weights" a policy',
    ),
    (
        "weight 0 for ever",
        code(version_2(), weight=0),
        "sources[1].weight must be finite and positive, but got 0.0; 0 is allowed only where a stage raises it",
    ),
    (
        "all weights 0",
        staged(stage()) | {"sources": [source | {"weight": 0} for source in version_1()["sources"]]},
        "sources must not all have weight 0, but got 0 for every one; the run has to start somewhere",
    ),
    (
        "stages an object",
        version_2(stages=stage()),
        'stages must be a list of at least 1 stage, but got {"at": 100, "weights": {"math": 0.5, "code": 0.5}}',
    ),
    ("no stages", version_2(stages=[]), "stages must be a list of at least 1 stage, but got 0"),
    (
        "stage at 0",
        staged(stage(at=0)),
        f"{NOT_AN_AT} 0; before the first stage the weights are those of the sources",
    ),
    (
        "stage a float",
        staged(stage(at=5e3)),
        "stages[0].at must be an integer in [1, 2^63), but got 5000.0; write 5000",
    ),
    (
        "stages out of order",
        staged(stage(200), stage(100)),
        "stages[1].at must be above 200, the position of the stage before, but got 100",
    ),
    (
        "stages at one position",
        staged(stage(200), stage(200)),
        "stages[1].at must be above 200, the position of the stage before, but got 200",
    ),
    ("stage without weights", staged({"at": 5}), 'stages[0]: required field "weights" is missing'),
    (
        "stage weights a list",
        staged(stage(weights=[1, 2])),
        "stages[0].weights must be an object of one weight per source, but got [1, 2]",
    ),
    (
        "unknown source",
        staged(stage(weights={"math": 1, "coed": 1})),
        'stages[0].weights: unknown source "coed"; did you mean "code"?',
    ),
    (
        "foreign source",
        staged(stage(weights={"web": 1})),
        'stages[0].weights: unknown source "web"; the sources are ["math", "code"]',
    ),
    (
        "source left out",
        staged(stage(weights={"math": 1})),
        'stages[0].weights must name every source, but "code" is missing',
    ),
    (
        "stage weight negative",
        staged(stage(), stage(200, weights={"math": 1, "code": -0.5})),
        "stages[1].weights.code must be finite and not negative, but got -0.5",
    ),
    (
        "stage weight true",
        staged(stage(weights={"math": True, "code": 1})),
        "stages[0].weights.math must be finite and not negative, but got true",
    ),
    (
        "stage weights 0",
        staged(stage(weights={"math": 0, "code": 0})),
        'stages[0].weights must not all be 0, but got {"math": 0.0, "code": 0.0}',
    ),
    (
        "interpolation",
        staged(stage(interpolation="cosin")),
        'stages[0].interpolation must be "linear" or "cosine", but got "cosin"; did you mean "cosine"?',
    ),
    (
        "stage misspelt",
        staged(stage(interpolate="linear")),
        'stages[0]: unknown field "interpolate"; did you mean "interpolation"?',
    ),
]

# What JSON Schema cannot say: 1.0 is an integer to it, and fields do not look at one another.
BEYOND_SCHEMA = {
    "version 1.0",
    "weight NaN",
    "weight infinite",
    "weight huge",
    "name invisible",
    "name half a character",
    "name twice",
    "path empty",
    "path with NUL",
    "seed a float",
    "epoch a float",
    "unimax without passes",
    "weight 0 for ever",
    "all weights 0",
    "stage a float",
    "stages out of order",
    "stages at one position",
    "unknown source",
    "foreign source",
    "source left out",
    "stage weights 0",
}

VALID = json.dumps(version_1()).encode()

# (what was wrong, the bytes of the file mix.json, the sentence)
FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "{file} must be valid JSON, but got the end of the file at line 1, column 1 (expecting value)"),
    (
        "single quotes",
        b"{\n  'seed': 1\n}",
        (
            "{file} must be valid JSON, but got \"'seed': 1\" at line 2, column 3 (expecting property name enclosed in "
            "double quotes)"
        ),
    ),
    (
        "a comma missing",
        b'{"version": 1\n "seed": 42}',
        '{file} must be valid JSON, but got "\\"seed\\": 42}" at line 2, column 2 (expecting \',\' delimiter)',
    ),
    (
        "cut off",
        VALID[:-2],
        "{file} must be valid JSON, but got the end of the file at line 1, column 168 (expecting ',' delimiter)",
    ),
    ("two documents", b"{}\n{}", '{file} must be valid JSON, but got "{}" at line 2, column 1 (extra data)'),
    ("Latin-1", b'{"n": "\xe9t\xe9"}', "{file} must be UTF-8 text, but got byte 0xe9 at offset 7"),
    (
        "UTF-16",
        b"\xff\xfe" + VALID.decode().encode("utf-16-le"),
        "{file} must be UTF-8 text, but got byte 0xff at offset 0",
    ),
    ("key twice", VALID[:-1] + b', "seed": 7}', '{file} must have each key once, but got "seed" twice'),
    (
        "key twice inside",
        VALID.replace(b'"weight": 0.3', b'"weight": 0.3, "weight": 0.4'),
        '{file}: sources[1] must have each key once, but got "weight" twice',
    ),
    (
        "keys twice at two depths",
        VALID.replace(b'"weight": 0.3', b'"weight": 0.3, "weight": 0.4')[:-1] + b', "sources": []}',
        '{file} must have each key once, but got "sources" twice',
    ),
    ("NaN", VALID.replace(b"0.3", b"NaN"), "{file}: " + NOT_FINITE + " NaN"),
    ("infinity", VALID.replace(b"0.3", b"-Infinity"), "{file}: " + NOT_FINITE + " -Infinity"),
    ("too large for a float", VALID.replace(b"0.3", b"1e400"), "{file}: " + NOT_FINITE + " Infinity"),
    ("negative", VALID.replace(b"0.3", b"-1"), "{file}: " + NOT_FINITE + " -1"),
    (
        "an integer of 5,000 digits",
        VALID.replace(b"42", b"7" * 5000),
        "{file}: every integer must have at most 1000 digits, but got 77777777777777777777… (5000 digits)",
    ),
    ("nested deeply", b"[" * 200_000, "{file} must be a manifest, but got objects nested too deeply to read"),
    ("a list", b"[]", "{file} must be an object, but got []"),
]

NOT_A_NUMBER, CURE = "weight must be a number, but got", '; it is what follows the last ":"'
NOT_A_SOURCE = "source must be NAME=PATH:WEIGHT, but got"
MATH = "math=math.jsonl:0.7"

# (what was wrong, the arguments of from_inline, the sentence)
INLINE: list[tuple[str, Any, Mapping[str, Any], str]] = [
    ("one source", [MATH], {}, "sources must be a list of at least 2 sources, but got 1"),
    ("no source", [], {}, "sources must be a list of at least 2 sources, but got 0"),
    ("a string", MATH, {}, f'sources must be a list of NAME=PATH:WEIGHT, but got "{MATH}"'),
    ("no =", [MATH, "code.jsonl:0.3"], {}, f'{NOT_A_SOURCE} "code.jsonl:0.3", which has no "="'),
    ("no weight", [MATH, "code=code.jsonl"], {}, f'{NOT_A_SOURCE} "code=code.jsonl", which has no weight at its end'),
    (
        "Hub reference without weight",
        [MATH, "code=org/repo:config:train"],
        {},
        f'source "code=org/repo:config:train": {NOT_A_NUMBER} "train"{CURE}',
    ),
    (
        "Windows path without weight",
        [MATH, "code=C:\\code.jsonl"],
        {},
        f'source "code=C:\\\\code.jsonl": {NOT_A_NUMBER} "\\\\code.jsonl"{CURE}',
    ),
    (
        "weight empty",
        [MATH, "code=c:"],
        {},
        f'source "code=c:": {NOT_A_NUMBER} ""{CURE}',
    ),
    (
        "weight with comma",
        [MATH, "code=c:0,3"],
        {},
        f'source "code=c:0,3": {NOT_A_NUMBER} "0,3"{CURE}',
    ),
    (
        "weight underscored",
        [MATH, "code=c:1_0"],
        {},
        f'source "code=c:1_0": {NOT_A_NUMBER} "1_0"{CURE}',
    ),
    (
        "weight negative",
        [MATH, "code=c:-1"],
        {},
        'source "code=c:-1": weight must be finite and positive, but got -1.0',
    ),
    ("weight 0", [MATH, "code=c:0"], {}, 'source "code=c:0": weight must be finite and positive, but got 0.0'),
    ("weight nan", [MATH, "code=c:nan"], {}, 'source "code=c:nan": weight must be finite and positive, but got NaN'),
    (
        "weight too large",
        [MATH, "code=c:1e999"],
        {},
        'source "code=c:1e999": weight must be finite and positive, but got Infinity',
    ),
    (
        "name empty",
        [MATH, "=c:1"],
        {},
        'source "=c:1": name must be a non-empty, printable string without spaces at its ends, but got ""',
    ),
    (
        "name padded",
        [MATH, "code =c:1"],
        {},
        'source "code =c:1": name must be a non-empty, printable string without spaces at its ends, but got "code "',
    ),
    ("path empty", [MATH, "code=:1"], {}, 'source "code=:1": path must be a non-empty string without NUL, but got ""'),
    ("name twice", [MATH, MATH], {}, f'source "{MATH}": name must be unique, but got "math", the name of source 0 too'),
    ("no string", [MATH, None], {}, f"{NOT_A_SOURCE} null"),
    ("seed", [MATH, "b=b:1"], {"seed": -3}, f"{NOT_A_SEED} -3"),
    (
        "exhaustion",
        [MATH, "b=b:1"],
        {"exhaustion": "renorm"},
        'exhaustion must be "stop", "cycle" or "renormalize", but got "renorm"; did you mean "renormalize"?',
    ),
    (
        "epoch without cycle",
        [MATH, "b=b:1"],
        {"exhaustion": "stop", "samples_per_epoch": 10},
        'samples_per_epoch must be left out unless exhaustion is "cycle", but got 10 with "stop"',
    ),
]


def complaint_about(act: Callable[[], object]) -> str:
    with pytest.raises(ManifestError) as caught:
        act()
    assert caught.value.__cause__ is None
    alone = caught.value.__suppress_context__ or caught.value.__context__ is None
    assert alone, "the sentence must stand without another library's traceback before it"
    return str(caught.value)


@pytest.mark.parametrize(("document", "sentence"), [row[1:] for row in DOCUMENTS], ids=[row[0] for row in DOCUMENTS])
def test_bad_document_gets_one_sentence(document: Any, sentence: str) -> None:
    assert complaint_about(lambda: manifest.parse(document)) == sentence


@pytest.mark.parametrize(("content", "sentence"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_bad_file_gets_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mix.json"
    file.write_bytes(content)
    assert complaint_about(lambda: manifest.load(file)) == sentence.replace("{file}", str(file))


@pytest.mark.parametrize(("sources", "others", "sentence"), [row[1:] for row in INLINE], ids=[row[0] for row in INLINE])
def test_bad_inline_form_gets_one_sentence(sources: Any, others: Mapping[str, Any], sentence: str) -> None:
    assert complaint_about(lambda: manifest.from_inline(sources, **others)) == sentence


def test_every_sentence_is_one_printable_line() -> None:
    for sentence in [row[2] for row in DOCUMENTS] + [row[2] for row in FILES] + [row[3] for row in INLINE]:
        assert sentence.isprintable()
        assert not sentence.endswith(".")


@pytest.mark.parametrize(("wrong", "document"), [row[:2] for row in DOCUMENTS], ids=[row[0] for row in DOCUMENTS])
def test_schema_refuses_what_it_can_express(wrong: str, document: Any) -> None:
    validator = jsonschema.Draft202012Validator(manifest.json_schema())
    assert validator.is_valid(document) == (wrong in BEYOND_SCHEMA)


def test_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "mix.json").write_bytes(VALID)
    wrong = tmp_path / "mixx.json"
    assert complaint_about(lambda: manifest.load(wrong)) == (
        f'manifest must be a file that can be read, but got "{wrong}": no such file or directory; '
        'did you mean "mix.json"?'
    )


@pytest.mark.parametrize(("path", "reason"), [("", "is a directory"), ("no/mix.json", "no such file or directory")])
def test_path_that_is_no_file(path: str, reason: str, tmp_path: Path) -> None:
    wrong = tmp_path / path
    expected = f'manifest must be a file that can be read, but got "{wrong}": {reason}'
    assert complaint_about(lambda: manifest.load(wrong)) == expected


def test_path_with_nul() -> None:
    assert complaint_about(lambda: manifest.load("a\0b")) == (
        'manifest must be a file that can be read, but got "a\\u0000b": embedded null byte'
    )


def test_keys_that_json_cannot_have_are_unknown_fields() -> None:
    assert complaint_about(lambda: manifest.parse(version_1() | {1: 2})).startswith("unknown field 1; the valid")  # type: ignore[dict-item]


def test_values_that_json_cannot_have_are_shown_by_repr() -> None:
    assert complaint_about(lambda: manifest.parse(version_1(seed={1, 2}))) == f"{NOT_A_SEED} {{1, 2}}"


def test_integer_that_python_does_not_print() -> None:
    assert complaint_about(lambda: manifest.parse(version_1(seed=1 << 20_000))) == (
        f"{NOT_A_SEED} an integer of 20001 bits"
    )


def test_only_the_first_fault_is_named() -> None:
    assert complaint_about(lambda: manifest.parse(version_1(seed=-1, exhaustion="x"))) == f"{NOT_A_SEED} -1"


def test_schema_knows_no_more_fields_than_the_model() -> None:
    schema = manifest.json_schema()
    assert set(schema["properties"]) == set(manifest.Manifest.model_fields)
    assert all("description" in field for field in schema["properties"].values())
