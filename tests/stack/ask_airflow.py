"""Ask the stack's Airflow by its API, for scripts/test-stack-airflow: ``ask_airflow.py VERB …``.

The environment has ``AIRFLOW_PORT`` and ``AIRFLOW_PASSWORD``; it runs on any Python of the machine, without packages.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ADDRESS = f"http://127.0.0.1:{os.environ['AIRFLOW_PORT']}"
PATIENCE_SECONDS = 600


def ask(method, path, body=None, token=None, host=None):
    """Return the status of an answer, and its content."""
    headers = {"Content-Type": "application/json"} | ({"Host": host} if host else {})
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(ADDRESS + path, data=content, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def log_in(password):
    return ask("POST", "/auth/token", {"username": "admin", "password": password})


class Airflow:
    """Airflow for who knows the password."""

    def __init__(self):
        self._token = self.until("let in", self._log_in)

    def _log_in(self):
        status, said = log_in(os.environ["AIRFLOW_PASSWORD"])
        assert status == 201, (status, said)
        return said["access_token"]

    def ask(self, method, path, body=None):
        status, said = ask(method, "/api/v2" + path, body, self._token)
        assert status < 300, f"{method} {path}: {status} {said}"
        return said

    def until(self, what, found):
        """Return what is found once it is something."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                seen = found()
            except (AssertionError, OSError) as error:  # while Airflow starts again
                seen, why = None, error
            else:
                why = None
            if seen:
                return seen
            assert time.monotonic() < give_up, f"In {PATIENCE_SECONDS} s not {what}: {why}"
            time.sleep(1)


def let_in():
    """Nobody comes in without the password, by a wrong one, or under another name of the host."""
    assert ask("GET", "/api/v2/dags")[0] == 401
    assert ask("GET", "/api/v2/dags", token="wrong")[0] in (401, 403)
    assert log_in("wrong")[0] == 401
    assert log_in("")[0] in (400, 401, 422)
    airflow = Airflow()
    token = airflow._token
    assert ask("GET", "/api/v2/dags", token=token)[0] == 200
    for path in ("/", "/api/v2/dags", "/auth/login"):
        assert ask("GET", path, token=token, host="elsewhere.example.org")[0] == 400, path
    assert ask("POST", "/api/v2/variables", {"key": "a", "value": "b"})[0] == 401


def known(*names):
    """Wait until these DAGs were read."""
    airflow = Airflow()
    airflow.until(
        f"read: {names}", lambda: set(names) <= {dag["dag_id"] for dag in airflow.ask("GET", "/dags")["dags"]}
    )
    errors = airflow.ask("GET", "/importErrors")["import_errors"]
    assert not errors, errors
    for name in names:
        airflow.ask("PATCH", f"/dags/{name}", {"is_paused": False})


def start(dag, day):
    """Start a run; prints its id."""
    body = {"logical_date": f"{day}T00:00:00Z"}
    print(Airflow().ask("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"])


def run_of(airflow, dag, day):
    runs = airflow.ask("GET", f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]
    (found,) = [run for run in runs if (run["logical_date"] or "").startswith(day)]
    return found


def path_of(airflow, dag, day):
    return f"/dags/{dag}/dagRuns/{urllib.parse.quote(run_of(airflow, dag, day)['dag_run_id'])}"


def again(dag, day):
    """Run a day again."""
    airflow = Airflow()
    airflow.ask("POST", path_of(airflow, dag, day) + "/clear", {"dry_run": False, "only_failed": False})


def ended(dag, day, expected="success"):
    """Wait until a run has ended as expected; prints how long it took and how often each task was tried."""
    airflow = Airflow()
    run = airflow.until(
        f"ended: {dag} of {day}",
        lambda: (found := run_of(airflow, dag, day))["state"] in ("success", "failed") and found,
    )
    tasks = airflow.ask("GET", path_of(airflow, dag, day) + "/taskInstances")["task_instances"]
    told = ", ".join(
        f"{task['task_id']} {task['state']} at try {task['try_number']} ({task['duration'] or 0:.0f} s)"
        for task in tasks
    )
    print(f"  {dag} of {day}: {run['state']}: {told}")
    if run["state"] != expected:
        for task in tasks:
            if task["state"] == "failed":
                log(dag, day, task["task_id"], str(task["try_number"]))
        sys.exit(f"{dag} of {day} ended with {run['state']}, not {expected}")


def tries(dag, day, task, least, state):
    """Require that a task was tried this often at least, and ended so."""
    airflow = Airflow()
    found = airflow.ask("GET", f"{path_of(airflow, dag, day)}/taskInstances/{task}")
    assert (found["state"], found["try_number"] >= int(least)) == (state, True), found
    if least == "1":
        assert found["try_number"] == 1, found


def running(dag, day, task):
    """Wait until a task runs."""
    airflow = Airflow()

    def found():
        return airflow.ask("GET", f"{path_of(airflow, dag, day)}/taskInstances/{task}")["state"] == "running"

    airflow.until(f"running: {task}", found)


def log(dag, day, task, number="1"):
    """Print the log of a task."""
    airflow = Airflow()
    path = f"{path_of(airflow, dag, day)}/taskInstances/{task}/logs/{number}?full_content=true"
    for line in airflow.ask("GET", path)["content"]:
        print(line if isinstance(line, str) else f"{line.get('event')} {line.get('error_detail') or ''}")


def backfilled():
    """Wait until the newest backfill has ended."""
    airflow = Airflow()

    def newest():
        return max(airflow.ask("GET", "/backfills?dag_id=daily_load")["backfills"], key=lambda item: item["id"])

    airflow.until("ended: the backfill", lambda: newest()["completed_at"])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
