"""A copy of the rows on Weights & Biases, which can never stop, slow or falsify training.

All work is done by one background thread that owns the W&B client: training only puts rows in a
queue. What cannot be sent now stays in ``<run folder>/wandb`` and goes there later with
``python -m pipeline sync``. ``metrics.jsonl`` stays the truth; x axes are its own ``tokens`` and
``length``, never W&B's step, which drops points after a restart.
"""

import importlib
import netrc
import os
import queue
import re
import secrets
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.config.redact import public
from pipeline.config.schema import Config
from pipeline.errors import Preempted
from pipeline.record.wandb_points import flat_config, points
from pipeline.record.wandb_sent import AXIS, Sent, furthest, last_values, segments

SLACK = 5.0
# what is sent, in words, and how: by a call with the run and the metrics defined so far
_Item = tuple[str, Callable[[Any, set[str]], None]]


class WandbMirror:
    """Mirrors the rows of one run folder; made on every rank, ``enabled`` on one.

    ``mode: auto`` is online if there is a key and WANDB_MODE does not say otherwise, else offline.
    Never raises and never waits, except ``finish``, which waits at most for the two time-outs of
    ``config.wandb`` and a few seconds. Whatever fails is said once on stderr. The run id is minted
    once per run folder, so a run that is started again goes on as the same W&B run.
    """

    def __init__(self, config: Config, folder: Path, enabled: bool) -> None:
        self._config, self._folder = config, folder
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._warned = False
        self._sent = Sent()
        self._exit_code = 0
        self._sync = f"`python -m pipeline sync {shlex.quote(str(folder))}`"
        if not enabled or config.wandb.mode == "off":
            return
        # If the server hangs, the client's reports about itself hold up the end of the process.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        # Its log about itself is printed where it has no place, which is below the home folder.
        if not (os.environ.get("HOME") or os.environ.get("XDG_CACHE_HOME")):
            os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "wandb" / "cache"))
        try:
            # Imported here and not in the thread: a worker forked in mid-import would hang.
            self._wandb: Any = importlib.import_module("wandb")
        except Exception as error:
            self._warn("the package cannot be imported", error)
        else:
            self._thread = threading.Thread(target=self._work, name="wandb mirror", daemon=True)
            self._thread.start()

    @property
    def sends(self) -> bool:
        """Whether what is handed over goes anywhere."""
        return self._thread is not None

    def log(self, row: Mapping[str, Any]) -> None:
        """Queue one row of metrics or of an evaluation; the caller goes on at once.

        A row of training that W&B has from an earlier start is not sent again.
        """
        if self._thread is not None:
            self._queue.put(("a row", partial(self._log_points, dict(row))))

    def image(self, name: str, path: Path) -> None:
        """Queue a picture, a PNG file that stays where it is; the caller goes on at once."""
        if self._thread is not None:
            self._queue.put((path.name, partial(self._log_image, name, path)))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Queue a table, which replaces one of that name; the caller goes on at once."""
        if self._thread is not None:
            self._queue.put((name, partial(self._log_table, name, columns, rows)))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Queue figures of the whole run, shown beside it; the caller goes on at once."""
        if self._thread is not None:
            self._queue.put(("the figures", partial(_set_summary, dict(values))))

    def finish(self, exit_code: int = 0) -> None:
        """Send what is queued and close the run, or give up after the time-outs; once is enough.

        The exit code of `Preempted` marks the run as preempted, any other than 0 as failed.
        """
        if self._thread is None:
            return
        self._exit_code = exit_code
        self._queue.put(None)
        times = self._config.wandb
        self._started.wait(times.init_timeout + SLACK)
        self._thread.join(times.finish_timeout + SLACK)
        if self._thread.is_alive():
            self._warn("the client does not answer", None)
            # Takes the client's own waiting out of the end of the process, and may wait itself.
            leaving = threading.Thread(target=self._leave, daemon=True)
            leaving.start()
            leaving.join(1.0)
        self._thread = None

    def _work(self) -> None:
        earlier, defined = segments(self._folder), set[str]()
        run = self._start()
        if run is not None:
            self._try("what was sent before is not known", partial(self._look_back, run, earlier))
        self._started.set()
        while (item := self._queue.get()) is not None:
            what, send = item
            if run is not None:
                self._try(f"{what} was not taken", partial(send, run, defined))
        if run is not None and not run.offline and self._exit_code == Preempted.exit_code:
            self._try("the interruption was not taken", run.mark_preempting)
        if run is not None:
            self._try("not everything was sent in time", partial(run.finish, self._exit_code))
        self._leave()

    def _look_back(self, run: Any, earlier: Sequence[Path]) -> None:
        """Online the server says what it has; what was written offline is to be sent later."""
        if not run.offline:
            earlier = [path for path in earlier if path.parent.name.startswith("offline-")]
        self._sent = furthest(dict(run.summary), *map(last_values, earlier))

    def _log_points(self, row: Mapping[str, Any], run: Any, defined: set[str]) -> None:
        for axis, point in points(row):
            if axis == AXIS and self._sent.holds(point):
                continue
            # By exact name: overlapping patterns are resolved in random order by the client.
            for name in (axis, *point):
                if name not in defined:
                    run.define_metric(name, step_metric=None if name == axis else axis)
                    defined.add(name)
            run.log(point)

    def _log_image(self, name: str, path: Path, run: Any, defined: set[str]) -> None:
        run.log({name: self._wandb.Image(str(path))})

    def _log_table(
        self,
        name: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        run: Any,
        defined: set[str],
    ) -> None:
        run.log({name: self._wandb.Table(columns=list(columns), data=[list(row) for row in rows])})

    def _leave(self) -> None:
        self._try("the client did not end well", self._wandb.teardown)

    def _try(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self._warn(what, error)

    def _start(self) -> Any:
        """A W&B run: online if wanted and possible, else offline; None if neither is."""
        online = self._config.wandb.mode == "online" or (
            self._config.wandb.mode == "auto" and os.environ.get("WANDB_MODE", "online") == "online"
        )
        try:
            if online and not has_key(self._wandb):
                online = False
                _say(f"W&B: no key, so offline; {self._sync} sends the run later")
            # Without this the client reports its own start, and each of its troubles, on its own.
            self._wandb.setup(settings=self._wandb.Settings(silent=True))
            if online:
                try:
                    run = self._init("online")
                    _say(f"W&B: {run.url}")
                    return run
                except Exception as error:
                    self._warn("the server was not reached", error)
                    # Its service still holds the run id of the failed start.
                    self._leave()
            return self._init("offline")
        except Exception as error:
            self._warn("no run could be started", error)
            return None

    def _init(self, mode: str) -> Any:
        config, times = self._config, self._config.wandb
        name = config.position["name"]
        settings = self._wandb.Settings(
            init_timeout=times.init_timeout,
            finish_timeout=times.finish_timeout,
            finish_timeout_raises=True,
            x_service_wait=times.init_timeout,
            # Rows of a killed run are lost up to this many seconds back; the default is 15.
            x_transaction_log_flush_interval=1.0,
            silent=True,
            reinit="create_new",
            # Command lines, git remotes, package lists and consoles can all hold secrets.
            console="off",
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        return self._wandb.init(
            mode=mode,
            project=times.project,
            entity=times.entity,
            id=_run_id(self._folder),
            resume="allow",
            dir=str(self._folder),
            group=config.experiment,
            job_type="pretrain",
            name=self._folder.name,
            tags=[name, f"L{config.train_length}"],
            config=flat_config(public(config)),
            settings=settings,
        )

    def _warn(self, what: str, error: Exception | None) -> None:
        if not self._warned:
            self._warned = True
            reason = f" ({type(error).__name__}: {_first_line(error)})" if error else ""
            _say(
                f"W&B: {what}{reason}. Training is not affected and metrics.jsonl is complete; "
                f"the next start, or {self._sync}, sends what is missing there"
            )


def _set_summary(values: Mapping[str, Any], run: Any, defined: set[str]) -> None:
    run.summary.update(values)


def _run_id(folder: Path) -> str:
    path = folder / "wandb_id"
    minted = path.read_text(errors="replace").strip() if path.exists() else ""
    # Cut short where a job was killed while it wrote; the client makes paths of it.
    if not re.fullmatch("[0-9a-f]{8}", minted):
        minted = secrets.token_hex(4)
        path.write_text(minted + "\n")
    return minted


def server_address(wandb: Any) -> str:
    """Where the client sends runs to."""
    return str(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url)


def has_key(wandb: Any) -> bool:
    """Whether a key lies where the client looks for it; asking the client could open a prompt."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(server_address(wandb)).netloc
    places = (os.environ.get("NETRC"), "~/.netrc", "~/_netrc")
    for path in (Path(place).expanduser() for place in places if place):
        try:
            known = netrc.netrc(path).hosts
        except (OSError, netrc.NetrcParseError):
            continue
        if host in known or ("forge.coreweave.com" in host and "api.wandb.ai" in known):
            return True
    return False


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [""])[0][:200]
    return re.sub(r"://[^/\s@]*@", "://", line)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
