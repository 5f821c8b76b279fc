"""Functions of shapes: views, joins, borders, elements by index, up-sampling; under the names that PyTorch gives them."""

from __future__ import annotations

from syno.graph.functions.indexing import embedding, gather, index, index_select, take
from syno.graph.functions.joining import cat, crop, pad, stack
from syno.graph.functions.upsampling import upsample
from syno.graph.functions.views import (
    expand,
    flatten,
    flip,
    movedim,
    permute,
    pixel_shuffle,
    pixel_unshuffle,
    rearrange,
    repeat,
    repeat_interleave,
    reshape,
    roll,
    select,
    slice,
    split,
    squeeze,
    transpose,
    tril,
    triu,
    unfold,
    unsqueeze,
)

__all__ = [
    "cat",
    "crop",
    "embedding",
    "expand",
    "flatten",
    "flip",
    "gather",
    "index",
    "index_select",
    "movedim",
    "pad",
    "permute",
    "pixel_shuffle",
    "pixel_unshuffle",
    "rearrange",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "select",
    "slice",
    "split",
    "squeeze",
    "stack",
    "take",
    "transpose",
    "tril",
    "triu",
    "unfold",
    "unsqueeze",
    "upsample",
]
