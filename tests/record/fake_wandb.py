"""A stand-in W&B server on 127.0.0.1: enough for the real client to start, log and resume runs.

It answers the GraphQL operations the client sends, takes the rows of its file stream and the files
it uploads, and keeps all of it for a test to look at.
"""

import gzip
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import quote, urlsplit

ENTITY = "lab"
FILE_STREAM = re.compile(r"/files/(?P<entity>[^/]+)/(?P<project>[^/]+)/(?P<run>[^/]+)/file_stream")


@dataclass
class StoredRun:
    """One run as the server knows it; ``files`` maps a streamed file to its lines."""

    project: str
    name: str
    display_name: str = ""
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows logged, in order, without the client's own fields."""
        lines = (json.loads(line) for line in self.files.get("wandb-history.jsonl", []) if line)
        return [{k: v for k, v in line.items() if not k.startswith("_")} for line in lines]

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration shown beside the run, without the client's own entry."""
        return {k: entry["value"] for k, entry in self.config.items() if k != "_wandb"}

    @property
    def axes(self) -> dict[str, str]:
        """Metric name -> name of its x axis, as defined by the client."""
        listed = self.config.get("_wandb", {}).get("value", {}).get("m", [])
        names = [entry.get("1", "") for entry in listed]
        return {
            entry["1"]: names[int(entry["5"]) - 1]
            for entry in listed
            if "5" in entry and "1" in entry
        }

    @property
    def patterns(self) -> list[str]:
        """Metrics defined by a pattern instead of a name."""
        listed = self.config.get("_wandb", {}).get("value", {}).get("m", [])
        return [entry["2"] for entry in listed if "2" in entry]


class FakeWandb(ThreadingHTTPServer):
    """The server; use it as a context manager. ``url`` is the base URL for the client."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[tuple[str, str], StoredRun] = {}
        self.uploads: dict[str, bytes] = {}
        self.bodies: list[bytes] = []
        self.unknown: list[str] = []
        self.status = 200
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the middle of an answer is no error of the test."""

    def only_run(self) -> StoredRun:
        """The one run that the server has seen."""
        (run,) = self.runs.values()
        return run

    def stream(self, project: str, name: str, body: dict[str, Any]) -> None:
        """Store lines of the file stream at the offsets that the client gives."""
        with self.lock:
            run = self.runs.setdefault((project, name), StoredRun(project, name))
            for file, chunk in (body.get("files") or {}).items():
                lines, start, new = (
                    run.files.setdefault(file, []),
                    chunk["offset"],
                    chunk["content"],
                )
                if file == "wandb-summary.json":
                    lines[:] = new
                    continue
                lines.extend([""] * (start + len(new) - len(lines)))
                lines[start : start + len(new)] = new
            if body.get("complete"):
                run.exit_code = body.get("exitcode")

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data of one GraphQL operation; unknown ones are noted and get nothing."""
        found = getattr(self, f"_{operation}", None)
        if found is None:
            self.unknown.append(operation)
            return {}
        with self.lock:
            answered: dict[str, Any] = found(variables)
            return answered

    def _Viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "u", "entity": ENTITY, "username": ENTITY, "flags": "{}", "admin": False}
        return {"viewer": {**viewer, "teams": {"edges": []}}}

    def _ServerFeaturesQuery(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def _ProjectInternalId(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"id": "p", "internalId": "cA=="}}

    def _RunResumeStatus(self, wanted: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get((wanted["project"], wanted["name"]))
        model: dict[str, Any] = {"id": "p", "name": wanted["project"], "bucket": None}
        model["entity"] = {"id": "e", "name": ENTITY}
        if run is not None:
            lines = {
                name: run.files.get(file, [])
                for name, file in (
                    ("log", "output.log"),
                    ("history", "wandb-history.jsonl"),
                    ("events", "wandb-events.jsonl"),
                )
            }
            model["bucket"] = {
                **self._bucket(run),
                "summaryMetrics": (run.files.get("wandb-summary.json") or ["{}"])[-1],
                **{f"{name}LineCount": len(found) for name, found in lines.items()},
                "historyTail": json.dumps(lines["history"][-1:]),
                "eventsTail": json.dumps(lines["events"][-1:]),
                "tags": run.tags,
                "notes": None,
                "wandbConfig": json.dumps({"t": 1}),
            }
        return {"model": model}

    def _UpsertBucket(self, wanted: dict[str, Any]) -> dict[str, Any]:
        project, name = wanted.get("project") or wanted.get("modelName") or "", wanted.get("name")
        if not name:
            # Later calls name the run by the id that the first one was answered.
            _, project, name = wanted["id"].split(":")
        inserted = (project, name) not in self.runs
        run = self.runs.setdefault((project, name), StoredRun(project, name))
        run.display_name = wanted.get("displayName") or run.display_name
        run.group = wanted.get("groupName") or run.group
        run.job_type = wanted.get("jobType") or run.job_type
        run.tags = wanted.get("tags") or run.tags
        run.config = json.loads(wanted["config"]) if wanted.get("config") else run.config
        place = {"id": "p", "name": project, "entity": {"id": "e", "name": ENTITY}}
        history = len(run.files.get("wandb-history.jsonl", []))
        bucket = {**self._bucket(run), "historyLineCount": history, "project": place}
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _CreateRunFiles(self, wanted: dict[str, Any]) -> dict[str, Any]:
        store = f"{self.url}/storage/{wanted['project']}/{wanted['run']}/"
        files = [{"name": file, "uploadUrl": store + quote(file)} for file in wanted["files"]]
        return {"createRunFiles": {"runID": wanted["run"], "uploadHeaders": [], "files": files}}

    @staticmethod
    def _ArtifactType(_: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    @staticmethod
    def _CreateArtifact(wanted: dict[str, Any]) -> dict[str, Any]:
        # as if its contents were stored before: the client sends none of them again
        name = f"artifact:{wanted['input']['digest']}"
        sequence = {"latestArtifact": {"id": name}}
        found = {"id": name, "state": "COMMITTED", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": found}}

    @staticmethod
    def _bucket(run: StoredRun) -> dict[str, Any]:
        return {
            "id": f"run:{run.project}:{run.name}",
            "name": run.name,
            "displayName": run.display_name,
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": None,
        }


class Handler(BaseHTTPRequestHandler):
    """One HTTP connection of the client."""

    protocol_version = "HTTP/1.1"
    server: FakeWandb

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        """Files that were uploaded before; anything else is empty."""
        self._reply(self.server.uploads.get(urlsplit(self.path).path, b"{}"))

    def do_PUT(self) -> None:
        """Take an uploaded file."""
        self.server.uploads[urlsplit(self.path).path] = self._body()
        self._reply(b"{}")

    def do_POST(self) -> None:
        """A part of the file stream, a GraphQL operation, or the client's own telemetry."""
        path, body = urlsplit(self.path).path, self._body()
        streamed = FILE_STREAM.fullmatch(path)
        if streamed:
            self.server.stream(streamed["project"], streamed["run"], json.loads(body))
            self._reply(json.dumps({"exitcode": None, "limits": {}}).encode())
        elif path == "/graphql":
            query = json.loads(body)
            named = re.search(r"(?:query|mutation)\s+(\w+)", query["query"])
            operation = query.get("operationName") or (named[1] if named else "")
            data = self.server.answer(operation, query.get("variables") or {})
            self._reply(json.dumps({"data": data}).encode())
        else:
            self._reply(b"{}")

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        plain = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        self.server.bodies.append(plain)
        return plain

    def _reply(self, body: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
