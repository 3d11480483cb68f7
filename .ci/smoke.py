"""A new user's first ten minutes, checked: up, status, curl-like requests, the OpenAI client, trace, down.

Usage: smoke.py PATH_OF_CLUSTER_BINARY
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from openai import NotFoundError, OpenAI

BINARY = os.path.abspath(sys.argv[1])
PROMPT = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
passed = []


def check(name, condition, detail=""):
    if not condition:
        raise SystemExit(f"smoke: FAILED: {name} {detail}")
    passed.append(name)
    print(f"ok {name} {detail}", flush=True)


def cluster(*args, expect=0):
    run = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=300)
    check(f"cluster {' '.join(args)}", run.returncode == expect, "" if run.returncode == expect else run.stdout + run.stderr)
    return run.stdout


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def post_raw(url, body):
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def status_value(metrics, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line.startswith(name))


def exercise(topology, port, tag):
    began = time.monotonic()
    cluster("up", topology, "--port", str(port), "--detach")
    base = f"http://127.0.0.1:{port}"
    client = OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(model=model, messages=PROMPT, max_tokens=40, temperature=0)
    check(f"{tag}: sensible English", "Paris" in answer.choices[0].message.content, answer.choices[0].message.content)
    check(f"{tag}: up to first answer", True, f"{time.monotonic() - began:.2f} s")
    check(f"{tag}: usage adds up", answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens)

    stream = client.chat.completions.create(
        model=model, messages=PROMPT, max_tokens=40, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check(f"{tag}: streamed equals whole", text == answer.choices[0].message.content)
    check(f"{tag}: usage chunk", chunks[-1].usage.completion_tokens == answer.usage.completion_tokens)
    check(f"{tag}: the second time is cached", chunks[-1].usage.prompt_tokens_details.cached_tokens > 0)

    legacy = client.completions.create(model=model, prompt="The capital of France is", max_tokens=8, temperature=0)
    check(f"{tag}: completions", "Paris" in legacy.choices[0].text, repr(legacy.choices[0].text))

    def numbered(i):
        messages = [{"role": "user", "content": f"Count to {i + 3}."}]
        return client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0.8, seed=i).choices[0].message.content

    alone = [numbered(i) for i in range(32)]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(numbered, range(32)))
    check(f"{tag}: 32 at once equal 32 alone", alone == together)

    try:
        client.chat.completions.create(model="nobody", messages=PROMPT)
        check(f"{tag}: unknown model", False)
    except NotFoundError:
        check(f"{tag}: unknown model is 404", True)
    code, body = post_raw(f"{base}/v1/chat/completions", b"{")
    check(f"{tag}: malformed JSON is 400", code == 400 and "error" in body)
    long = json.dumps({"model": model, "messages": [{"role": "user", "content": "word " * 20000}]}).encode()
    code, body = post_raw(f"{base}/v1/chat/completions", long)
    check(f"{tag}: too long a prompt is 400", code == 400 and body["error"]["code"] == "context_length_exceeded", body["error"]["message"])
    check(f"{tag}: health", get(f"{base}/health") is not None)
    check(f"{tag}: metrics", "cluster_" in get(f"{base}/metrics"))

    request_id = answer.id.rsplit("-", 1)[1]
    waterfall = cluster("trace", request_id)
    check(f"{tag}: trace", all(name in waterfall for name in ["gateway.request", "tokenizer.encode", "router.choose", "decode.run"]))
    status = json.loads(cluster("status", "--json"))
    check(f"{tag}: all instances ready", all(row["state"] == "ready" for row in status["instances"]), str(len(status["instances"])))
    cluster("down")
    try:
        get(f"{base}/health")
        check(f"{tag}: down", False)
    except (urllib.error.URLError, ConnectionError):
        check(f"{tag}: down", True)
    return answer.choices[0].message.content, alone


def foreground():
    process = subprocess.Popen([BINARY, "up", "topologies/local.yaml", "--port", "18322"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "http://" in line:
            break
    process.send_signal(signal.SIGINT)
    check("Ctrl-C drains and exits 0", process.wait(timeout=30) == 0)


def main():
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    cluster("pull", "smollm2-135m-instruct")
    cluster("check", "topologies/local.yaml", "topologies/local-pd.yaml")
    cluster("plan", "topologies/local.yaml")
    whole = exercise("topologies/local.yaml", 18320, "aggregated")
    split = exercise("topologies/local-pd.yaml", 18321, "split")
    check("split equals aggregated, token for token", whole == split)
    foreground()
    print(f"{len(passed)} passed, 0 failed")


main()
