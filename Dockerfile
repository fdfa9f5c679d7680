# The environment of the lock on a CPU, and the workflow.
#
#   docker build -t cdpr .
#   docker run --rm -v "$PWD/results:/cdpr/results" -v "$PWD/state:/cdpr/state" cdpr
#   docker run --rm -v "$PWD/results:/cdpr/results" cdpr --configfile config/ci.yaml
#
# What follows the image's name are arguments of `snakemake`. Run keys come from content, so results of the image and of
# the same version elsewhere go together. For GPUs see docs/how-to/train-at-scale.md.
FROM python:3.11-slim

# pip's own indices are used. An index of torch's builds without CUDA makes the image a tenth of the size:
# docker build --build-arg TORCH_INDEX=https://... (PyTorch's installation page names it).
ARG TORCH_INDEX
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /cdpr

# The environment first: this layer stays when only the code changes.
COPY requirements.lock ./
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' requirements.lock)" \
 && pip install --no-deps -r requirements.lock

COPY . .
RUN pip install --no-deps --editable . \
 && useradd --create-home cdpr && mkdir -p results state .snakemake && chown -R cdpr results state .snakemake /cdpr
USER cdpr
ENV HOME=/home/cdpr
ENTRYPOINT ["snakemake", "--cores", "all"]
CMD ["reproduce_paper"]
