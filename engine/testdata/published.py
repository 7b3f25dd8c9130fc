"""Compares what package engine sends and reads with the types in the published wheels of vLLM and SGLang.

TestPublishedTypes gives the calls as JSON on standard input. The source in the wheels is read, and never run: a few
megabytes by HTTP ranges, or whole wheels where pip or the index has none. Then each name is misspelt, one at a time,
and the comparison must notice.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

Shape = dict[str, Any]  # of types_test.go
Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Wheel:
    """Where a server's routes begin, and what is not told by the signatures of its handlers, as MODULE:NAME."""

    app: str
    # by path, or path and field: classes, or functions with parameters. All must agree.
    takes: dict[str, list[str]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)  # by path and field: the class whose method the value names
    # by path: classes, or functions that make dicts. The first must have every field.
    answers: dict[str, list[list[str]]] = field(default_factory=dict)


TOKENIZER = "sglang.srt.managers.tokenizer_manager:TokenizerManager"
CONTRACT = "sglang.api.v1.api_types"  # which refuses sampling parameters that it does not know
WHEELS = {
    "vllm": Wheel(
        app="vllm.entrypoints.launchers.app",
        takes={"/collective_rpc.kwargs": ["vllm.v1.worker.gpu_model_runner:GPUModelRunner.reload_weights"]},
        methods={"/collective_rpc.method": "vllm.v1.worker.gpu_worker:Worker"},
        answers={"/v1/models": [["vllm.entrypoints.serve.engine.protocol:ModelList"]]},
    ),
    "sglang": Wheel(
        app="sglang.srt.entrypoints.http_server",
        takes={"/generate": [f"{CONTRACT}:GenerateRequest"]},
        answers={
            "/generate": [
                [
                    f"{TOKENIZER}._handle_batch_output",
                    f"{TOKENIZER}.add_logprob_to_meta_info",
                    "sglang.srt.managers.schedule_batch:FINISH_LENGTH.to_json",
                    "sglang.srt.utils.weight_versions:add_weight_versions_to_meta_info",
                ],
                [f"{CONTRACT}:GenerateResponse"],
            ],
            "/v1/models": [["sglang.srt.entrypoints.openai.protocol:ModelList"]],
            "/tokenize": [["sglang.srt.entrypoints.openai.protocol:TokenizeResponse"]],
        },
    ),
}


class Package:
    """The source of a package, by module."""

    def __init__(self, names: Iterable[str], read: Callable[[str], bytes]) -> None:
        self.names, self.read = set(names), read
        self.module = cache(self._module)
        self.imports = cache(self._imports)

    def _module(self, name: str) -> ast.Module | None:
        for path in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
            if path in self.names:
                return ast.parse(self.read(path))
        return None

    def _imports(self, name: str) -> dict[str, tuple[str, str]]:
        """The module and name of what a module imports from others, wherever it does."""
        found: dict[str, tuple[str, str]] = {}
        packed = f"{name.replace('.', '/')}/__init__.py" in self.names
        for node in ast.walk(self.module(name) or ast.Module([], [])):
            if isinstance(node, ast.ImportFrom):
                source = node.module or ""
                if node.level:
                    above = name.split(".")[: len(name.split(".")) - node.level + packed]
                    source = ".".join([*above, source] if source else above)
                found |= {a.asname or a.name: (source, a.name) for a in node.names}
        return found

    def find(self, module: str, name: str) -> tuple[str, Node] | None:
        """A definition, here or where it is imported from. Methods are CLASS.METHOD."""
        outer, _, method = name.partition(".")
        for node in (self.module(module) or ast.Module([], [])).body:
            match node:
                case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                    pass
                case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)):
                    pass
                case _:
                    continue
            if found == outer:
                if not method:
                    return module, node
                inner = (n for n in ast.walk(node) if isinstance(n, Function) and n.name == method)
                return next(((module, n) for n in inner), None)
        source, origin = self.imports(module).get(outer, ("", ""))
        return self.find(source, origin + name[len(outer) :]) if self.module(source) else None

    def named(self, reference: str) -> tuple[str, Node]:
        """What MODULE:NAME names."""
        found = self.find(*reference.split(":"))
        if found is None:
            raise SystemExit(f"the wheel has no {reference}: say in WHEELS where it is now")
        return found

    def members(self, module: str, node: ast.ClassDef) -> Fields:
        """The fields of a class and of what it inherits from, with their types."""
        fields: Fields = {}
        for base in node.bases:
            found = self.find(module, ast.unparse(base))
            if found and isinstance(found[1], ast.ClassDef):
                fields |= self.members(found[0], found[1])
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                fields[line.target.id] = Typed(module, line.annotation)
        return fields


@dataclass(frozen=True)
class Typed:
    """A type as it stands in a module; None: not told, as of the names that a function puts into dicts."""

    module: str
    annotation: ast.expr | None = None
    names: frozenset[str] = frozenset()  # all that the function uses, for what is in dicts within dicts


Fields = dict[str, Typed]
SCALARS = {"str": "string", "bytes": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}
ARRAYS = {"list", "List", "set", "Set", "Sequence"}


def forms(package: Package, typed: Typed) -> Iterator[tuple[str, Any]]:
    """The forms that a type allows: scalars, literals with values, arrays of a type, objects with fields, or any."""
    module, node = typed.module, typed.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    match node:
        case None if typed.names:
            yield "any", dict.fromkeys(typed.names, typed)
        case ast.Constant(value=None):
            yield "null", None
        case ast.BinOp(left=left, right=right):
            for side in (left, right):
                yield from forms(package, Typed(module, side))
        case ast.Subscript(value=value, slice=inside):
            outer = ast.unparse(value).rpartition(".")[2]
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if outer in ("Union", "Optional", "Annotated"):
                for part in parts[:1] if outer == "Annotated" else parts:
                    yield from forms(package, Typed(module, part))
            elif outer == "Literal":
                yield "literal", [ast.literal_eval(part) for part in parts]
            elif outer in ARRAYS:
                yield "array", Typed(module, parts[0])
            else:
                yield "any", None
        case ast.Name(id=name) if name in SCALARS:
            yield SCALARS[name], None
        case ast.Name(id=name):
            found = package.find(module, name)
            if found and isinstance(found[1], ast.ClassDef):
                yield "object", package.members(found[0], found[1])
            elif found and isinstance(found[1], ast.Assign | ast.AnnAssign):
                yield from forms(package, Typed(found[0], found[1].value))
            else:
                yield "any", None
        case _:
            yield "any", None


@dataclass
class Tally:
    """What a comparison found."""

    wrong: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    sent: int = 0
    read: int = 0
    by_name: int = 0

    def add(self, other: Tally) -> None:
        self.wrong += other.wrong
        self.unchecked += other.unchecked
        self.sent += other.sent
        self.read += other.read
        self.by_name += other.by_name


class Comparison:
    """Our shapes, sent or read, with their types. There may be several sources of a type, and all must agree."""

    def __init__(self, package: Package, reads: bool) -> None:
        self.package, self.reads, self.tally = package, reads, Tally()

    def fields(self, where: str, ours: Shape, sources: list[Fields]) -> None:
        """Compares the fields of an object, which the first source must have."""
        for name, shape in ours.get("fields", {}).items():
            at = f"{where}.{name}"
            if shape.get("only"):
                self.tally.unchecked.append(f"{at}: of {shape['only']} only")
                continue
            self.tally.sent += not self.reads
            self.tally.read += self.reads
            if name not in sources[0]:
                self.tally.wrong.append(f"{at}: they have no such field")
                continue
            self.value(at, shape, [list(forms(self.package, s[name])) for s in sources if name in s])

    def value(self, where: str, ours: Shape, sources: list[list[tuple[str, Any]]]) -> None:
        kind = ours["kind"]
        if kind == "own":
            self.tally.unchecked.append(f"{where}: {ours['type']} decodes it by itself")
            return
        if kind == "object":
            inside = [merge(d for k, d in source if k in ("object", "any") and d) for source in sources]
            if any(inside):
                self.fields(where, ours, [i for i in inside if i])
                return
        told = [source for source in sources if not any(k == "any" for k, _ in source)]
        if kind == "array":
            named = [[f] for source in sources for f in source if f[0] == "any"]
            below = [[f for k, d in source if k == "array" for f in forms(self.package, d)] for source in told]
            if all(below):
                self.value(f"{where}[]", ours["of"], below + named)
                return
        self.tally.by_name += not told
        for source in told:
            if not any(self.fits(ours, k, d) for k, d in source):
                theirs = " or ".join(str(d) if k == "literal" else k for k, d in source if k != "null")
                self.tally.wrong.append(f"{where}: ours is {ours.get('value') or kind}, theirs {theirs}")

    def fits(self, ours: Shape, kind: str, detail: Any) -> bool:
        if kind == "literal":
            return ours["kind"] == "string" and (self.reads or ours["value"] in detail)
        narrow, wide = (kind, ours["kind"]) if self.reads else (ours["kind"], kind)
        return narrow == wide or (narrow, wide) == ("integer", "number")


def merge(sources: Iterable[Fields]) -> Fields:
    """All fields of several sources, of which the later ones count. Dicts within dicts may be of any source."""
    fields = {name: typed for source in sources for name, typed in source.items()}
    names = frozenset(name for typed in fields.values() for name in typed.names)
    return {name: replace(typed, names=names) if typed.names else typed for name, typed in fields.items()}


@dataclass
class Route:
    """A function that answers a path."""

    module: str
    function: Function


def routes(package: Package, wheel: Wheel) -> dict[tuple[str, str], list[Route]]:
    """The functions that the application has for a method and path, in modules that its own leads to."""
    found: dict[tuple[str, str], list[Route]] = {}
    top = wheel.app.partition("entrypoints")[0] + "entrypoints"
    included: set[tuple[str, str]] = set()
    declared: list[tuple[str, str, str, str, Function]] = []
    seen, ahead = {wheel.app}, [wheel.app]
    while ahead:
        module = ahead.pop()
        tree = package.module(module)
        if tree is None:
            continue
        for source, name in package.imports(module).values():
            for other in (source, f"{source}.{name}"):
                if other.startswith(top) and other not in seen:
                    seen.add(other)
                    ahead.append(other)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="FastAPI"))):
                    included.add((module, name))
                case ast.Call(func=ast.Attribute(attr="include_router"), args=[ast.Name(id=name), *_]):
                    included.add(package.imports(module).get(name, (module, name)))
        functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
        for function, decorator in [(f, d) for f in functions for d in f.decorator_list]:
            match decorator:
                case ast.Call(func=ast.Attribute(value=ast.Name(on), attr=verb), args=[ast.Constant(str(path)), *_]):
                    verbs = [k.value for k in decorator.keywords if k.arg == "methods"]
                    methods = ast.literal_eval(verbs[0]) if verbs else [verb.upper()]
                    declared += [(module, on, method, path, function) for method in methods]
    for module, on, method, path, function in declared:
        if (module, on) in included:
            found.setdefault((method, path), []).append(Route(module, function))
    return found


def keys(module: str, function: Function) -> Fields:
    """The names that a function puts into dicts or takes out of them."""
    names: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Dict(keys=found):
                names |= {str(k.value) for k in found if isinstance(k, ast.Constant)}
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                names.add(name)
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
                names.add(name)
    return dict.fromkeys(names, Typed(module, None, frozenset(names)))


def parameters(package: Package, route: Route) -> tuple[Fields, Fields]:
    """What a handler takes as the body, and in the query."""
    body: Fields = {}
    query: Fields = {}
    for argument in route.function.args.args:
        text = ast.unparse(argument.annotation) if argument.annotation else ""
        typed = Typed(route.module, argument.annotation)
        if text == "Request":
            body = dict.fromkeys(keys(route.module, route.function), Typed(route.module)) | body
        elif "Query(" in text:
            query[argument.arg] = typed
        elif "embed=True" in text:
            body[argument.arg] = typed
        else:
            body |= merge(d for k, d in forms(package, typed) if k == "object")
    return body, query


def answer(package: Package, route: Route) -> Fields:
    """What a handler answers: the dicts that it makes, and the classes whose instances it looks for."""
    found = [keys(route.module, route.function)]
    for node in ast.walk(route.function):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]) if "Error" not in ast.unparse(kind):
                found += [d for k, d in forms(package, Typed(route.module, kind)) if k == "object"]
    return merge(found)


def referred(package: Package, reference: str, takes: bool) -> Fields:
    """The fields of a class, the parameters of a function, or what it puts into dicts."""
    module, node = package.named(reference)
    if isinstance(node, ast.ClassDef):
        return package.members(module, node)
    assert isinstance(node, Function)
    if takes:
        return {a.arg: Typed(module, a.annotation) for a in [*node.args.args, *node.args.kwonlyargs]}
    return keys(module, node)


def compare(package: Package, wheel: Wheel, calls: list[Shape], served: dict[tuple[str, str], list[Route]]) -> Tally:
    """Compares every call with the handler of its path: where there are several, with that which it fits best."""
    total = Tally()
    for call in calls:
        name = f"{call['method']} {call['path']}"
        handlers = served.get((call["method"], call["path"]), [])
        tallies = [compare_call(package, wheel, call, route) for route in handlers]
        total.add(min(tallies, key=lambda t: len(t.wrong), default=Tally([f"{name}: the server has no such route"])))
    return total


def compare_call(package: Package, wheel: Wheel, call: Shape, route: Route) -> Tally:
    path, name = call["path"], f"{call['method']} {call['path']}"
    body, query = parameters(package, route)
    sends, reads = Comparison(package, reads=False), Comparison(package, reads=True)
    asked = {k: {"kind": "string", "value": v} for k, v in call["query"].items()}
    sends.fields(f"{name} query", {"fields": asked}, [query])
    if call["sends"]:
        further = [referred(package, r, takes=True) for r in wheel.takes.get(path, [])]
        sends.fields(f"{name} body", call["sends"], [body, *further])
        for inner, shape in call["sends"].get("fields", {}).items():
            owner = wheel.methods.get(f"{path}.{inner}")
            if owner and package.find(*f"{owner}.{shape['value']}".split(":")) is None:
                sends.tally.wrong.append(f"{name} body.{inner}: {owner} has no method {shape['value']}")
            for reference in wheel.takes.get(f"{path}.{inner}", []):
                sends.fields(f"{name} body.{inner}", shape, [referred(package, reference, takes=True)])
    if call["reads"]:
        made = [merge(referred(package, r, takes=False) for r in group) for group in wheel.answers.get(path, [])]
        ours = call["reads"]["of"] if call["reads"]["kind"] == "array" else call["reads"]
        reads.fields(f"{name} answer", ours, made or [answer(package, route)])
    sends.tally.add(reads.tally)
    return sends.tally


def misspelt(calls: list[Shape]) -> Iterator[tuple[str, list[Shape]]]:
    """The calls with one path or name misspelt, each in turn."""

    def within(shape: Shape | None) -> Iterator[tuple[Shape, str]]:
        while shape and shape["kind"] == "array":
            shape = shape["of"]
        for name, inner in list((shape or {}).get("fields", {}).items()):
            if not inner.get("only"):
                yield shape["fields"], name  # type: ignore[index]
                yield from within(inner)

    for i, original in enumerate(calls):
        call = copy.deepcopy(original)
        yield call["path"], [*calls[:i], call | {"path": call["path"] + "x"}, *calls[i + 1 :]]
        for part in (call["query"], call["sends"], call["reads"]):
            places = [(part, k) for k in part] if part is call["query"] else list(within(part))
            for holder, name in places:
                holder[name + "x"] = holder.pop(name)
                yield f"{call['path']} {name}", [*calls[:i], call, *calls[i + 1 :]]
                holder[name] = holder.pop(name + "x")


PINS = pathlib.Path(__file__).with_name("requirements-published.txt")

# The source is the same in the wheels of all machines.
TARGET = ["--no-deps", "--only-binary=:all:", "--python-version=3.11"]
TARGET += [f"--platform=manylinux_2_{glibc}_x86_64" for glibc in (28, 31, 34, 35)]


def open_wheel(requirement: str, folder: str) -> zipfile.ZipFile | None:
    """A wheel of the package index that pip uses, None if that has none of the package or cannot be reached."""
    name, _, version = requirement.partition("==")
    try:  # pip promises nothing of its modules
        part: Callable[[str], Any] = importlib.import_module
        command = part("pip._internal.commands").create_command("download")
        options, _ = command.parse_args([*TARGET, "--retries=1", "--quiet"])
        session = command._build_session(options, retries=1)
        target = part("pip._internal.cli.cmdoptions").make_target_python(options)
        finder = command._build_package_finder(options, session, target_python=target)
        found = finder.find_all_candidates(name)
        if not found:
            return None
        addresses = [c.link.url_without_fragment for c in found if str(c.version) == version]
        if not addresses:
            newest = max(c.version for c in found)
            raise SystemExit(f"{requirement}: no such wheel, the newest is {newest}: correct {PINS.name}")
        lazy = part("pip._internal.network.lazy_wheel").LazyZipOverHTTP
        return zipfile.ZipFile(lazy(addresses[0], session, 1 << 17))
    except Exception as e:
        print(f"{requirement}: pip cannot read parts of a wheel here: {e!r}: loading the whole", flush=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", folder, *TARGET, requirement], check=True)
    return zipfile.ZipFile(next(pathlib.Path(folder).glob(f"{name}-*.whl")))


def check(package: Package, wheel: Wheel, calls: list[Shape]) -> tuple[str, list[str], list[str]]:
    """Figures, what is wrong, and what is not checked."""
    served = routes(package, wheel)
    found = compare(package, wheel, calls, served)
    tried = missed = 0
    if not found.wrong:
        for name, others in misspelt(calls):
            tried += 1
            if not compare(package, wheel, others, served).wrong:
                missed += 1
                found.wrong.append(f"{name}: misspelt, it is not noticed: say in WHEELS where its type is")
    figures = f"{len(calls)} requests, {found.sent} fields sent, {found.read} read"
    figures += f", {found.by_name} of them by name only"
    if tried:
        figures += f"; {tried - missed} of {tried} noticed when misspelt"
    return figures, found.wrong, found.unchecked


def main() -> int:
    calls = json.load(sys.stdin)
    failed = 0
    pins = [line.strip() for line in PINS.read_text().splitlines()]
    for name, wheel in WHEELS.items():
        requirement = next(pin for pin in pins if pin.startswith(f"{name}=="))
        with tempfile.TemporaryDirectory() as folder:
            archive = open_wheel(requirement, folder)
            if archive is None:
                print(f"SKIPPED: {requirement}: the package index cannot be reached")
                continue
            package = Package(archive.namelist(), archive.read)
            figures, wrong, unchecked = check(package, wheel, calls[name])
            print(f"{requirement}: {figures}")
        for line in unchecked:
            print(f"  not checked  {line}")
        for line in wrong:
            print(f"  WRONG        {line}")
        failed += len(wrong)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
