"""published.py on a small server of each kind of source: what is wrong is named, and nothing else."""

from __future__ import annotations

import copy
import io
import json
import pathlib
import sys
import textwrap
import zipfile
from collections.abc import Callable
from typing import Any

import published
import pytest

SOURCE = {
    "served/entrypoints/app.py": """
        from fastapi import FastAPI
        from served.entrypoints.routers import attach

        app = FastAPI()
        attach(app)
    """,
    "served/entrypoints/routers.py": """
        def attach(app):
            from .complete import router as complete_router
            from .forgotten import router

            app.include_router(complete_router)
    """,
    "served/entrypoints/complete.py": """
        from typing import Annotated, Any, Literal
        from fastapi import APIRouter, Body, Query, Request
        from served.types import Asked, Answered

        router = APIRouter()
        Mode = Literal["keep", "abort"]

        @router.post("/complete")
        async def complete(request: Asked, raw: Request):
            found = await run(request)
            if isinstance(found, Answered):
                return found
            elif isinstance(found, ErrorResponse):
                return found

        @router.post("/pause")
        async def pause(raw: Request, mode: Annotated[Mode, Query()] = "abort"):
            return {"status": "paused"}

        @router.api_route("/version", methods=["POST", "PUT"])
        async def version(new: Annotated[str, Body(embed=True)]):
            return {"success": True}

        @router.post("/rpc")
        async def rpc(request: Request):
            body = await request.json()
            call(body.get("method"))
    """,
    "served/entrypoints/forgotten.py": """
        from fastapi import APIRouter

        router = APIRouter()

        @router.get("/forgotten")
        async def forgotten():
            return {}
    """,
    "served/types.py": """
        from typing import List, Optional, Union

        class Base(Model):
            n: int = 1

        class Params(Struct):
            top_p: float

        Ids = List[int]

        class Asked(Base):
            prompt: Union[str, Ids]
            params: "Optional[Params]" = None

        @dataclass
        class Span:
            start: int

        class Answered(Base):
            spans: list[Span] | None
            text: str

        class Worker:
            def reload(self, path: str): ...
    """,
}
WHEEL = published.Wheel(app="served.entrypoints.app", methods={"/rpc.method": "served.types:Worker"})


def source(old: str = "", new: str = "") -> published.Package:
    """The package, with one text replaced by another."""
    files = {name: textwrap.dedent(text).replace(old, new).encode() for name, text in SOURCE.items()}
    return published.Package(files, files.__getitem__)


def an_object(**fields: Any) -> published.Shape:
    return {"kind": "object", "fields": fields}


def array(of: published.Shape) -> published.Shape:
    return {"kind": "array", "of": of}


INTEGER, NUMBER, STRING = {"kind": "integer"}, {"kind": "number"}, {"kind": "string", "value": "x"}


def calls() -> dict[str, published.Shape]:
    def post(path: str, sends: Any = None, reads: Any = None, **query: str) -> published.Shape:
        return {"method": "POST", "path": path, "query": query, "sends": sends, "reads": reads}

    asked = an_object(n=INTEGER, prompt=array(INTEGER), params=an_object(top_p=NUMBER))
    return {
        "complete": post("/complete", asked, an_object(spans=array(an_object(start=INTEGER)), text=STRING)),
        "pause": post("/pause", mode="keep"),
        "version": post("/version", an_object(new=STRING), an_object(success={"kind": "boolean"})),
        "rpc": post("/rpc", an_object(method={"kind": "string", "value": "reload"})),
    }


def test_what_fits_is_right_and_every_name_counts() -> None:
    figures, wrong, unchecked = published.check(source(), WHEEL, list(calls().values()))
    assert (wrong, unchecked) == ([], [])
    assert figures == "4 requests, 7 fields sent, 4 read, 2 of them by name only; 15 of 15 noticed when misspelt"


def sent(name: str, *path: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def of(c: dict[str, Any]) -> dict[str, Any]:
        at: dict[str, Any] = c[name]["sends"]["fields"]
        for step in path:
            at = at[step]["fields"]
        return at

    return of


def read(c: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = c["complete"]["reads"]["fields"]
    return fields


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: sent("complete")(c).update(nn=INTEGER), "/complete body.nn: they have no such field"),
        (lambda c: sent("complete")(c).update(n=NUMBER), "/complete body.n: ours is number, theirs integer"),
        (lambda c: sent("complete")(c).update(prompt=array(STRING)), "body.prompt[]: ours is x, theirs integer"),
        (lambda c: sent("complete", "params")(c).update(top=NUMBER), "body.params.top: they have no such field"),
        (lambda c: read(c).update(text=INTEGER), "answer.text: ours is integer, theirs string"),
        (lambda c: read(c).update(spans=INTEGER), "answer.spans: ours is integer, theirs array"),
        (lambda c: c["pause"]["query"].update(mode="freeze"), "query.mode: ours is freeze, theirs ['keep', 'abort']"),
        (lambda c: c["version"].update(method="GET"), "GET /version: the server has no such route"),
        (lambda c: c["pause"].update(method="GET", path="/forgotten"), "/forgotten: the server has no such route"),
        (lambda c: sent("rpc")(c)["method"].update(value="relaod"), "served.types:Worker has no method relaod"),
    ],
)
def test_what_does_not_fit_is_named(change: Callable[[dict[str, Any]], None], said: str) -> None:
    changed = copy.deepcopy(calls())
    change(changed)
    _, wrong, _ = published.check(source(), WHEEL, list(changed.values()))
    assert len(wrong) == 1 and wrong[0].endswith(said), wrong


def test_a_misspelling_that_cannot_be_noticed_is_wrong() -> None:
    _, wrong, _ = published.check(source("Optional[Params]", "dict"), WHEEL, list(calls().values()))
    assert wrong == ["/complete top_p: misspelt, it is not noticed: say in WHEELS where its type is"]


@pytest.fixture
def index(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder that pip takes for the package index, which has no ranges."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"served": list(calls().values())})))
    monkeypatch.setattr(published, "WHEELS", {"served": WHEEL})
    monkeypatch.setattr(published, "PINS", tmp_path / "pins.txt")
    published.PINS.write_text("# as published\nserved==1.2\n")
    return tmp_path


def publish(index: pathlib.Path, version: str) -> None:
    with zipfile.ZipFile(index / f"served-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in SOURCE.items():
            wheel.writestr(name, textwrap.dedent(text))
        about = f"served-{version}.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: served\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_a_wheel_without_ranges_is_loaded_whole(index: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(index, "1.2")
    publish(index, "1.3")
    assert published.main() == 0
    said = capsys.readouterr().out
    assert "HTTPRangeRequestUnsupported" in said and "15 of 15 noticed" in said


def test_a_pinned_version_that_is_not_there_fails(index: pathlib.Path) -> None:
    publish(index, "1.3")
    with pytest.raises(SystemExit, match="served==1.2: no such wheel, the newest is 1.3: correct pins.txt"):
        published.main()


def test_an_index_that_cannot_be_reached_is_skipped(index: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert published.main() == 0
    assert capsys.readouterr().out.startswith("SKIPPED: served==1.2")
