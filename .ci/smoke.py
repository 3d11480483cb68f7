"""A new user's first ten minutes, checked: up, status, curl-like requests, the OpenAI client, trace, down.

Usage: smoke.py PATH_OF_CLUSTER_BINARY
"""

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
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


MUSE = Path("topologies/models/muse-nano")


def recorded_cases():
    """Requests to muse-nano with the answers that another implementation gave."""
    cases = json.loads((MUSE / "expected.json").read_text())["cases"]
    for case in cases:
        for message in case["messages"]:
            for part in message["content"] if isinstance(message.get("content"), list) else []:
                if part["type"] == "image_url":
                    picture = base64.b64encode((MUSE / part["image_url"]["url"]).read_bytes()).decode()
                    part["image_url"]["url"] = f"data:image/png;base64,{picture}"
    return cases


def answer_of(client, model, case):
    fields = {name: case[name] for name in ("tools", "reasoning_effort") if case.get(name)}
    answer = client.chat.completions.create(model=model, messages=case["messages"], temperature=0, max_tokens=600, **fields)
    message = answer.choices[0].message
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]
    reasoning = getattr(message, "reasoning_content", None) or ""
    return (reasoning, message.content or "", calls, answer.usage.prompt_tokens, answer.usage.completion_tokens), answer


def expected_of(case):
    parsed = case["parsed"]
    calls = []
    for call in parsed["tool_calls"]:
        function = call.get("function", call)
        arguments = function["arguments"]
        calls.append((function["name"], json.loads(arguments) if isinstance(arguments, str) else arguments))
    return parsed["reasoning"], parsed["content"] or "", calls, len(case["prompt_ids"]), len(case["output_ids"])


def encoder_apart():
    """Encoder, prefill and decode apart on declared accelerators, emulated here."""
    refused = subprocess.run([BINARY, "up", "epd-b300", "--require-hardware"], capture_output=True, text=True, timeout=60)
    check("epd: --require-hardware refuses", refused.returncode == 2 and "8 x b300" in refused.stderr, refused.stderr.splitlines()[0])
    began = time.monotonic()
    banner = cluster("up", "topologies/epd-b300.yaml", "--port", "18323", "--detach")
    check("epd: ready", True, f"{time.monotonic() - began:.2f} s")
    check("epd: the banner tells what stands in", "8 x b300" in banner and "muse-nano" in banner)
    client = OpenAI(base_url="http://127.0.0.1:18323/v1", api_key="none", max_retries=0)
    card = client.models.list().data[0]
    check("epd: /v1/models tells too", card.model_dump().get("emulated_by") == "muse-nano")
    cases = recorded_cases()
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda case: answer_of(client, card.id, case), cases))
    took = time.monotonic() - began
    wrong = [case["name"] for case, (answer, _) in zip(cases, answers) if answer != expected_of(case)]
    check("epd: recorded answers", not wrong, f"{len(cases)} at concurrency 8 in {took:.2f} s" if not wrong else str(wrong))
    picture = next(answer for case, (_, answer) in zip(cases, answers) if case["task"].startswith("image"))
    waterfall = cluster("trace", picture.id.rsplit("-", 1)[1])
    steps = ["tokenizer.0", "router.0", "encoder.0", "prefill.0", "decode.0"]
    check("epd: the trace names every instance", all(step in waterfall for step in steps))

    case = next(case for case in cases if case["task"] == "tool-call")
    chunks = client.chat.completions.create(
        model=card.id, messages=case["messages"], tools=case["tools"], temperature=0, max_tokens=600, stream=True,
        **({"reasoning_effort": case["reasoning_effort"]} if case.get("reasoning_effort") else {}),
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    pieces = [call for delta in deltas for call in delta.tool_calls or []]
    name = next(call.function.name for call in pieces if call.function.name)
    arguments = json.loads("".join(call.function.arguments or "" for call in pieces))
    check("epd: streamed thoughts and calls equal whole ones", (reasoning, [(name, arguments)]) == (expected_of(case)[0], expected_of(case)[2]))
    status = json.loads(cluster("status", "--json"))
    check("epd: all instances ready", all(row["state"] == "ready" for row in status["instances"]), str(len(status["instances"])))
    cluster("down")
    check("epd: plan on its own hardware", "b300" in cluster("plan", "epd-b300"))


def main():
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    cluster("pull", "smollm2-135m-instruct")
    cluster("check", *sorted(str(path) for path in Path("topologies").glob("*.yaml")))
    cluster("plan", "topologies/local.yaml")
    whole = exercise("topologies/local.yaml", 18320, "aggregated")
    split = exercise("topologies/local-pd.yaml", 18321, "split")
    check("split equals aggregated, token for token", whole == split)
    foreground()
    encoder_apart()
    print(f"{len(passed)} passed, 0 failed")


main()
