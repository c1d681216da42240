# engram with the CPU build of torch: docker build -t engram . && docker run --rm -v "$PWD/runs:/work/runs" engram demo
FROM python:3.11-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.txt ./
COPY engram ./engram
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu --require-hashes -r requirements.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --create-home engram && mkdir /work && chown engram /work
USER engram
WORKDIR /work
ENTRYPOINT ["engram"]
CMD ["--help"]
