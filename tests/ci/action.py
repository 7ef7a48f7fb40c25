"""action.py ACTION WHEELS TRAINER FOLDER: does what a runner does with action.yml, its `run` steps in order, and is the
server that has the release and the comments. A right trainer succeeds, a wrong one fails with its cause in the summary
and in the one comment, as does a test of pytest's."""

import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import threading

ACTION, WHEELS, TRAINER, FOLDER = map(pathlib.Path, sys.argv[1:])
TESTS = """
import pytest, torch
@pytest.mark.ranks(2)
def test_alike(train):
    torch.manual_seed(0)
    data = (torch.randn(96, 4), torch.randn(96, 1))
    model = torch.nn.Linear(4, 1)
    ddp, optimizer = train.wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for ids, x, y in train.batches(data, rows=24):
        optimizer.zero_grad()
        ((ddp(x) - y) ** 2).mean().mul(train.world_size).backward()
        optimizer.step()
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """Comments of one pull request, of another writer at first, and a release."""

    comments, wrote = [{"id": 7, "body": "<!-- lockstep --> is what it writes first", "user": {"type": "User"}}], []

    def answer(self):
        method, path = self.command, self.path.split("?")[0]
        said = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        page, url = re.search(r"\bpage=(\d+)", self.path), f"http://127.0.0.1:{self.server.server_port}"
        if path == "/repos/us/lockstep/releases/tags/v1":
            found = {"assets": [{"name": each.name, "url": f"{url}/{each.name}"} for each in WHEELS.iterdir()]}
        elif path.endswith(".whl"):
            found = (WHEELS / path[1:]).read_bytes()
        elif (method, path) == ("GET", "/repos/you/trainer/issues/5/comments"):
            found = self.comments if page[1] == "1" else []
        elif (method, path) == ("POST", "/repos/you/trainer/issues/5/comments"):
            found = {"id": 8 + len(self.wrote), "user": {"type": "Bot"}, **said}
            self.comments.append(found)
            self.wrote.append(method)
        elif method == "PATCH" and (
            own := [each for each in self.comments if path == f"/repos/you/trainer/issues/comments/{each['id']}"]
        ):
            own[0].update(said)
            found = own[0]
            self.wrote.append(method)
        else:
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, *_):
        pass


def steps_of(text):
    """Each step of the action by its keys, a block without its indentation."""
    for step in re.split(r"^    - ", text.split("\n  steps:\n", 1)[1], flags=re.M)[1:]:
        keys = (each.split(":", 1) for each in re.split(r"^(?: {6})?(?=\w[\w-]*:)", step, flags=re.M) if each.strip())
        yield {key: textwrap.dedent(value.removeprefix(" |").strip("\n")).strip() for key, value in keys}


def run(name, url, **given):
    """Whether the job succeeds, its summary, the action's verdict and cause, and the files of the artifact."""
    text, folder, good, artifact = ACTION.read_text(), FOLDER / name, True, []
    folder.mkdir()
    inputs = dict(re.findall(r'^  (\w+): \{.* default: "(.*)"\}$', text, re.M)) | given
    known = {f"inputs.{key}": value for key, value in inputs.items()}
    known |= {
        "inputs.token": "t",
        "github.action_ref": "v1",
        "github.action_repository": "us/lockstep",
        "github.event.pull_request.number": "5",
    }

    def filled(value):
        return re.sub(
            r"\$\{\{ (.*?) \}\}",
            lambda found: next((known[each] for each in found[1].split(" || ") if known.get(each)), ""),
            value,
        )

    def holds(condition):
        left, _, right = condition.partition(" == ")
        return condition == "always()" or (known.get(left) == right.strip("'") if right else bool(known.get(left)))

    for step in steps_of(text):
        condition = step.get("if", "")
        if (not good and "always()" not in condition) or not all(
            map(holds, condition.split(" && ") if condition else [])
        ):
            continue
        if "uses" in step:
            lines = step["with"].split("path: |\n")[1].split("\n")
            artifact = [str(path) for line in lines for path in folder.glob(filled(line.strip()))]
            continue
        env = {key: filled(value).strip('"') for key, value in re.findall(r"^(\w+): (.*)$", step.get("env", ""), re.M)}
        env |= {"GITHUB_API_URL": url, "GITHUB_REPOSITORY": "you/trainer", "GITHUB_OUTPUT": str(folder / "outputs"),
                "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}  # fmt: skip
        shell = (
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"] if step["shell"] == "bash" else ["python", "-c"]
        )
        done = subprocess.run(
            [*shell, step["run"]], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )
        good = good and done.returncode == 0
        print(f"{name}: {step['name']}: {done.returncode}", done.stdout[-3000:], done.stderr[-3000:], sep="\n")
        if "id" in step:
            said = dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())
            known |= {f"steps.{step['id']}.outputs.{key}": value for key, value in said.items()}
    return (
        good,
        (folder / "summary.md").read_text(),
        (known["steps.check.outputs.verdict"], known["steps.check.outputs.cause"]),
        artifact,
    )


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    (FOLDER / "test_alike.py").write_text(TESTS)
    command = f"python -m torch.distributed.run --nproc-per-node {{ranks}} {TRAINER} --batch {{batch}}"
    good, summary, outputs, artifact = run("right", url, command=command)
    assert good and outputs == ("same", "") and "the same" in summary and Hub.wrote == ["POST"], (
        good,
        outputs,
        summary,
        Hub.wrote,
    )
    assert any(path.endswith("check.html") for path in artifact), artifact
    good, summary, outputs, artifact = run("wrong", url, command=command + " --mean own", wheels=str(WHEELS))
    assert not good and outputs == ("different", "mean-of-means") and "mean-of-means" in summary, (
        good,
        outputs,
        summary,
    )
    assert Hub.wrote == ["POST", "PATCH"] and len(Hub.comments) == 2 and "mean-of-means" in Hub.comments[1]["body"], (
        Hub.comments
    )
    assert any(path.endswith("issue") for path in artifact), artifact
    good, summary, outputs, artifact = run(
        "pytest", url, pytest=f"{FOLDER / 'test_alike.py'} -k 'alike or different'", wheels=str(WHEELS), comment="false"
    )
    assert not good and outputs == ("different", "loss-times-world") and "loss-times-world" in summary, (
        good,
        outputs,
        summary,
    )
    assert len(Hub.wrote) == 2, "there is a comment that nobody asked for"
    print("action: ok")


main()
