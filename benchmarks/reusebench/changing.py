"""Networks whose sizes change from call to call: what getting ready for all sizes takes, and what calls take then.

Every contestant makes the same network ready in a process of its own, with empty caches: whatever has to be traced,
exported, constructed, compiled and checked counts. Then each size is called once, in an order drawn by a seed, and then
all of them in turns.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import syno
from syno.errors import SynoError
from syno.models import make
from syno.timing.runtimes import onnxruntime_session, openvino_request

Call = Callable[[Tensor], Any]

#: Largest difference from PyTorch's outputs, over the largest output.
TOLERANCE = 1e-3


class Words(nn.Module):
    """BERT-small: four layers of 512, eight heads, 2048 inside; the transformers package's, random weights."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
        )
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: Tensor) -> Tensor:
        states: Tensor = self.bert(input_ids=ids).last_hidden_state
        return states


@dataclass(frozen=True)
class Case:
    """A network, what it is called with at a size, and the sizes."""

    title: str
    network: Callable[[], nn.Module]
    given: Callable[[int], Tensor]
    dims: tuple[int, ...]
    """Dimensions of the input that have the size."""
    sizes: tuple[int, ...]


CASES = {
    "bert-small": Case(
        "BERT-small, by length",
        Words,
        lambda size: torch.randint(0, 30000, (1, size)),
        (1,),
        tuple(range(24, 513, 24)),
    ),
    "resnet18": Case(
        "ResNet-18, by side of the image",
        lambda: make("resnet18"),
        lambda size: torch.randn(1, 3, size, size),
        (2, 3),
        tuple(range(96, 289, 16)),
    ),
    "mobilenet_v2": Case(
        "MobileNetV2, by side of the image",
        lambda: make("mobilenet_v2"),
        lambda size: torch.randn(1, 3, size, size),
        (2, 3),
        tuple(range(96, 225, 16)),
    ),
}


def _eager(model: nn.Module, case: Case, threads: int) -> Call:
    return model


def _compile(model: nn.Module, case: Case, threads: int) -> Call:
    made: Call = torch.compile(model, dynamic=True)
    return made


def _exported(model: nn.Module, case: Case) -> bytes:
    name = "n"
    size = torch.export.Dim(name, min=min(case.sizes), max=max(case.sizes))
    example = case.given(sorted(case.sizes)[len(case.sizes) // 2])
    program = torch.onnx.export(
        model,
        (example,),
        dynamo=True,
        verbose=False,
        external_data=False,
        dynamic_shapes=(dict.fromkeys(case.dims, size),),
    )
    assert program is not None
    return bytes(program.model_proto.SerializeToString())


def _onnxruntime(model: nn.Module, case: Case, threads: int) -> Call:
    session = onnxruntime_session(_exported(model, case), threads)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x.numpy()})[0]


def _openvino(model: nn.Module, case: Case, threads: int) -> Call:
    import openvino

    request = openvino_request(_exported(model, case), threads)

    def call(x: Tensor) -> Any:
        request.infer([openvino.Tensor(x.numpy(), shared_memory=True)])
        return request.get_output_tensor(0).data

    return call


def _ours(background: bool) -> Callable[[nn.Module, Case, int], Call]:
    def ready(model: nn.Module, case: Case, threads: int) -> Call:
        size = ("n", min(case.sizes), max(case.sizes))
        made: Call = syno.compile(
            model,
            case.given(max(case.sizes)),
            dynamic={0: dict.fromkeys(case.dims, size)},
            threads=threads,
            background=background,
        )
        return made

    return ready


def _each_size(model: nn.Module, case: Case, threads: int) -> Call:
    """A network for each size, compiled when it is called first."""
    made: dict[tuple[int, ...], Call] = {}

    def call(x: Tensor) -> Any:
        shape = tuple(x.shape)
        if shape not in made:
            made[shape] = syno.compile(model, x, threads=threads)
        return made[shape](x)

    return call


CONTESTANTS: dict[str, Callable[[nn.Module, Case, int], Call]] = {
    "eager": _eager,
    "torch.compile": _compile,
    "ONNX Runtime": _onnxruntime,
    "OpenVINO": _openvino,
    "syno": _ours(False),
    "syno, background": _ours(True),
    "syno, each size alone": _each_size,
}


def changing(
    names: list[str], *, threads: int, turns: int, show: bool, few: int | None = None,
    contestants: list[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Rows by network and contestant.

    Args:
        few: sizes of each network, from the least on; default all.
    """
    document: dict[str, Any] = {"changing": {}}
    for name in names:
        case = CASES[name]
        sizes = list(case.sizes[:few])
        rows: dict[str, Any] = {}
        for contestant in contestants or CONTESTANTS:
            request = {
                "case": name, "contestant": contestant, "threads": threads, "turns": turns, "sizes": sizes,
            }  # fmt: skip
            rows[contestant] = _in_process(request)
            if show:
                print(f"{name}: {contestant}: {_said(rows[contestant])}", flush=True)
        document["changing"][name] = {"title": case.title, "sizes": sizes, "rows": rows}
        document["changing"][name]["summary"] = _summary(rows)
    return document


def _said(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    ms = list(row["ms"].values())
    return (
        f"all sizes once in {row['ready_s']:.1f} s, first calls {1e3 * statistics.median(row['first_s'].values()):.1f} ms "
        f"(median; the last {1e3 * row['last_first_s']:.1f}), then {statistics.geometric_mean(ms):.2f} ms a call (geomean)"
    )


def _summary(rows: dict[str, Any]) -> dict[str, float]:
    """Ours beside the others: time to get ready against theirs, their time a call over ours (geomean over sizes)."""
    ours = rows.get("syno", {"error": ""})
    found: dict[str, float] = {}
    if "error" in ours:
        return found
    for name, row in rows.items():
        if name.startswith("syno") or "error" in row:
            continue
        found[f"{name}: ready"] = ours["ready_s"] / row["ready_s"]
        found[f"{name}: speed"] = statistics.geometric_mean(
            row["ms"][size] / ms for size, ms in ours["ms"].items()
        )
    alone = rows.get("syno, each size alone", {"error": ""})
    if "error" not in alone:
        ratios = [alone["ms"][size] / ms for size, ms in ours["ms"].items()]
        found["of networks for one size: speed"] = statistics.geometric_mean(ratios)
        found["of networks for one size: least speed"] = min(ratios)
    peers = [
        row["ms"]
        for name, row in rows.items()
        if not name.startswith("syno") and "error" not in row
    ]
    if peers:
        found["best peer of each size: speed"] = statistics.geometric_mean(
            min(peer[size] for peer in peers) / ms for size, ms in ours["ms"].items()
        )
    return found


def _in_process(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
        environment = os.environ | {
            "PYTHONPATH": path,
            "SYNO_CACHE": str(Path(directory) / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(directory) / "inductor"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "reusebench.changing"],
            input=json.dumps(request | {"answer": str(answer)}),
            env=environment,
            text=True,
            stdout=sys.stderr,
            check=False,
        )
        if not answer.exists():
            return {"error": f"its process ended with {done.returncode}"}
        return dict(json.loads(answer.read_text()))


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """One contestant at one network, in this process."""
    case, sizes = CASES[request["case"]], list(request["sizes"])
    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    model = case.network().eval()
    given = {size: case.given(size) for size in sizes}
    case = Case(case.title, case.network, case.given, case.dims, tuple(sizes))
    order = list(sizes)
    random.Random(0).shuffle(order)
    first: dict[int, float] = {}
    outputs: dict[int, Any] = {}
    with torch.inference_mode(False), torch.no_grad():
        begin = time.perf_counter()
        call = CONTESTANTS[request["contestant"]](model, case, request["threads"])
        made = time.perf_counter()
        for size in order:
            before = time.perf_counter()
            got = call(given[size])
            first[size] = time.perf_counter() - before
            outputs[size] = _copied(got)
        ready = time.perf_counter() - begin
        worst = max(_difference(outputs[size], model(given[size])) for size in sizes)
        if not worst <= TOLERANCE:
            return {"error": f"its outputs differ from PyTorch's by {worst:.1e}"}
        wait = getattr(call, "wait", None)
        if wait is not None:
            wait()
        times: dict[int, list[float]] = {size: [] for size in sizes}
        gc.collect()
        for turn in range(request["turns"] + 1):
            for size in order:
                before = time.perf_counter()
                call(given[size])
                if turn > 0:
                    times[size].append(time.perf_counter() - before)
    return {
        "make_s": made - begin,
        "ready_s": ready,
        "first_s": first,
        "last_first_s": first[order[-1]],
        "ms": {size: 1e3 * statistics.median(found) for size, found in times.items()},
        "max_rel_err": worst,
        "buckets": [list(each) for each in getattr(call, "buckets", ())],
        "note": str(getattr(call, "by_size", "")),
    }


def _copied(got: Any) -> Any:
    """What a call gave: the next one may write to the same memory."""
    return got.detach().clone() if isinstance(got, Tensor) else np.array(got)


def _difference(got: Any, wanted: Tensor) -> float:
    ours = got.detach().numpy() if isinstance(got, Tensor) else np.asarray(got)
    theirs = wanted.detach().numpy()
    if ours.shape != theirs.shape:
        return float("inf")
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def main() -> None:
    """In a contestant's process: reads a request, writes the answer to the file it names."""
    request = json.loads(sys.stdin.read())
    warnings.simplefilter("ignore")
    try:
        answer = measured(request)
    except (SynoError, ImportError) as error:
        answer = {"error": str(error)}
    except Exception as error:  # whatever a peer throws is the reason
        answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"}
    Path(request["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
