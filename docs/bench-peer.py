"""The same measurements as `cluster bench`, made with llama.cpp (PyPI package xllamacpp), for a comparison on one machine.

Usage: bench-peer.py MODEL.gguf [THREADS]
Prints prompt tokens per second at 512 and 2048, and decoded tokens per second with 1, 8 and 32 sequences together
(prompts of 128 tokens, answers of 64), each the best of three.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

MODEL = sys.argv[1]
THREADS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
VOCABULARY = 49152


def server(sequences, context):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = MODEL
    parameters.n_ctx = context * sequences
    parameters.n_parallel = sequences
    parameters.n_batch = 2048
    parameters.cpuparams.n_threads = THREADS
    parameters.cpuparams_batch.n_threads = THREADS
    parameters.verbosity = 0
    return xllamacpp.Server(parameters)


def complete(peer, seed, prompt, answer):
    tokens = [((i + 1) * 2654435761 + seed * 97) % (VOCABULARY - 100) + 50 for i in range(prompt)]
    body = {"prompt": tokens, "n_predict": answer, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    answer = peer.handle_completions(body)
    return answer if isinstance(answer, dict) else json.loads(answer)


def prefill(prompt):
    peer = server(1, prompt + 64)
    complete(peer, 0, 64, 4)
    return max(complete(peer, seed, prompt, 1)["timings"]["prompt_per_second"] for seed in range(1, 4))


def decode(batch):
    peer = server(batch, 256)
    complete(peer, 0, 64, 4)
    best = 0.0
    for run in range(3):
        with ThreadPoolExecutor(batch) as pool:
            jobs = [pool.submit(complete, peer, run * batch + i + 1, 128, 64) for i in range(batch)]
            timings = [job.result()["timings"] for job in jobs]
        # All sequences decode together; the slowest one's time is that of the batch.
        seconds = max(timing["predicted_ms"] for timing in timings) / 1000
        best = max(best, sum(timing["predicted_n"] for timing in timings) / seconds)
    return best


for length in (512, 2048):
    print(f"prefill {length:5} {prefill(length):10.0f} tok/s", flush=True)
for batch in (1, 8, 32):
    print(f"decode  {batch:5} {decode(batch):10.0f} tok/s", flush=True)
