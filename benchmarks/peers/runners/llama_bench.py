"""llama.cpp's own bench, without a server: one line of JSON. Arguments: a GGUF file, threads, tokens of the long prompt.

`single_tok_s` is its tg128 and `prefill_tok_s` its pp of that length; it brings its own tokens and samples nothing. Where
its re-packed weights crash, as they do on some processors, it runs without them.
"""

import json
import subprocess
import sys

from benchmarks.peers.runners.llama_server import environment, programs

SINGLE_TOKENS = 128


def main() -> None:
    model, threads, prompt = sys.argv[1:]
    tests = ["-p", prompt, "-n", str(SINGLE_TOKENS), "-ub", "512", "-r", "2", "-o", "json"]
    command = [str(programs() / "llama-bench"), "-m", model, "-t", threads, *tests]
    ended = subprocess.run(command, env=environment(), stdout=subprocess.PIPE)
    if ended.returncode < 0:
        ended = subprocess.run([*command, "--repack", "0"], env=environment(), stdout=subprocess.PIPE)
    ended.check_returncode()
    rows = json.loads(ended.stdout)
    rates = {"single_tok_s" if row["n_gen"] else "prefill_tok_s": max(row["samples_ts"]) for row in rows}
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
