# The page on a machine with an NVIDIA GPU:
#   docker build -t photofinish .
#   docker run --gpus all -p 7860:7860 -v photofinish:/data photofinish
# The host needs driver 580 or newer (docs/architecture.md). Never run on a GPU by its authors yet (docs/limits.md).
FROM python:3.11-slim-bookworm
# a compiler: for our CPU kernels, and for what Triton generates; Triton also needs Python's headers, which this image
# has (on other bases: python3-dev)
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /photofinish
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
# group 0: OpenShift runs it as a user whom it makes up
RUN useradd --create-home racer && install -d -o racer -g 0 -m 775 /data
USER racer
# models, kernels and what was probed outlive the container
ENV HF_HOME=/data/huggingface PHOTOFINISH_CACHE=/data/photofinish TRITON_CACHE_DIR=/data/triton PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 7860
# unhealthy: no race can start (docs/operate.md); the first start may download a model
HEALTHCHECK --interval=1m --timeout=10s --start-period=30m \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/healthz', timeout=8)"]
CMD ["python", "app.py", "--host", "0.0.0.0", "--port", "7860"]
