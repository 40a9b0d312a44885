# An image that syncs and serves. The model, the jars and Java are in it: it fetches nothing at run time.
#   docker build --tag lakewake .
# For an image that only searches: docker build --build-arg EXTRAS=serve --build-arg SETUP= --tag lakewake-search .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=java,lake,qdrant,serve,spark
ARG SETUP=--s3
# A mirror of the model and the jars, if the build reaches no other.
ARG LAKEWAKE_MIRROR=
ENV LAKEWAKE_HOME=/opt/lakewake PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/venv
RUN /opt/venv/bin/pip install --quiet --constraint constraints.txt ".[${EXTRAS}]"
RUN /opt/venv/bin/lakewake setup ${SETUP}

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --create-home --home-dir /var/lib/lakewake lakewake
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/lakewake /opt/lakewake
ENV PATH=/opt/venv/bin:$PATH LAKEWAKE_HOME=/opt/lakewake
# The folder with lakewake.toml, and with indexes on disk.
WORKDIR /var/lib/lakewake
USER 10001
EXPOSE 8377
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8377/health', timeout=4)"]
ENTRYPOINT ["lakewake"]
CMD ["serve", "--host", "0.0.0.0", "--keys", "/run/secrets/lakewake-keys"]
