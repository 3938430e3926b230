# The image: one static binary, nothing else. No shell, no root, read-only root file system.
#
#   docker build -t weir --build-arg WEIR_COMMIT="$(git rev-parse --short HEAD)" .     compiles in a container
#   make image      the same image without a container engine, from a binary built on this machine
#
#   docker run --read-only -p 514:5514/udp -v ./weir.toml:/etc/weir/weir.toml:ro weir

# What every variant of the image says about itself.
FROM scratch AS base
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A datagram tee that accounts for every datagram" \
      org.opencontainers.image.licenses="Apache-2.0"
# By number: there is no /etc/passwd to look a name up in.
USER 65532:65532
# Ports under 1024 are open to everybody in a container's network namespace (net.ipv4.ip_unprivileged_port_start is 0
# under the common engines); elsewhere listen on a high port and map it.
EXPOSE 514/udp 5514/udp 9464/tcp
STOPSIGNAL SIGTERM
# Unhealthy while nothing gets through: the data loops hang, every sink fails, or the ledger does not balance. Where an engine
# restarts what is unhealthy, give it `/weir health --alive` instead: a restart starts no store, and loses what waits for it.
# Kubernetes has its own probes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/weir", "health"]
ENTRYPOINT ["/weir"]
CMD ["run", "-c", "/etc/weir/weir.toml"]

# The image around a binary that lies in the build context as `weir` (scripts/build-image.sh).
FROM base AS prebuilt
COPY --chmod=0755 weir /weir

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
COPY . .
# Shown in weir_build_info; the build context has no .git to ask.
ARG WEIR_COMMIT=unknown
ENV WEIR_COMMIT=$WEIR_COMMIT
# The machine's own architecture, linked statically.
RUN target="$(uname -m)-unknown-linux-musl" && \
    rustup target add "$target" && \
    cargo build --locked --release --package weir --no-default-features --target "$target" && \
    install -D "target/$target/release/weir" /out/weir

FROM base AS compiled
COPY --from=build --chmod=0755 /out/weir /weir
