"""What a number was measured on: machine, versions and load, as every report states them."""

from __future__ import annotations

import datetime
import functools
import os
import platform
from importlib import metadata
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and software behind a measurement. Times are UTC, ISO 8601. 0 cores and empty texts: not known."""

    cpu: str
    cores: int
    system: str
    python: str
    versions: dict[str, str]
    load1: float
    measured_at: str

    def __str__(self) -> str:
        cores = f"{self.cores} cores" if self.cores else ""
        python = f"Python {self.python}" if self.python else ""
        versions = [f"{name} {version}" for name, version in self.versions.items()]
        return ", ".join(filter(None, [self.cpu, cores, self.system, python, *versions]))


@functools.cache
def cpu_model() -> str:
    """The CPU's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> Machine:
    """The machine as it is now."""
    versions = {}
    for package in ("syno", "torch", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions=versions,
        load1=os.getloadavg()[0],
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
