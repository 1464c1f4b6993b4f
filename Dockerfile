# The command alone, with SQL and kernels for GPUs: docker build -t rockmill . && docker run --rm -v "$PWD/db:/db" rockmill doctor /db
# For a GPU, run it with --gpus all.
FROM rust:1.95.0-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ libclang-dev make python3-venv binutils
COPY . /rockmill
WORKDIR /rockmill
# rockmill-cli/distributed: SQL over several machines.
ARG FEATURES=
RUN make release FOLDER=/out FEATURES="$FEATURES"

FROM debian:bookworm-slim
COPY --from=build /out/*.deb /tmp/
RUN dpkg -i /tmp/rockmill_*.deb && rm /tmp/rockmill_*.deb
ENTRYPOINT ["rockmill"]
