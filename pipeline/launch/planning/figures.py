"""All figures of one run's plan, as plain numbers: bytes, FLOPs, tokens, hours."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.launch.checks import check_model
from pipeline.launch.planning.asked import GIB, Asked
from pipeline.launch.planning.memory import SIZES, Ranks, longest, rank_memory
from pipeline.launch.planning.products import added_flops, at_most
from pipeline.launch.planning.rate import benched_rate, hours, run_flops
from pipeline.launch.planning.trace import Place, trace
from pipeline.launch.planning.zero import Zero
from pipeline.model.accounting import cache_bytes, parameters_by_part
from pipeline.model.decoder import Decoder
from pipeline.model.flops import attention_flops, step_flops


class Planned:
    """One run: its decoder without memory, and the figures that the table of a sweep has too."""

    def __init__(self, config: Config, asked: Asked) -> None:
        check_model(config)
        self.config, self.asked = config, asked
        self.ranks = Ranks(config.trainer.world, asked.device(config))
        with torch.device("meta"):
            self.decoder = Decoder(config)
            extend_decoder(self.decoder, config)
        self.parts = parameters_by_part(self.decoder)
        self.parameters = sum(self.parts.values())

    def zero(self, stage: int) -> Zero:
        """What a ZeRO stage keeps."""
        return self.ranks.zero(self.config, self.parameters, stage)

    def place(self, parts: int, ring: int, sequences: int) -> Place:
        """A rank of a group of `parts`, at the train length."""
        return Place(self.config.train_length, sequences, parts, ring, device=self.ranks.device)

    @property
    def own_place(self) -> Place:
        """As configured."""
        trainer = self.config.trainer
        sequences = self.ranks.sequences(self.config, trainer.sequence_parallel)
        assert sequences is not None
        return self.place(trainer.sequence_parallel, trainer.ring, sequences)

    def summary(self) -> dict[str, Any]:
        """What runs of a sweep are compared by."""
        config, length = self.config, self.config.train_length
        per_step = step_flops(config.model, config.data.vocab, length)
        path = tested_path(config, self.ranks.device, length)
        added = added_flops(config, self.ranks.device)
        whole = run_flops(config) + self._added(added)
        return {
            "position": config.position["name"],
            "parameters": self.parts | {"all": self.parameters},
            "attention_path": path,
            "flops_per_token": per_step / length,
            "attention_flops_per_token": config.model.layers
            * attention_flops(config.model, length)
            / length,
            "encoding_flops_per_token": added / length,
            "encoding_flops_at_most": at_most(self.decoder.position, config, path),
            "run_flops": whole,
            "hours": self.hours(whole),
            "rank": rank_memory(config, self.zero(config.trainer.zero_stage), self.own_place),
            "cache": self.cache(),
        }

    def _added(self, each: int) -> int:
        """FLOPs of the run beyond the model, `each` of a sequence while there is the encoding."""
        trainer, after = self.config.trainer, self.config.model.drop_position_after
        encoded = trainer.max_steps if after is None else min(after, trainer.max_steps)
        found = encoded * each
        if bare := trainer.max_steps - encoded:
            found += bare * added_flops(self.config, self.ranks.device, dropped=True)
        return trainer.batch_sequences * found

    def hours(self, flops: int) -> float | None:
        """Hours of training, if a rate was named: of `flops` in all by --flops.

        A bench measured the encoding too, in model FLOPs per second, and on a CPU a whole machine.
        """
        asked, workers = self.asked, self.ranks.world
        if asked.flops is not None:
            return hours(flops, asked.flops, workers)
        if asked.bench is None:
            return None
        rate, gpu = benched_rate(asked.bench, self.config)
        if not gpu and asked.gpus is not None:
            raise ConfigError(
                f"--bench={asked.bench} was measured on a CPU, and --gpus={asked.gpus} plans for "
                "GPUs, whose rate it does not know. Name a bench.json of a GPU, or --flops, or "
                "leave out --gpus"
            )
        return hours(run_flops(self.config), rate, workers if gpu else self.config.trainer.nodes)

    def cache(self) -> list[dict[str, int]]:
        """Keys and values of one sequence at each length tested, in either precision."""
        rows = []
        for length in self.config.eval_lengths:
            row = {"length": length}
            for name, size in SIZES.items():
                row[name], row[f"{name}_added"] = cache_bytes(
                    self.decoder, self.config, length, size
                )
            rows.append(row)
        return rows

    def details(self) -> dict[str, Any]:
        """The rest: memory by switches, by ZeRO stage and by sequence group; bytes exchanged."""
        return {
            "ranks": self.ranks.world,
            "device": self.ranks.device,
            "sequences": self.own_place.sequences,
            "switches": list(self._switches()),
            "stages": [self._stage(stage) for stage in (1, 2, 3)],
            "sharings": [self._sharing(*one) for one in self._sharings()],
            "gpu_memory": self.asked.gpu_memory,
        }

    def _switches(self) -> Sequence[dict[str, Any]]:
        found = []
        for checkpoints in (False, True):
            for tiled in (False, True):
                model = replace(
                    self.config.model, activation_checkpointing=checkpoints, tiled_mlp=tiled
                )
                traced = trace(replace(self.config, model=model), self.own_place)
                found.append(
                    {
                        "activation_checkpointing": checkpoints,
                        "tiled_mlp": tiled,
                        "peak": traced.peak,
                        "activations": traced.activations,
                    }
                )
        return found

    def _stage(self, stage: int) -> dict[str, Any]:
        zero = self.zero(stage)
        memory = rank_memory(self.config, zero, self.own_place)
        return {"stage": stage, **zero.kept, "sent": zero.exchanged, "peak": memory["peak"]}

    def _sharings(self) -> list[tuple[int, int]]:
        return self.ranks.sharings(self.config, self.decoder.position.facts)

    def _sharing(self, parts: int, ring: int) -> dict[str, Any]:
        zero = self.zero(self.config.trainer.zero_stage)
        sequences = self.ranks.sequences(self.config, parts)
        row: dict[str, Any] = {"sequence_parallel": parts, "ring": ring, "sequences": sequences}
        if sequences is not None:
            memory = rank_memory(self.config, zero, self.place(parts, ring, sequences))
            times = self.config.trainer.accumulate
            row["peak"] = memory["peak"]
            row["sent"] = {kind: times * sent for kind, sent in memory["sent"].items()}
        if self.asked.gpu_memory is not None:
            limit, most = int(self.asked.gpu_memory * GIB), self._most()
            row["longest"] = longest(self.config, zero, self.place(parts, ring, 1), limit, most)
        return row

    def _most(self) -> int | None:
        """The longest sequence that encoding and ids are defined for."""
        ends = (self.decoder.position.max_length, self.decoder.position_ids.max_length)
        return min((end for end in ends if end is not None), default=None)
