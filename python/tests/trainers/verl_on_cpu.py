"""verl's actor worker on a CPU, by the ways that verl has for other hardware.

`PlatformRegistry` gets a platform, `EngineRegistry` the FSDP engine for it. Nothing of verl is replaced. The worker has
three methods more: `init_model` begins the process group, since verl would ask PyTorch for `cpu:gloo,cpu:gloo`, which
it refuses; `reset` and `weights` are for tests.
"""

from __future__ import annotations

import contextlib
import resource
import types
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _used() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _free_and_total() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


device = types.ModuleType("host")
"""torch.cpu with what verl asks a device for: its name, and its memory."""
vars(device).update(
    vars(torch.cpu), get_device_name=lambda: "CPU", empty_cache=lambda: None, mem_get_info=_free_and_total,
    memory_allocated=_used, memory_reserved=_used, max_memory_allocated=_used, max_memory_reserved=_used,
)  # fmt: skip


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "host"
    device_module = device

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")  # tensors are moved to it: a number would be a GPU's

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


# These ask for the platform when they are imported.
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.utils.distributed import initialize_global_process_group_ray  # noqa: E402
from verl.workers.engine import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.engine_workers import ActorRolloutRefWorker  # noqa: E402

EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(FSDPEngineWithLMHead)


class Worker(ActorRolloutRefWorker):  # type: ignore[misc]
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        initialize_global_process_group_ray(backend="gloo")
        super().init_model()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def reset(self) -> None:
        """Begin again with the model of actor_rollout_ref.model.path."""
        self.actor.reset()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def weights(self) -> dict[str, torch.Tensor]:
        state = self.actor.engine.module.state_dict()
        return {name: getattr(value, "full_tensor", value.clone)() for name, value in state.items()}
