"""What each extra of the package is for, as programs that need nothing but it; and installing each alone to run them.

python tests/python/extra_commands.py dist/syno-….whl           every extra, each in an environment of its own
python tests/python/extra_commands.py dist/syno-….whl onnx tune these
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPERATOR = (
    "import syno\nop = syno.Operator.parse('y[i,j] = sum[k] a[i,k] * b[k,j]', i=4, j=5, k=6)\n"
)
MODEL = (
    "import torch, syno\ntorch.manual_seed(0)\n"
    "model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(128, 4)).eval()\n"
    "x = torch.randn(1, 8, 4, 4)\n"
)
REPORT = (
    "from pathlib import Path\nfrom syno.support.machine import describe_machine\nfrom syno.report import Entry, Report, write_report\n"
    "one = Entry(id='original', expr='the original layers', state='done', accuracy=0.9, latency_us=5.0)\n"
    "report = Report(title='t', task='t', metric='accuracy', higher_is_better=True, machine=describe_machine(), threads=1, batch=1,\n"
    "                seeds=[0], command='c', baseline=one, candidates=[], best=None, comparison=None, conclusion='c')\n"
)
SESSION = (
    "from syno.session import Component, InlineExecutor, Session\n"
    "parts = dict(proposer=Component(reference='session_fakes:Climber'), evaluator=Component(reference='session_fakes:Trainer'),\n"
    "             measurer=Component(reference='session_fakes:Clock'))\n"
    "session = Session.open('run', **parts)\nsession.run(budget=3, executor=InlineExecutor(), progress='off')\n"
)

#: Extra -> a program that does what it is named for. The empty one is the package alone.
PROGRAMS: dict[str, str] = {
    "": OPERATOR
    + "assert op.compile().verify().passed\n"
    + "assert syno.derive(op, seconds=0, states=20, measure=1)\n"
    + "print(syno.predict(op), op.latex())\n"
    + SESSION
    + REPORT
    + "write_report(report, Path('report.html'))\nassert 'syno[plot]' in Path('report.html').read_text()\n"
    "from syno import synthesis\nassert len(synthesis.enumerate_operators(synthesis.spec_named('test'), max_steps=3).operators)\n",
    "torch": MODEL
    + "fast = syno.compile(model, x)\nassert torch.allclose(fast(x), model(x), atol=1e-4)\n"
    "print(syno.sites(model, x))\nsyno.export(fast, 'net.syno', example=x)\nassert syno.load('net.syno').verify()\n",
    "plot": REPORT
    + "write_report(report, Path('report.png'))\nwrite_report(report, Path('report.svg'))\n",
    "table": SESSION + "assert len(session.to_dataframe()) == 4\n",
    "tune": OPERATOR + "from syno.tuning.cost_model import make_model\nimport numpy as np\n"
    "made = make_model('boosted')\nmade.fit(np.eye(12), np.arange(12.0))\n"
    "from syno.tuning.reuse.selection import clusters\nassert clusters([[1, 2], [1, 2], [9, 9]])\n"
    "from syno.tuning.reuse.steiner import _scipy\n_scipy()\n",
    "images": "from PIL import Image\nfrom pathlib import Path\n"
    "for name in ('a', 'b'):\n    Path('photos', name).mkdir(parents=True)\n"
    "    for i in range(12): Image.new('RGB', (20, 16), (i * 9, 3, 250)).save(f'photos/{name}/{i}.png')\n"
    "from syno.training.tasks import load_task\ntask = load_task('image-folder', {'path': 'photos', 'size': 16})\nprint(task.example(1).shape)\n",
    "openvino": MODEL + "from syno.searching.revisit import bench_original\n"
    "timed = bench_original(model, x, against=['openvino'])\nassert 'original, OpenVINO' in timed, timed\n",
    "onnx": MODEL + "import onnx\nfrom onnx import helper, TensorProto\n"
    "node = helper.make_node('Relu', ['x'], ['y'])\n"
    "value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])\n"
    "graph = helper.make_graph([node], 'g', [value('x')], [value('y')])\n"
    "onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9), 'm.onnx')\n"
    "net = syno.load_onnx('m.onnx').compile()\n"
    "op = syno.Operator.parse('y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]', n=1, o=4, c=8, h=6, w=6, r=3, s=3)\n"
    "syno.export(op, 'op_onnx', format='onnx')\n",
    "demo": "from syno.training.tasks import load_task\ntask = load_task('digits', {})\nprint(task.example(1).shape)\n"
    + REPORT
    + "write_report(report, Path('report.png'))\nimport syno.demo, syno.torch, syno.searching.pipeline\n",
    "notebook": "import jupytext, nbformat\nfrom nbclient import NotebookClient\n"
    "book = jupytext.reads('```python\\nimport syno\\nsyno.Operator.parse(\"y[i] = x[i]\", i=2)\\n```\\n', fmt='md')\n"
    "NotebookClient(book, kernel_name='python3', timeout=600).execute()\nassert book.cells[0].outputs\n",
    "ray": "import syno.executors\nimport ray, grpc\n" + MODEL + "print(syno.sites(model, x))\n",
    "slurm": "import syno.executors\nimport submitit\n" + MODEL + "print(syno.sites(model, x))\n",
    "tensorboard": SESSION.replace(
        "budget=3", "budget=3, callbacks=[syno.tracking.tensorboard('board')]"
    ).replace("from", "import syno\nfrom", 1)
    + "from pathlib import Path\nassert list(Path('board').iterdir())\n",
    "mlflow": "import os\nos.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'\nimport syno\nfrom pathlib import Path\n"
    + SESSION.replace(
        "budget=3",
        "budget=3, callbacks=[syno.tracking.mlflow(uri=Path('kept').absolute().as_uri())]",
    )
    + "assert list(Path('kept').rglob('search'))\n",
    "wandb": "import syno\nfrom pathlib import Path\n"
    + SESSION.replace("budget=3", "budget=3, callbacks=[syno.tracking.wandb(mode='offline')]")
    + "assert list(Path('run').rglob('*.wandb'))\n",
    "gpu": OPERATOR
    + "module = op.to_triton()\nassert 'tl.dot' in module.source and module.verify(), module.kernels\n",
    "docs": "import mkdocs, material, mkdocstrings\nimport mkdocstrings_handlers.python\nimport torch, syno\n",
}


def run(python: Path, extra: str, folder: Path) -> str | None:
    """Runs an extra's program; what went wrong, or None."""
    done = subprocess.run(
        [str(python), "-c", PROGRAMS[extra]],
        cwd=folder,
        env={
            "PATH": f"{python.parent}:/usr/bin:/bin",
            "PYTHONPATH": str(HERE),
            "HOME": str(folder),
            "SYNO_CACHE": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr[-2000:]


def same_torch() -> list[str]:
    """What asks pip for the build of torch that runs this, a line; none where there is none."""
    try:
        return [f"torch=={metadata.version('torch')}"]
    except metadata.PackageNotFoundError:
        return []


def install_and_run(wheel: Path, extra: str) -> str | None:
    """A new environment with the wheel and the one extra; what went wrong in it, or None."""
    with tempfile.TemporaryDirectory() as name:
        python = Path(name) / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        install = [str(python), "-m", "pip", "install", "-q"]
        # The build of torch that is here, where pip finds it: the one it takes by itself brings gigabytes for GPUs.
        kept = Path(name) / "constraints.txt"
        kept.write_text("".join(f"{line}\n" for line in same_torch()))
        if subprocess.run([*install, "-c", str(kept), wanted], check=False).returncode:
            subprocess.run([*install, wanted], check=True)
        return run(python, extra, Path(name))


def main(arguments: list[str]) -> int:
    wheel, asked = Path(arguments[0]).resolve(), arguments[1:] or list(PROGRAMS)
    wrong = 0
    for extra in asked:
        said = install_and_run(wheel, extra)
        print(f"{extra or 'the package alone'}: {'ok' if said is None else said}", flush=True)
        wrong += said is not None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
