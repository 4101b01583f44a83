"""Serves a float32 gguf with llama.cpp in float32 throughout: a cache of float32 too, no fused attention.

Runs in the project's own environment. In: {"gguf": path}. Out: the address; it serves until stdin ends.
"""

from __future__ import annotations

import json
import os
import sys

import xllamacpp

said = json.loads(sys.stdin.buffer.readline())
params = xllamacpp.CommonParams()
params.model.path = said["gguf"]
params.model_alias = {"tiny"}
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 2
params.kv_unified = False
params.n_gpu_layers = 0
params.warmup = False
params.ui = False
params.endpoint_props = True
params.endpoint_slots = True
params.cache_ram_mib = 0
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print(json.dumps(server.listening_address), flush=True)
while sys.stdin.buffer.read(1):
    pass
os._exit(0)
