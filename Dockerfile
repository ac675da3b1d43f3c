# One image for one GPU machine or a cluster's container runtime.
#
#   docker build -t farsight .
#   docker run --gpus all --ipc=host -v "$PWD/runs:/farsight/runs" farsight configs/demo.yaml
#
# --ipc=host: the ranks exchange through shared memory, of which a container has 64 MB by default.
# The folder mounted on runs must be writable for user 10001. Keys are handed over at run time
# (-e WANDB_API_KEY), never built in. For Apptainer and Enroot see slurm/README.md.
#
# torch brings the libraries of CUDA 13. The base has none; it has a driver that is too old for them
# refused when the container starts.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04

# gcc and the headers of Python: what is compiled for the GPU at run time (flex attention) needs them.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv python3-dev gcc \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home farsight \
    && install --directory --owner=farsight /farsight /venv

USER farsight
WORKDIR /farsight
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1

# The libraries alone first: this layer is made anew only when a pin changes.
COPY --chown=farsight pyproject.toml ./
RUN python3 -m venv /venv \
    && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > /tmp/pins.txt \
    && pip install --no-cache-dir --requirement /tmp/pins.txt

COPY --chown=farsight . .
RUN pip install --no-cache-dir --no-deps --editable . \
    && mkdir -p runs data/prepared

ENTRYPOINT ["python", "train.py"]
CMD ["configs/demo.yaml"]
