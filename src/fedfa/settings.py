"""From a table of plain values to checked dataclasses, and back to TOML.

The dataclasses define the keys, their types and (in ``__post_init__``) their bounds. For every mistake this module
raises an error of one line that names the key, the value seen and the remedy.
"""

import ast
import collections.abc
import difflib
import importlib
import importlib.util
import inspect
import json
import math
import sys
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedfa.errors import ConfigError, UnknownKey, in_a_line, require

T = TypeVar("T")


def build(cls: type[T], table: Any, where: str = "") -> T:
    """An instance of a dataclass from a table; ``where`` is the table's own key."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {show(table)}: must be a table of settings")
    hints = type_hints(cls)
    known = {f.name: f for f in fields(cls) if f.init}  # pyright: ignore[reportArgumentType]
    values = {}
    for key, value in table.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            raise UnknownKey(f"{path} = {show(value)}: unknown key; {suggest(key, known)}", path)
        usual = getattr(known[key].default, "kind", None)
        if usual is not None and isinstance(value, Mapping):  # some settings of the default kind
            value = {"kind": usual} | dict(value)
        values[key] = convert(value, hints[key], path)
    for f in fields(cls):  # pyright: ignore[reportArgumentType]
        if f.init and f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{where or 'settings'}: {f.name} is missing")
    try:
        return cls(**values)
    except ConfigError as error:
        raise error.inside(where) from error


@cache
def type_hints(cls: type) -> dict[str, Any]:
    """A class's annotations as types; resolving them takes longer than all other work on a table."""
    return get_type_hints(cls)


def convert(value: Any, hint: Any, path: str) -> Any:
    """The value converted to the annotated type, or a ConfigError."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, options, path)
    if origin is Literal:
        if not any(value is option or value == option for option in options):
            raise ConfigError(f"{path} = {show(value)}: {suggest(value, options, 'must be one of')}", path)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{path} = {show(value)}: must be a list", path)
        return tuple(convert(item, options[0], f"{path}[{n}]") for n, item in enumerate(value))
    if is_dataclass(hint):
        return build(hint, value, path)  # pyright: ignore[reportArgumentType]
    if origin is collections.abc.Callable:
        if not callable(value):
            raise ConfigError(f"{path} = {show(value)}: must be a function", path)
        return value
    if not isinstance(hint, type):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if hint is float and isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path} = {show(value)}: must be finite", path)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise ConfigError(f"{path} = {show(value)}: must be {names.get(hint, hint.__name__)}", path)
    return value


def _one_of(value: Any, options: tuple[Any, ...], path: str) -> Any:
    if value is None and types.NoneType in options:
        return None
    real = [option for option in options if option is not types.NoneType]
    if any(is_dataclass(option) and isinstance(value, option) for option in real):  # pyright: ignore
        return value
    tables: list[Any] = [option for option in real if is_dataclass(option)]
    with_kind = [option for option in tables if "kind" in option.__dataclass_fields__]
    kinds: dict[str, Any] = {option.__dataclass_fields__["kind"].default: option for option in with_kind}
    if isinstance(value, Mapping) and tables:
        if not kinds:
            return build(tables[0], value, path)
        kind = value.get("kind")
        if kind is None:
            raise ConfigError(f"{path}.kind: is missing; one of {', '.join(kinds)}", path)
        if not isinstance(kind, str) or kind not in kinds:
            raise ConfigError(f"{path}.kind = {show(kind)}: {suggest(kind, kinds, 'must be one of')}", path)
        return build(kinds[kind], value, path)
    if isinstance(value, str) and value in kinds:
        return kinds[value]()
    plain = [option for option in real if not is_dataclass(option)]
    errors = []
    for option in plain:
        try:
            return convert(value, option, path)
        except ConfigError as error:
            errors.append(error)
    if errors and not kinds:
        raise errors[0]
    expected = f"one of {', '.join(kinds)}, or a table" if kinds else "a table of settings"
    raise ConfigError(f"{path} = {show(value)}: must be {expected}", path)


def one_of(known: Iterable[str], value: Any, key: str) -> str:
    """The value, if it is one of the known names."""
    names = list(known)
    if value not in names:
        raise ConfigError(f"{key} = {value!r}: {suggest(value, names, 'must be one of')}", key)
    return value


def suggest(seen: Any, valid: Iterable[Any], otherwise: str = "valid keys:") -> str:
    """The nearest valid word, or all of them."""
    words = [str(word) for word in valid]
    longer = [word for word in words if seen and word.startswith(str(seen))]
    near = [] if seen is None else longer or difflib.get_close_matches(str(seen), words, n=1, cutoff=0.6)
    listed = f"{otherwise} {', '.join(words)}"
    return f"did you mean '{near[0]}'? ({listed})" if near else listed


def show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_override(text: str) -> tuple[list[str], Any]:
    """``strategy.window=10`` as path and value; values are TOML, and bare words are texts."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: must look like key=value, for example strategy.window=10")
    try:
        parsed = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = None if value.strip() == "none" else value.strip()
    return key.strip().split("."), parsed


def override(table: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a nested key in place; ``None`` removes it, so that its default applies."""
    for number, key in enumerate(path[:-1]):
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {'.'.join(path)}: {'.'.join(path[: number + 1])} is not a table")
        table = inner
    if value is None:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = value


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """TOML text of nested tables of plain values; keys whose value is None are left out."""
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and v is not None}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    parts = ["\n".join(lines)] if lines else []
    for key, value in table.items():
        if isinstance(value, Mapping):
            path = f"{prefix}{key}"
            inner = to_toml(value, f"{path}.")
            parts.append(f"[{path}]\n{inner}".rstrip())
    return "\n\n".join(parts) + ("\n" if not prefix else "")


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def load_object(path: str, where: str) -> Any:
    """What ``file.py:name`` or ``package.module:name`` refers to."""
    module_name, colon, attribute = path.rpartition(":")
    require(bool(colon and module_name and attribute), f"{where} = {path!r}: must look like file.py:name")
    try:
        if module_name.endswith(".py"):
            file = Path(module_name).resolve()
            require(file.is_file(), f"{where} = {path!r}: no such file {module_name}")
            spec = importlib.util.spec_from_file_location(f"fedfa_user_{file.stem}", file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except ConfigError:
        raise
    except Exception as error:  # code of the user's own
        raise ConfigError(f"{where} = {path!r}: cannot be imported ({in_a_line(error)})") from error
    names = [name for name in vars(module) if not name.startswith("_")]
    near = suggest(attribute, names, "it has")
    require(hasattr(module, attribute), f"{where} = {path!r}: {module_name} has no {attribute}; {near}")
    return getattr(module, attribute)


@cache
def meanings(settings: type) -> dict[str, str]:
    """The docstrings under the fields in the source of a dataclass and its bases."""
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__[:-1]):
        if not is_dataclass(cls):
            continue
        body = ast.parse(inspect.getsource(cls)).body[0].body  # pyright: ignore[reportAttributeAccessIssue]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                found[field.target.id] = ast.literal_eval(text.value)
    return found
