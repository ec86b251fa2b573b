# The worker's image: the extra `worker` from its hash-pinned lock, compiled kernels, and a user without privileges.
# docker build -t ldp-worker . && docker run --read-only -v "$PWD/worker.toml:/etc/ldp-worker/worker.toml:ro" ldp-worker
# To use another base image, from your registry or by digest: --build-arg PYTHON=python@sha256:...
ARG PYTHON=python:3.12.12-slim-bookworm

# Builds the project's wheel like `make venv`: the build backend also comes from a hash-pinned lock.
FROM ${PYTHON} AS wheel
WORKDIR /src
COPY requirements-dev.lock ./
RUN sed -nE '/^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/,/[^\\]$/p' requirements-dev.lock > build.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes -r build.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY ldp ldp
COPY worker worker
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/ldp-worker \
    && /opt/ldp-worker/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY --from=wheel /wheels /wheels
# Compiled kernels are valid for one CPU model and for the time stamps of their sources. Layers store whole seconds, so the
# sources get such a time stamp. On another CPU, the worker compiles at its start and writes to this cache.
ENV NUMBA_CACHE_DIR=/var/cache/ldp-worker
RUN /opt/ldp-worker/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
    && touch -d 2020-01-01T00:00:00Z /opt/ldp-worker/lib/python3.*/site-packages/ldp/kernels/*.py \
        /opt/ldp-worker/lib/python3.*/site-packages/worker/kafka/decoding/*.py \
        /opt/ldp-worker/lib/python3.*/site-packages/worker/counting/*.py \
    && /opt/ldp-worker/bin/python -c 'from ldp import kernels; from worker.counting import lateness; \
        from worker.kafka.decoding import records; kernels.warm(); lateness.warm(); lateness.warm_spread(); records.warm(); \
        records.warm_codecs()'
# Bill of materials of the Python packages, with licences. Debian's packages have their licences in /usr/share/doc.
COPY deploy/image deploy/image
RUN mkdir -p /opt/ldp-worker/share/doc \
    && /opt/ldp-worker/bin/python deploy/image/sbom.py requirements.lock > /opt/ldp-worker/share/doc/sbom.json

FROM ${PYTHON}
RUN groupadd --system --gid 10001 ldp \
    && useradd --system --uid 10001 --gid ldp --no-create-home --home-dir /nonexistent ldp
COPY --from=build /opt/ldp-worker /opt/ldp-worker
COPY --from=build --chown=10001:10001 /var/cache/ldp-worker /var/cache/ldp-worker
ENV PATH=/opt/ldp-worker/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/cache/ldp-worker \
    LDP_WORKER_CONFIG=/etc/ldp-worker/worker.toml \
    LDP_WORKER_HTTP__HOST=0.0.0.0
# The only writable folder. It starts with the image's kernels, and receives those that are compiled for another CPU.
VOLUME /var/cache/ldp-worker
USER 10001:10001
# Probes and Prometheus come from outside the container.
EXPOSE 9464
# A worker with a hung thread exits by itself; this check only shows the state. For another port, set LDP_WORKER_HTTP__PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(f'http://127.0.0.1:{os.environ.get(\"LDP_WORKER_HTTP__PORT\", \"9464\")}/healthz', timeout=4)"]
ENTRYPOINT ["ldp-worker"]
CMD ["run"]
