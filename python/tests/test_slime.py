"""reprise.slime behind slime's own rollout function at a pinned commit: only the engine's HTTP server is scripted."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Server

import reprise

for needed in ("torch", "httpx", "aiohttp", "tqdm", "pylatexenc", "PIL"):
    pytest.importorskip(needed)

COMMIT = "624b824a898ab0ec1fcb4d373004c7f3852bf515"  # slime 0.3.1 and later, August 2026
PROMPT = [11, 12, 13]


def sources() -> pathlib.Path:
    """Return a folder with slime's sources, which have no package, or skip the tests where GitHub is not reached."""
    cache = pathlib.Path(os.environ.get("REPRISE_SOURCES", pathlib.Path.home() / ".cache" / "reprise" / "sources"))
    folder = cache / f"THUDM-slime-{COMMIT}"
    if not (folder / ".git" / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        url = "https://github.com/THUDM/slime"
        for command in (["init", "-q"], ["fetch", "-q", "--depth", "1", url, COMMIT], ["checkout", "-qf", COMMIT]):
            try:
                ran = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=300,
                                     env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"{url} at {COMMIT}: {error}")
            if ran.returncode:
                pytest.skip(f"{url} at {COMMIT}: {ran.stderr.strip()}")
        (folder / ".git" / "done").touch()
    return folder


class Tokenizer:
    from_pretrained = classmethod(lambda cls, *arguments, **options: cls())
    encode = staticmethod(lambda text, **options: list(PROMPT))


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """reprise.slime, imported with slime's sources. Stubs of ray and transformers stand in where those are missing."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(sources()))
        stubs = {
            "ray": {"_private": types.SimpleNamespace(services=None)},
            "transformers": {"AutoTokenizer": Tokenizer, "AutoProcessor": Tokenizer,
                             "PreTrainedTokenizerBase": Tokenizer, "ProcessorMixin": type("ProcessorMixin", (), {})},
        }  # fmt: skip
        for name, names in stubs.items():
            if importlib.util.find_spec(name) is None:
                patch.setitem(sys.modules, name, types.ModuleType(name))
                for key, value in names.items():
                    setattr(sys.modules[name], key, value)
        import reprise.slime as module

        # With the real package too, no tokenizer of a model is at hand.
        patch.setattr("slime.rollout.sglang_rollout.load_tokenizer", Tokenizer.from_pretrained)
        patch.setattr("slime.rollout.sglang_rollout.load_processor", lambda *arguments, **options: None)
        yield module
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "slime" or name == "reprise.slime":
            del sys.modules[name]


async def reward(args: Any, sample: Any, **options: Any) -> float:
    return float(sample.tokens[-1] % 2)


@pytest.fixture
def arguments(
    adapter: Any, sglang: Any, server: Server, client: reprise.Client, request: pytest.FixtureRequest
) -> Iterator[Callable[..., argparse.Namespace]]:
    """slime's arguments that its rollout function reads, with its defaults."""
    from slime.utils import http_utils
    from slime.utils.misc import SingletonMeta

    SingletonMeta._instances.clear()
    table = request.node.name[:60]

    def make(**options: Any) -> argparse.Namespace:
        settings = {"address": server.address, "table": table, "capacity": 64, "seed": 1, **options.pop("reprise", {})}
        return argparse.Namespace(**{
            **dict.fromkeys(("ci_test", "partial_rollout", "group_rm", "use_rollout_routing_replay", "use_tis",
                             "use_distributed_post", "rollout_shuffle"), False),
            **dict.fromkeys(("prompt_data", "buffer_filter_path", "reward_key", "custom_generate_function_path",
                             "dynamic_sampling_filter_path", "rollout_sample_filter_path", "rollout_stop", "load",
                             "rollout_all_samples_process_path", "rollout_stop_token_ids", "sglang_dp_size"), None),
            "rollout_global_dataset": True, "n_samples_per_prompt": 2, "rollout_batch_size": 4, "rollout_top_k": -1,
            "over_sampling_batch_size": 4, "rollout_temperature": 1.0, "rollout_top_p": 1.0, "hf_checkpoint": "none",
            "rollout_max_response_len": 8, "rollout_skip_special_tokens": False, "sglang_server_concurrency": 8,
            "rollout_num_engines": 1, "sglang_router_ip": "127.0.0.1", "sglang_router_port": sglang.server_port,
            "custom_rm_path": f"{__name__}.reward", "use_rollout_logprobs": True, "data_source_path": "theirs",
            "reprise": settings, **options,
        })  # fmt: skip

    http_utils.init_http_client(make())
    yield make
    http_utils._http_client = None
    if table in [info.name for info in client.list()]:
        client.drop(table)


def same(one: Any, other: Any) -> bool:
    return {key: np.asarray(value, object).tolist() for key, value in vars(one).items()} == {
        key: np.asarray(value, object).tolist() for key, value in vars(other).items()
    }


def test_slime_generates_half_of_a_batch_and_replays_the_rest(adapter: Any, sglang: Any, arguments: Any) -> None:
    args = arguments()
    source = adapter.DataSource(args)
    first = adapter.generate_rollout(args, 0, source)
    assert sglang.generated == 8 and first.metrics["replay/replayed_rows"] == 0
    sglang.version = 2
    second = adapter.generate_rollout(args, 1, source)
    assert sglang.generated == 8 + 4 and second.metrics["replay/replayed_rows"] == 4
    assert second.metrics["replay/staleness/mean"] == 1
    assert [len(group) for group in second.samples] == [2, 2, 2, 2] and args.rollout_batch_size == 4
    generated = {sample.response: sample for group in first.samples for sample in group}
    for group in second.samples[2:]:
        assert len({sample.group_index for sample in group}) == 1
        for sample in group:
            assert same(sample, generated[sample.response])
    assert source.table.stats().inserted == 12


def test_slimes_nucleus_and_experts_come_back(adapter: Any, sglang: Any, arguments: Any) -> None:
    sglang.nucleus = True
    args = arguments(rollout_top_p=0.9, num_layers=2, moe_router_topk=2)
    source = adapter.DataSource(args)
    generated = {s.response: s for group in adapter.generate_rollout(args, 0, source).samples for s in group}
    for group in adapter.generate_rollout(args, 1, source).samples[2:]:
        for sample in group:
            origin = generated[sample.response]
            for name in ("rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_routed_experts"):
                assert getattr(sample, name).tolist() == getattr(origin, name).tolist()
                assert getattr(sample, name).dtype == getattr(origin, name).dtype
            sample._validate_response_metadata_lengths()


def test_a_resumed_slime_drops_what_newer_weights_generated(adapter: Any, sglang: Any, arguments: Any) -> None:
    args = arguments(reprise={"fresh": 1.0})
    source = adapter.DataSource(args)
    for rollout_id in range(3):
        sglang.version = rollout_id + 1
        adapter.generate_rollout(args, rollout_id, source)
    resumed = adapter.DataSource(args)
    resumed.load(0)  # the checkpoint of rollout 0: training goes on with rollout 1
    info = resumed.table.info()
    assert (info.version, info.present) == (1, 16)


def test_slimes_partial_rollouts_have_the_version_of_their_oldest_tokens(
    adapter: Any, sglang: Any, arguments: Any
) -> None:
    from slime.utils.types import Sample

    args = arguments()
    source = adapter.DataSource(args)
    source.table.advance(7)
    sample = Sample(tokens=[1, 2, 3], response_length=2, reward=1.0, rollout_log_probs=[-1.0, -0.5],
                    weight_versions=["6", "8"], status=Sample.Status.COMPLETED)  # fmt: skip
    recent = Sample.from_dict({**sample.to_dict(), "weight_versions": ["8"], "reward": 0.0})
    source.insert([[sample, recent]], 7)
    exported = source.table.export()
    assert exported["versions"].to_pylist() == [[-1, 5, 5], [-1, 7, 7]]


def test_slime_without_the_engines_log_probs_in_its_ratio_is_refused(
    adapter: Any, sglang: Any, arguments: Any
) -> None:
    args = arguments(use_rollout_logprobs=False)
    with pytest.raises(reprise.Invalid, match="--use-rollout-logprobs, --use-tis: neither is set"):
        adapter.generate_rollout(args, 0, adapter.DataSource(args))
    with pytest.raises(reprise.Invalid, match="--data-source-path: theirs: want reprise.slime.DataSource"):
        adapter.generate_rollout(arguments(), 0, object())
    with pytest.raises(reprise.Invalid, match="reprise.fresh: 0: want a share above 0"):
        adapter.DataSource(arguments(reprise={"fresh": 0}))


def test_slimes_own_contracts_hold(adapter: Any, sglang: Any, arguments: Any) -> None:
    """What slime's tests/plugin_contracts ask of these two options."""
    import inspect

    from slime.rollout.base_types import RolloutFnTrainOutput, call_rollout_fn
    from slime.rollout.data_source import DataSource
    from slime.rollout.sglang_rollout import generate_rollout
    from slime.utils.misc import load_function

    ours = load_function("reprise.slime.generate_rollout")
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(generate_rollout).parameters)
    source = load_function("reprise.slime.DataSource")(arguments())
    assert isinstance(source, DataSource) and [len(group) for group in source.get_samples(3)] == [2, 2, 2]
    output = call_rollout_fn(ours, arguments(), 0, source, evaluation=False)
    assert isinstance(output, RolloutFnTrainOutput)
