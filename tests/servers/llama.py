"""Runs llama.cpp's server until it is ended: `python -m tests.servers.llama PORT MODEL.gguf [MMPROJ.gguf]`."""

import sys
import threading

import xllamacpp


def main(port: int, model: str, mmproj: str = "") -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    if mmproj:
        params.mmproj.path = mmproj
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 8192
    params.n_parallel = 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
