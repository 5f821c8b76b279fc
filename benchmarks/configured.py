"""Models of the `transformers` package, made from their configurations with random weights, through
`torch.compile(model, backend="syno")`: whether they agree with eager, what PyTorch computes in them, and how long it
takes.

    python benchmarks/configured.py --json
    python benchmarks/configured.py --models bert,swin --small

Nothing is downloaded. `--small` takes a few narrow layers of each in place of the published widths and depths.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from syno.errors import SynoError, unknown_name
from syno.graph.backend import graphs_compiled
from syno.support.files import write_whole
from syno.timing.bench import measure

Inputs = dict[str, Tensor]


def _words(length: int, known: int = 1000) -> Inputs:
    return {"input_ids": torch.randint(0, known, (1, length))}


def _image(size: int) -> Inputs:
    return {"pixel_values": torch.randn(1, 3, size, size)}


def _speech(mel_bins: int) -> Inputs:
    return {"input_features": torch.randn(1, mel_bins, 3000)}


@dataclass(frozen=True)
class Configured:
    """A model of the package by the names of its classes."""

    model: str
    config: str
    inputs: Callable[[bool], Inputs]
    small: dict[str, Any]
    """Of the configuration, for a small one."""
    module: str = "transformers"

    def make(self, small: bool) -> tuple[nn.Module, Inputs]:
        """The model, in evaluation, and inputs; of random values."""
        import importlib

        import transformers

        config = getattr(transformers, self.config)(**(self.small if small else {}))
        if hasattr(config, "use_cache"):
            config.use_cache = False
        model = getattr(importlib.import_module(self.module), self.model)(config)
        return model.eval(), self.inputs(small)


_TEXT = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}
_STAGES = {"embedding_size": 16, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 1, 1]}

MODELS = {
    "bert": Configured(
        "BertModel", "BertConfig", lambda small: _words(32 if small else 128), _TEXT | {"vocab_size": 1000}
    ),
    "gpt2": Configured(
        "GPT2LMHeadModel", "GPT2Config", lambda small: _words(32 if small else 128),
        {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "vit": Configured(
        "ViTModel", "ViTConfig", lambda small: _image(64 if small else 224), _TEXT | {"image_size": 64}
    ),
    "convnext": Configured(
        "ConvNextModel", "ConvNextConfig", lambda small: _image(64 if small else 224),
        {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 2, 1]},
    ),
    "resnet": Configured("ResNetModel", "ResNetConfig", lambda small: _image(64 if small else 224), _STAGES),
    "mobilenet_v2": Configured(
        "MobileNetV2Model", "MobileNetV2Config", lambda small: _image(64 if small else 224), {"depth_multiplier": 0.35}
    ),
    "swin": Configured(
        "SwinModel", "SwinConfig", lambda small: _image(64 if small else 224),
        {"image_size": 64, "embed_dim": 32, "depths": [1, 1, 2], "num_heads": [2, 4, 8], "window_size": 4},
    ),
    "segformer": Configured(
        "SegformerForSemanticSegmentation", "SegformerConfig", lambda small: _image(64 if small else 512),
        {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1], "decoder_hidden_size": 64, "num_labels": 10},
    ),
    "whisper": Configured(
        "WhisperEncoder", "WhisperConfig", lambda small: _speech(80),
        {"d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 128},
        module="transformers.models.whisper.modeling_whisper",
    ),
    "distilbert": Configured(
        "DistilBertModel", "DistilBertConfig", lambda small: _words(32 if small else 128),
        {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256, "vocab_size": 1000},
    ),
    "t5_encoder": Configured(
        "T5EncoderModel", "T5Config", lambda small: _words(32 if small else 128),
        {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 256, "d_kv": 32, "vocab_size": 1000},
    ),
    "llama": Configured(
        "LlamaModel", "LlamaConfig", lambda small: _words(32),
        _TEXT | {"num_key_value_heads": 2, "vocab_size": 1000},
    ),
    "regnet": Configured(
        "RegNetModel", "RegNetConfig", lambda small: _image(64 if small else 224), _STAGES | {"groups_width": 16}
    ),
}  # fmt: skip
#: Of seven billion weights where it is not small.
LARGE = ("llama",)


def tensors_of(outputs: Any) -> list[Tensor]:
    """All tensors of a model's outputs, in order."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if hasattr(outputs, "to_tuple"):
        outputs = outputs.to_tuple()
    values = outputs.values() if isinstance(outputs, dict) else outputs
    parts = (Tensor, tuple, list, dict)
    return [each for value in values if isinstance(value, parts) for each in tensors_of(value)]


def difference(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest difference of an element over the largest element of its tensor. ValueError: other shapes."""
    if [t.shape for t in got] != [t.shape for t in wanted]:
        raise ValueError(f"{[tuple(t.shape) for t in got]}, not {[tuple(t.shape) for t in wanted]}")
    return max(
        float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30))
        for a, b in zip(got, wanted, strict=True)
    )


def row_of(name: str, small: bool, turns: int) -> dict[str, Any]:
    """What is reported of a model."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = MODELS[name].make(small)
    with torch.no_grad():
        wanted = tensors_of(model(**inputs))
        begin = time.perf_counter()
        fast = torch.compile(model, backend="syno")
        with graphs_compiled() as graphs:
            got = tensors_of(fast(**inputs))
        ready_s = time.perf_counter() - begin
        timings = measure(
            {"syno": lambda: fast(**inputs), "eager": lambda: model(**inputs)},
            turns=turns,
            threads=torch.get_num_threads(),
        )
    networks = [made for made in graphs if not isinstance(made, str)]
    return {
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "graphs": len(graphs),
        "in_pytorch": [made for made in graphs if isinstance(made, str)],
        "fallbacks": {k: v for network in networks for k, v in network.fallbacks.items()},
        "kernels": sum(stage.kind == "kernel" for network in networks for stage in network.stages),
        "max_rel_err": difference(got, wanted),
        "ready_s": ready_s,
        "us": timings[0].median_us,
        "spread": timings[0].iqr_us,
        "eager_us": timings[1].median_us,
        "eager_spread": timings[1].iqr_us,
        # Speed-ups refer to ours, turn by turn.
        "ratio_to_eager": 1 / timings[1].speed_up,
    }


def main() -> int:
    """Prints a table, or one JSON document with `--json`; 0 if every model was compiled and agrees."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="", help=f"some of {','.join(MODELS)}; default all")
    parser.add_argument("--small", action="store_true", help="a few narrow layers of each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9, help="samples of each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the JSON document, too")
    options = parser.parse_args()
    names = [n for n in options.models.split(",") if n] or [
        n for n in MODELS if options.small or n not in LARGE
    ]
    try:
        for name in names:
            if name not in MODELS:
                raise unknown_name("model", name, MODELS)
    except SynoError as error:
        print(f"configured: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(options.threads)
    rows, bad = [], 0
    for name in names:
        row = row_of(name, options.small, options.turns)
        rows.append(row)
        bad += bool(row["in_pytorch"]) or row["max_rel_err"] > 1e-3
        out = sys.stderr if options.json else sys.stdout
        print(
            f"{name:13} {row['us'] / 1e3:9.2f} ms ±{row['spread'] / 1e3:.2f}  {row['ratio_to_eager']:5.2f}x eager "
            f"({row['eager_us'] / 1e3:.2f})  error {row['max_rel_err']:.1e}  ready in {row['ready_s']:.1f} s  "
            f"{row['graphs']} graphs, {row['kernels']} kernels, {len(row['fallbacks'])} by PyTorch",
            file=out, flush=True,
        )  # fmt: skip
    packages = ("syno", "torch", "transformers")
    document = {
        "command": " ".join(sys.argv), "threads": options.threads, "small": options.small,
        "versions": {name: version(name) for name in packages}, "models": rows,
    }  # fmt: skip
    if options.json:
        print(json.dumps(document, indent=1))
    if options.output is not None:
        write_whole(options.output, json.dumps(document, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
