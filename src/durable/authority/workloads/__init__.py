"""Workloads as the global side keeps them: admitted once per request, divided, deleted, told of."""

from durable.authority.workloads.admission import admit_workload
from durable.authority.workloads.deletion import finish_delete, finish_job, request_delete
from durable.authority.workloads.messages import audit_message
from durable.authority.workloads.rows import Admission, WorkloadRow, list_workloads, read_workload
from durable.authority.workloads.status import write_status

__all__ = [
    "Admission",
    "WorkloadRow",
    "admit_workload",
    "audit_message",
    "finish_delete",
    "finish_job",
    "list_workloads",
    "read_workload",
    "request_delete",
    "write_status",
]
