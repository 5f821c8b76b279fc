"""Operators whose sizes come with a call: of one size from 1 to 512, and of one or two of a layer's."""

from __future__ import annotations

#: An operator, its sizes, and the least and greatest value of those that calls bring along.
Case = tuple[str, dict[str, int], dict[str, tuple[int, int]]]

ONE: dict[str, Case] = {
    "product, columns": (
        "y[m,n] = sum[k] a[m,k] * b[k,n]",
        {"m": 256, "n": 512, "k": 256},
        {"n": (1, 512)},
    ),
    "product, rows": (
        "y[m,n] = sum[k] a[m,k] * b[k,n]",
        {"m": 512, "n": 256, "k": 256},
        {"m": (1, 512)},
    ),
    "product, sum": (
        "y[m,n] = sum[k] a[m,k] * b[k,n]",
        {"m": 256, "n": 256, "k": 512},
        {"k": (1, 512)},
    ),
    "linear, rows": (
        "y[m,n] = sum[k] a[m,k] * b[n,k]",
        {"m": 512, "n": 256, "k": 256},
        {"m": (1, 512)},
    ),
    "scores": (
        "y[b,i,j] = sum[k] q[b,i,k] * p[b,j,k]",
        {"b": 8, "i": 128, "j": 512, "k": 64},
        {"j": (1, 512)},
    ),
    "softmax": (
        "t[i] = max[j] x[i,j]; e[i,j] = exp(x[i,j] - t[i]); s[i] = sum[j] e[i,j]; y[i,j] = e[i,j] / s[i]",
        {"i": 512, "j": 512},
        {"j": (1, 512)},
    ),
    "mean": ("y[i] = mean[j] x[i,j]", {"i": 512, "j": 512}, {"j": (1, 512)}),
    "convolution": (
        "y[o,w] = sum[c,r] x[c,w+r-1] * k[o,c,r]",
        {"o": 64, "c": 64, "w": 512, "r": 3},
        {"w": (1, 512)},
    ),
}

LAYERS: dict[str, Case] = {
    "convolution, width": (
        "y[o,w] = sum[c,r] x[c,w+r-1] * k[o,c,r]",
        {"o": 64, "c": 64, "w": 512, "r": 3},
        {"w": (16, 512)},
    ),
    "3x3, height and width": (
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"o": 64, "c": 64, "h": 56, "w": 56, "r": 3, "s": 3},
        {"h": (7, 56), "w": (7, 56)},
    ),
    "3x3, height": (
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"o": 32, "c": 32, "h": 64, "w": 48, "r": 3, "s": 3},
        {"h": (8, 64)},
    ),
    "1x1, height and width": (
        "y[o,h,w] = sum[c] x[c,h,w] * k[o,c]",
        {"o": 128, "c": 64, "h": 28, "w": 28},
        {"h": (7, 28), "w": (7, 28)},
    ),
    "1x1, places": (
        "y[o,p] = sum[c] x[c,p] * k[o,c]",
        {"o": 128, "c": 64, "p": 784},
        {"p": (49, 784)},
    ),
    "depthwise, height and width": (
        "y[c,h,w] = sum[r,s] x[c,h+r-1,w+s-1] * k[c,r,s]",
        {"c": 64, "h": 56, "w": 56, "r": 3, "s": 3},
        {"h": (8, 56), "w": (8, 56)},
    ),
    "depthwise, images": (
        "y[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]",
        {"n": 8, "c": 32, "h": 28, "w": 28, "r": 3, "s": 3},
        {"n": (1, 8)},
    ),
    "3x3, channels of both sides": (
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"o": 64, "c": 64, "h": 28, "w": 28, "r": 3, "s": 3},
        {"o": (16, 64), "c": (16, 64)},
    ),
    "3x3 stride 2, height and width": (
        "y[o,h,w] = sum[c,r,s] x[c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
        {"o": 64, "c": 32, "h": 28, "w": 28, "r": 3, "s": 3},
        {"h": (7, 28), "w": (7, 28)},
    ),
    "maximum of 2x2, height and width": (
        "y[c,h,w] = max[r,s] x[c,2*h+r,2*w+s]",
        {"c": 64, "h": 28, "w": 28, "r": 2, "s": 2},
        {"h": (7, 28), "w": (7, 28)},
    ),
    "mean of an image, height and width": (
        "y[c] = mean[h,w] x[c,h,w]",
        {"c": 256, "h": 14, "w": 14},
        {"h": (4, 14), "w": (4, 14)},
    ),
    "batched product, batch": (
        "y[b,i,j] = sum[k] a[b,i,k] * c[b,k,j]",
        {"b": 16, "i": 64, "j": 64, "k": 64},
        {"b": (1, 16)},
    ),
    "batched product, rows and columns": (
        "y[b,i,j] = sum[k] a[b,i,k] * c[b,j,k]",
        {"b": 8, "i": 256, "j": 256, "k": 64},
        {"i": (16, 256), "j": (16, 256)},
    ),
    "product, rows and sum": (
        "y[m,n] = sum[k] a[m,k] * b[k,n]",
        {"m": 256, "n": 256, "k": 512},
        {"m": (1, 256), "k": (32, 512)},
    ),
    "matrix by vector, sum": (
        "y[n] = sum[k] a[n,k] * b[k]",
        {"n": 512, "k": 1024},
        {"k": (32, 1024)},
    ),
    "matrix by vector, rows": (
        "y[n] = sum[k] a[n,k] * b[k]",
        {"n": 1024, "k": 512},
        {"n": (16, 1024)},
    ),
    "softmax, rows": (
        "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])",
        {"i": 256, "j": 128, "k": 128},
        {"i": (1, 256)},
    ),
    "softmax of three indices, columns": (
        "y[h,i,j] = exp(x[h,i,j]) / sum[k] exp(x[h,i,k])",
        {"h": 8, "i": 64, "j": 256, "k": 256},
        {"j": (16, 256), "k": (16, 256)},
    ),
    "mean of rows, both": (
        "y[i] = mean[j] x[i,j]",
        {"i": 256, "j": 512},
        {"i": (4, 256), "j": (16, 512)},
    ),
    "mean of columns, rows": ("y[j] = mean[i] x[i,j]", {"i": 256, "j": 512}, {"i": (4, 256)}),
    "centred and scaled, rows": (
        "m[i] = mean[j] x[i,j]; y[i,j] = (x[i,j] - m[i]) * g[j]",
        {"i": 256, "j": 384},
        {"i": (4, 256)},
    ),
    "transpose, rows": ("y[j,i] = x[i,j]", {"i": 256, "j": 384}, {"i": (8, 256)}),
    "transpose of a batch, rows": (
        "y[b,j,i] = x[b,i,j]",
        {"b": 8, "i": 128, "j": 64},
        {"i": (8, 128)},
    ),
    "channels last, height and width": (
        "y[h,w,c] = x[c,h,w]",
        {"c": 64, "h": 28, "w": 28},
        {"h": (7, 28), "w": (7, 28)},
    ),
    "bias and ReLU, height and width": (
        "y[c,h,w] = relu(x[c,h,w] + b[c])",
        {"c": 64, "h": 56, "w": 56},
        {"h": (7, 56), "w": (7, 56)},
    ),
    "bias and ReLU, width": (
        "y[n,c,w] = relu(x[n,c,w] + b[c])",
        {"n": 4, "c": 64, "w": 512},
        {"w": (16, 512)},
    ),
    "GELU, two outer": (
        "y[n,i,j] = gelu(x[n,i,j])",
        {"n": 8, "i": 64, "j": 512},
        {"n": (1, 8), "i": (4, 64)},
    ),
    "scores, both lengths": (
        "y[h,i,j] = sum[d] q[h,i,d] * k[h,j,d]",
        {"h": 8, "i": 128, "j": 128, "d": 64},
        {"i": (8, 128), "j": (8, 128)},
    ),
    "values by weights, both lengths": (
        "y[h,i,d] = sum[j] p[h,i,j] * v[h,j,d]",
        {"h": 8, "i": 128, "j": 128, "d": 64},
        {"i": (8, 128), "j": (8, 128)},
    ),
    "grouped 3x3, height and width": (
        "y[g,o,h,w] = sum[c,r,s] x[g,c,h+r-1,w+s-1] * k[g,o,c,r,s]",
        {"g": 4, "o": 16, "c": 16, "h": 28, "w": 28, "r": 3, "s": 3},
        {"h": (7, 28), "w": (7, 28)},
    ),
    "3x3x3, depth": (
        "y[o,d,h,w] = sum[c,t,r,s] x[c,d+t-1,h+r-1,w+s-1] * k[o,c,t,r,s]",
        {"o": 16, "c": 16, "d": 16, "h": 14, "w": 14, "t": 3, "r": 3, "s": 3},
        {"d": (2, 16)},
    ),
}

__all__ = ["LAYERS", "ONE", "Case"]
