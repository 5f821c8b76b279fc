"""TensorBoard: event files, one more for each run of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syno.errors import SessionError
from syno.session.view import SessionView
from syno.tracking.tracker import Tracker


class EventFiles(Tracker):
    """See :func:`syno.tracking.tensorboard`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.plugins.text.summary_v2 import text_pb
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise SessionError(
                "event files need tensorboard",
                fix='pip install "syno[tensorboard]"',
                code="R013",
            ) from None
        self._kinds: tuple[Any, Any, Any] = (Event, Summary, text_pb)
        self._make = EventFileWriter
        self._folder = folder
        self._writer: Any = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError(
                f"{folder} cannot be made: {error.strerror}",
                fix="choose a folder you may write to",
                code="R002",
            ) from None

    def begin(self, view: SessionView) -> None:
        self._writer = self._make(str(self._folder))

    def values(self, step: int, values: dict[str, float]) -> None:
        import time

        event, summary, _ = self._kinds
        found = [summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(
            event(wall_time=time.time(), step=step, summary=summary(value=found))
        )

    def summary(self, values: dict[str, str | float]) -> None:
        import time

        event, _, text = self._kinds
        words = "\n\n".join(f"**{name}**: {value}" for name, value in values.items())
        self._writer.add_event(event(wall_time=time.time(), summary=text("verdict", words)))
        self._writer.close()
