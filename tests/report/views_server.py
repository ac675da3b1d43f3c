"""The stand-in W&B server with what saved views need: projects, workspaces and reports."""

import json
from typing import Any

from tests.record.fake_wandb import ENTITY, FakeWandb


class ViewsServer(FakeWandb):
    """``views`` holds what was saved, by id: the variables of the last mutation, spec parsed."""

    def __init__(self) -> None:
        super().__init__()
        self.views: dict[str, dict[str, Any]] = {}

    def kind(self, kind: str) -> list[dict[str, Any]]:
        """The views of a kind: `project-view` is a workspace, `runs` a report."""
        return [view for view in self.views.values() if view["type"] == kind]

    def _GetDefaultEntity(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": {"id": "u", "entity": ENTITY}}

    def _GetProjects(self, _: dict[str, Any]) -> dict[str, Any]:
        project = {
            "id": "p", "name": "farsight", "entityName": ENTITY, "isBenchmark": False,
            "createdAt": "2026-01-01T00:00:00", "user": None,
        }  # fmt: skip
        page = {"endCursor": None, "hasNextPage": False}
        return {"models": {"edges": [{"cursor": "c", "node": project}], "pageInfo": page}}

    def _UpsertView2(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return self._saved(wanted)

    def _upsertView(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return self._saved(wanted)

    def _saved(self, wanted: dict[str, Any]) -> dict[str, Any]:
        name = wanted.get("id") or f"view{len(self.views)}"
        self.views[name] = {**wanted, "spec": json.loads(wanted["spec"])}
        place = {"id": "p", "name": wanted["projectName"], "entityName": wanted["entityName"]}
        view = {
            "id": name, "name": wanted["name"], "type": wanted["type"], "project": place,
            "displayName": wanted["displayName"], "description": wanted["description"],
            "spec": wanted["spec"], "updatedAt": "2026-01-01T00:00:00",
        }  # fmt: skip
        return {"upsertView": {"view": view, "inserted": wanted.get("id") is None}}
