"""`durable apply` on a running control plane."""

from ..builders import service, state_of
from ..conftest import Write
from ..terminal import Terminal


def test_a_service_is_applied_until_it_serves_and_again_changes_nothing(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("web", 3))
    [first] = at_plane.json("apply", "-f", path)["workloads"]
    assert (first["workload"], first["phase"], first["generation"]) == ("shop/web", "serving", 1)
    assert sum(first["regions"].values()) == 3
    assert "shop/web created, generation 1" in at_plane.stderr
    assert "shop/web: " in at_plane.stderr
    assert "3 serving of 3" in at_plane.stderr

    before = state_of(at_plane)
    [again] = at_plane.json("apply", "-f", path)["workloads"]
    assert (again["phase"], again["generation"]) == ("serving", 1)
    assert "shop/web unchanged, generation 1" in at_plane.stderr
    assert state_of(at_plane) == before

    assert at_plane.run("apply", "-f", path) == 0
    assert "3 serving of 3" in at_plane.stdout


def test_all_documents_are_checked_before_the_first_is_sent(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("fine") + "---\n" + service("wrong", replicas=-1))
    message = at_plane.wrong("apply", "-f", path)
    assert f"{path}:10: document 2, field spec.replicas: " in message
    assert "shop/fine" not in str(state_of(at_plane))
    twice = write(service("fine") + "---\n" + service("fine"))
    assert "declared twice" in at_plane.wrong("apply", "-f", twice)
    assert "no such file" in at_plane.wrong("apply", "-f", "missing.yaml")


def test_a_refused_document_stops_and_says_what_was_applied(
    at_plane: Terminal, write: Write
) -> None:
    foreign = service("nobodys").replace("tenant: shop", "tenant: nobody")
    path = write(service("before", 1) + "---\n" + foreign + "---\n" + service("after"))
    message = at_plane.refused("apply", "-f", path)
    assert "nobody/nobodys was refused: " in message
    assert "Applied before it: shop/before." in message
    names = [row["workload"] for row in at_plane.json("get", "workloads")["workloads"]]
    assert "shop/before" in names
    assert "shop/after" not in names


def test_a_request_id_counts_once(at_plane: Terminal, write: Write) -> None:
    path = write(service("once", 1))
    asked = ("--request-id", "deploy-7", "--no-wait")
    first = at_plane.json("apply", "-f", path, *asked)
    assert at_plane.json("apply", "-f", path, *asked) == first
    other = at_plane.refused("apply", "-f", write(service("once", 2)), *asked)
    assert "was used for the apply at" in other
    assert "--request-id" in at_plane.wrong("apply", "-f", path, "--request-id", "no spaces")


def test_a_repeated_request_refuses_a_workload_deleted_since(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("past", 1))
    at_plane.json("apply", "-f", path, "--request-id", "deploy-8")
    at_plane.json("delete", "shop/past")
    message = at_plane.refused("apply", "-f", path, "--request-id", "deploy-8")
    assert (
        "was already answered, with generation 1, and the workload has been deleted since"
        in message
    )
    assert "✓" not in message
    [again] = at_plane.json("apply", "-f", path, "--request-id", "deploy-9")["workloads"]
    assert (again["generation"], again["phase"]) == (2, "serving")


def test_a_repeated_delete_leaves_a_workload_that_was_created_since(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("reborn", 1))
    at_plane.json("apply", "-f", path)
    at_plane.json("delete", "shop/reborn", "--request-id", "end-1")
    again = at_plane.json("delete", "shop/reborn", "--request-id", "end-1")
    assert again == {"workload": "shop/reborn", "deleted": True}
    at_plane.json("apply", "-f", path)
    assert at_plane.refusal("delete", "shop/reborn", "--request-id", "end-1") == "created_since"
    [row] = at_plane.json("apply", "-f", path)["workloads"]
    assert (row["generation"], row["phase"]) == (2, "serving")


def test_an_apply_waits_until_a_job_is_complete(at_plane: Terminal, write: Write) -> None:
    job = service("batch", 2, more="  kind: job\n")
    path, asked = write(job), ("--request-id", "night-1")
    [row] = at_plane.json("apply", "-f", path, *asked)["workloads"]
    assert row["phase"] == "complete"
    assert row["status"]["completed"] == 2

    # What was done under this request id stays done, and can be seen.
    [again] = at_plane.json("apply", "-f", path, *asked)["workloads"]
    assert again["phase"] == "ended"
    assert "shop/batch already completed" in at_plane.stderr
    listed = at_plane.json("get", "workloads", "--all")["workloads"]
    [mine] = [one for one in listed if one["workload"] == "shop/batch"]
    assert (mine["phase"], mine["completed"], mine["wanted"]) == ("complete", 2, 2)
    assert mine["ended_at"]
    assert at_plane.run("get", "workloads") == 0
    assert "shop/batch" not in at_plane.stdout
    assert "ended: see `durable get workloads --all`" in at_plane.stderr

    # Another request runs it again, and says so.
    [once_more] = at_plane.json("apply", "-f", path)["workloads"]
    assert (once_more["phase"], once_more["generation"]) == ("complete", 2)
    assert "shop/batch had ended as complete and runs again, generation 2" in at_plane.stderr
